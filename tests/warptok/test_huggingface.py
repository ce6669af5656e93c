"""The call of Hugging Face's tokenizers: the same fields, shapes, types and refusals.

tests/clients/test_transformers.py compares it with transformers.
"""

from __future__ import annotations

import numpy as np
import pytest

import warptok
from tests.support.inputs.tokenizer_objects import FastTokenizer, write_tokenizer
from tests.support.torch_or_skip import torch_or_skip

TEXTS = ["ACGTACGT", "", "GATTACA"]
ROWS = [[1, 5, 194, 6, 1049, 2], [1, 2], [1, 260, 12, 2]]


@pytest.fixture(scope="module")
def tok() -> warptok.Tokenizer:
    return warptok.load("dnabert2", device="cpu")


def test_without_options_lists_come_back(tok):
    inputs = tok(TEXTS)
    assert inputs == {"input_ids": ROWS, "attention_mask": [[1] * len(row) for row in ROWS]}
    assert inputs.input_ids == inputs["input_ids"]
    assert tok("GATTACA")["input_ids"] == ROWS[2]
    assert tok("GATTACA", padding=True)["attention_mask"] == [1, 1, 1, 1]
    with pytest.raises(AttributeError):
        inputs.labels  # noqa: B018


def test_padding_and_truncation(tok):
    inputs = tok(TEXTS, padding=True, truncation=True, max_length=4, return_tensors="np")
    assert inputs["input_ids"].tolist() == [[1, 5, 194, 2], [1, 2, 3, 3], ROWS[2]]
    assert inputs["attention_mask"].tolist()[1] == [1, 1, 0, 0]
    assert {array.dtype for array in inputs.values()} == {np.dtype(np.int64)}
    assert tok(TEXTS, max_length=4)["input_ids"][0] == [1, 5, 194, 2]  # As Hugging Face.
    fixed = tok("ACGT", padding="max_length", max_length=8)
    assert len(fixed["input_ids"]) == 8
    assert np.shape(tok(TEXTS, padding=True, pad_to_multiple_of=8)["input_ids"]) == (3, 8)
    assert tok(TEXTS, padding=True, padding_side="left")["input_ids"][1] == [3, 3, 3, 3, 1, 2]
    assert tok(TEXTS, padding="longest", add_special_tokens=False)["input_ids"][1] == [3] * 4


def test_other_fields(tok):
    inputs = tok(
        TEXTS,
        return_offsets_mapping=True,
        return_token_type_ids=True,
        return_length=True,
        return_attention_mask=False,
    )
    assert [*inputs] == ["input_ids", "offset_mapping", "token_type_ids", "length"]
    assert inputs["offset_mapping"][2] == [(0, 0), (0, 5), (5, 7), (0, 0)]
    assert inputs["token_type_ids"][1] == [0, 0]
    assert inputs["length"] == [6, 2, 4]
    shape = tok(TEXTS, padding=True, return_offsets_mapping=True, return_tensors="np")
    assert shape["offset_mapping"].shape == (3, 6, 2)


@pytest.mark.torch
def test_tensors_of_torch(tok):
    torch = torch_or_skip()
    inputs = tok(TEXTS, padding=True, return_tensors="pt")
    assert inputs["input_ids"].dtype == torch.int64
    assert inputs.to("cpu")["input_ids"].tolist() == inputs["input_ids"].tolist()
    assert tok("ACGT", return_tensors="pt").input_ids.shape == (1, 5)


def test_a_loaded_object_keeps_its_length_sides_and_padding():
    source = FastTokenizer(
        write_tokenizer("gpt2"),
        model_max_length=3,
        padding_side="left",
        truncation_side="left",
        pad_token_id=50256,
    )
    tok = warptok.load(source, device="cpu")
    inputs = tok(["a b c d", "a"], padding=True, truncation=True)
    assert inputs["input_ids"] == [tok.encode("a b c d")[-3:], [50256, 50256, 64]]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"padding": "short"},
            warptok.InvalidRequest,
            "padding is 'short'; it must be one of False",
        ),
        ({"truncation": "only_second"}, warptok.InvalidRequest, "truncation is 'only_second'"),
        (
            {"truncation": True},
            warptok.InvalidRequest,
            "length of the model is not known; give max_length=",
        ),
        ({"padding": "max_length"}, warptok.InvalidRequest, "give max_length="),
        ({"return_tensors": "tf"}, warptok.InvalidRequest, 'it must be "pt", "np" or None'),
        (
            {"return_tensors": "np"},
            warptok.InvalidRequest,
            "different lengths cannot be a tensor; use",
        ),
        ({"text_pair": TEXTS}, TypeError, "a pair of texts is not encoded"),
        ({"stride": 2}, TypeError, r"call tok\.chunks\(text, chunk_size"),
        ({"return_overflowing_tokens": True}, TypeError, r"tok\.chunks"),
        ({"is_split_into_words": True}, TypeError, "join the words to a text"),
        ({"special": "plain"}, TypeError, r"tok\.encode_batch\(texts, special=\.\.\.\)"),
        ({"whatever": 1}, TypeError, "see docs/python.md"),
    ],
)
def test_other_options_are_refused_with_the_right_call(tok, options, error, message):
    with pytest.raises(error, match=message):
        tok(TEXTS, **options)


def test_options_that_are_switched_off_are_no_fault(tok):
    inputs = tok(TEXTS, stride=0, is_split_into_words=False, return_overflowing_tokens=False)
    assert inputs["input_ids"] == ROWS


def test_token_names_are_spelled_as_in_the_file(tok):
    gpt2 = warptok.load("gpt2", device="cpu")
    assert gpt2.convert_ids_to_tokens([15496, 995]) == ["Hello", "Ġworld"]
    assert gpt2.convert_tokens_to_ids("Ġworld") == 995
    assert tok.convert_tokens_to_ids(["[CLS]", "nothing"]) == [1, tok.unk_token_id]
    assert tok.convert_ids_to_tokens(np.array([1])) == ["[CLS]"]
    assert gpt2.convert_ids_to_tokens(50256) == "<|endoftext|>"
    assert tok.special_tokens["[PAD]"] == tok.pad_token_id == 3
    assert tok.special_tokens_map["cls_token"] == "[CLS]"
    assert len(tok.get_vocab()) == len(tok) == 4096
    with pytest.raises(warptok.InvalidRequest, match="4096 is not an id"):
        tok.convert_ids_to_tokens(4096)
    ids = tok.bos_token_id, tok.eos_token_id, tok.cls_token_id, tok.sep_token_id, tok.mask_token_id
    assert ids == (None, None, 1, 2, 4)


def test_tokens_of_roles_are_read_and_the_padding_is_set():
    tok = warptok.load("dnabert2", device="cpu")
    roles = ("unk", "bos", "eos", "cls", "sep", "pad", "mask")
    named = {f"{role}_token": getattr(tok, f"{role}_token") for role in roles}
    assert {name: token for name, token in named.items() if token} == tok.special_tokens_map
    assert (tok.bos_token, tok.eos_token) == (None, None)
    tok.pad_token = tok.mask_token
    assert tok(["ACGT", ""], padding=True)["input_ids"][1][2:] == [tok.mask_token_id] * 3
    with pytest.raises(warptok.InvalidRequest, match="'<pad>' is not a token of the vocabulary"):
        tok.pad_token = "<pad>"
    tok.pad_token = None
    assert tok.pad_token is tok.pad_token_id is None
    for name in ("eos_token", "mask_token"):
        with pytest.raises(AttributeError, match="no setter"):
            setattr(tok, name, "[SEP]")
    gpt2 = warptok.load("gpt2", device="cpu")
    gpt2.pad_token = gpt2.eos_token
    assert gpt2(["a", "b c"], padding=True)["input_ids"] == [[64, 50256], [65, 269]]


def test_the_length_of_one_text_is_in_a_list_as_of_hugging_face():
    tok = warptok.load("dnabert2", device="cpu")
    assert tok("ACGTACGT", return_length=True)["length"] == [6]
