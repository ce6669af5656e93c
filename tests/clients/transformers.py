"""The tokenizers of transformers beside what `warptok.load` and `discover` make of them.

Argument: a JSON file with the cases of tests/clients/test_transformers.py. Their ids, masks and
padded forms are compared with `warptok.load` where the case says so, with what `discover` finds,
and with the rows that the embedding layer made in the test's own process.
"""

import sys

sys.path.pop(0)  # This folder, whose files have the clients' names.

import json
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import transformers

import warptok
from gpu.embedding.tokenizer_discovery import discover
from vocabularies.batch.batch import Batch


class HyenaTokenizer(transformers.PreTrainedTokenizer):
    """HyenaDNA's tokenizer, whose code is on the hub: an id for each letter, and [SEP] last."""

    def __init__(self, vocab: dict, **kwargs: object) -> None:
        self.ids = dict(vocab)
        self.names = {token_id: token for token, token_id in vocab.items()}
        names = {role: f"[{role.upper()}]" for role in ("sep", "cls", "pad", "mask", "unk")}
        tokens = {f"{role}_token": name for role, name in names.items()}
        super().__init__(**tokens, bos_token="[BOS]", eos_token="[SEP]", **kwargs)

    @property
    def vocab_size(self) -> int:
        return len(self.ids)

    def get_vocab(self) -> dict:
        return dict(self.ids)

    def _tokenize(self, text: str, **kwargs: object) -> list:
        return list(text)

    def _convert_token_to_id(self, token: str) -> int:
        return self.ids.get(token, self.ids["[UNK]"])

    def _convert_id_to_token(self, token_id: int) -> str:
        return self.names[token_id]

    def build_inputs_with_special_tokens(self, own: list, pair: object = None) -> list:
        return [*own, self.ids["[SEP]"]]


def make_tokenizer(case: dict) -> object:
    """Make a tokenizer from the files and the arguments of a case."""
    kwargs = case["kwargs"]
    if case["kind"] == "fast":
        return transformers.PreTrainedTokenizerFast(tokenizer_file=case["file"], **kwargs)
    if case["kind"] == "esm":
        return transformers.EsmTokenizer(case["file"], eos_token=None, **kwargs)
    return HyenaTokenizer(json.loads(Path(case["file"]).read_text()), **kwargs)


def check_fields(case: dict, tokenizer: object) -> None:
    """Compare the call of `warptok.load(tokenizer)` with the tokenizer's own."""
    tok = warptok.load(tokenizer, device="cpu")
    for options in case["calls"]:
        theirs = tokenizer(case["texts"], return_token_type_ids=False, **options)
        ours = tok(case["texts"], **options)
        assert {*theirs} == {*ours}, options
        for name, values in theirs.items():
            assert np.array_equal(np.array(values, object), np.array(ours[name], object)), name


def check_discovery(case: dict, tokenizer: object) -> None:
    """Compare what `discover` finds, by the tokenizer alone, with the tokenizer."""
    found = discover(tokenizer)
    assert (found.pad_id, found.padding_side) == (tokenizer.pad_token_id, tokenizer.padding_side)
    assert (found.rule is not None) == case["has_rule"], found.reason
    for encode, with_special_tokens in ((found.upstream, False), (found.with_special_tokens, True)):
        theirs = tokenizer(case["texts"], add_special_tokens=with_special_tokens)["input_ids"]
        ids, offsets = encode(Batch(case["texts"]))
        assert [row.tolist() for row in np.split(ids, offsets[1:-1])] == theirs
        for text, row in zip(case["texts"], theirs, strict=True):
            if found.rule is None or found.begin_end_tokens is None:
                continue
            own = found.rule.encode(np.frombuffer(text.encode(), np.uint8))
            if own is not None:
                added = (
                    found.begin_end_tokens
                    if with_special_tokens
                    else type(found.begin_end_tokens)()
                )
                assert [*added.prefix, *own.tolist(), *added.suffix] == row, text
                case["num_by_rule"] = case.get("num_by_rule", 0) + 1
    assert not case["has_rule"] or case["num_by_rule"] >= case["least_by_rule"]


def check_rows(case: dict, tokenizer: object) -> None:
    """Compare rows of the embedding layer with the tokenizer's, padded on either side."""
    for made in case["rows"]:
        theirs = tokenizer(
            case["texts"],
            padding=True,
            padding_side=made["padding_side"] or tokenizer.padding_side,
            add_special_tokens=made["add_special_tokens"],
        )
        for name in ("input_ids", "attention_mask"):
            assert made[name] == theirs[name], (case["file"], made["padding_side"], name)


for case in json.loads(Path(sys.argv[1]).read_text()):
    tokenizer = make_tokenizer(case)
    check_discovery(case, tokenizer)
    check_rows(case, tokenizer)
    if case["calls"]:
        check_fields(case, tokenizer)
print("all as expected")
