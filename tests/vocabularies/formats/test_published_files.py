"""The large published files: our ids against the libraries, one digest for one vocabulary."""

from __future__ import annotations

import base64
import functools
import json
import time

import fastokens
import pytest
from tokenizers import Tokenizer

from tests.support.data_files import data_bytes
from tests.support.inputs.nasty_texts import RUNS, SEQUENCES, TEXTS
from vocabularies.formats import read_vocabulary, write_vocabulary
from vocabularies.formats.huggingface.writer import tokenizer_json
from vocabularies.model.types import SpecialToken
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.normalizers import Normalizer

TOKENIZER_JSON = {
    "gpt2": "vocab/gpt2/tokenizer.json.xz",
    "llama3": "vocab/llama3/tokenizer.json.xz",
    "qwen3": "vocab/qwen/qwen3_tokenizer.json.xz",
    "deepseek_v3": "vocab/deepseek_v3/tokenizer.json.xz",
    "dnabert2": "dna_vocab/dnabert2/tokenizer.json",
    "gena_lm_t2t_32k": "dna_vocab/gena_lm_t2t_32k/tokenizer.json",
    "gpn": "dna_vocab/gpn/tokenizer.json",
}
R50K = "vocab/tiktoken/r50k_base.tiktoken"
O200K = "vocab/tiktoken/o200k_base.tiktoken"
LLAMA3 = "vocab/llama3/llama3.tiktoken"
QWEN = "vocab/qwen/qwen.tiktoken"
TEKKEN = "vocab/mistral/tekken_240911.tiktoken"
FASTOKENS_REFUSES = {"dnabert2": "Whitespace", "gpn": "Whitespace", "gena_lm_t2t_32k": "Strip"}
CASES = [*TEXTS, *SEQUENCES, *RUNS]


@functools.cache
def real(path: str) -> Vocabulary:
    """Read the vocabulary of a data file, its format detected from the content."""
    return read_vocabulary({"upload": data_bytes(path)})


def ids(library: Tokenizer) -> list[list[int]]:
    return [row.ids for row in library.encode_batch(CASES)]


@pytest.mark.parametrize("name", TOKENIZER_JSON)
@pytest.mark.slow
def test_a_written_tokenizer_json_gives_the_ids_of_the_published_one(name):
    vocabulary = real(TOKENIZER_JSON[name])
    written = tokenizer_json(vocabulary)
    library = Tokenizer.from_str(written)
    expected = ids(Tokenizer.from_str(data_bytes(TOKENIZER_JSON[name]).decode()))
    assert ids(library) == expected
    if name in FASTOKENS_REFUSES:
        with pytest.raises(ValueError, match=FASTOKENS_REFUSES[name]):
            fastokens.Tokenizer.from_json_str(written)
    else:
        fast = fastokens.Tokenizer.from_json_str(written)
        assert [list(fast.encode(text, add_special_tokens=True).ids) for text in CASES] == expected
    if len(vocabulary) < 100_000:  # Reading the large ones again takes seconds.
        assert read_vocabulary({"tokenizer.json": written.encode()}) == vocabulary


@pytest.mark.slow
def test_both_libraries_give_the_same_ids_for_a_list_with_holes():
    vocabulary = real(TEKKEN)
    assert None in vocabulary.tokens
    written = tokenizer_json(vocabulary)
    fast = fastokens.Tokenizer.from_json_str(written)
    assert [list(fast.encode(text).ids) for text in CASES] == ids(Tokenizer.from_str(written))
    assert read_vocabulary({"tokenizer.json": written.encode()}) == vocabulary


def test_gpt2_has_one_digest_in_all_formats():
    names = ("vocab.json", "merges.txt")
    pair = {name: data_bytes(f"vocab/gpt2/{name}") for name in names}
    vocabulary = read_vocabulary(pair)
    assert vocabulary.digest == real(TOKENIZER_JSON["gpt2"]).digest == real(R50K).digest
    written = write_vocabulary(vocabulary, "vocab.json")
    assert written["merges.txt"] == pair["merges.txt"]
    assert json.loads(written["vocab.json"]) == json.loads(pair["vocab.json"])
    ranks = write_vocabulary(vocabulary, "tiktoken")["vocabulary.tiktoken"]
    assert ranks == data_bytes(R50K)


@pytest.mark.slow
def test_real_rank_files_are_known_with_their_rule_offset_and_special_tokens():
    tekken = real(TEKKEN)
    assert (tekken.pretokenizer, tekken.tokens[:1000]) == ("tekken", (None,) * 1000)
    assert tekken.tokens[1000:1003] == (b"\0", b"\1", b"\2")
    qwen = real(QWEN)
    assert (qwen.pretokenizer, qwen.normalizers) == ("qwen2", (Normalizer("nfc"),))
    assert SpecialToken("<|im_end|>", 151645) in qwen.special_tokens
    llama3 = real(LLAMA3)
    assert llama3.pretokenizer == "llama3"
    published = real(TOKENIZER_JSON["llama3"])
    assert llama3.tokens[:128000] == published.tokens[:128000]
    assert llama3.model.ignore_merges  # 588 tokens that merges do not reach.
    assert llama3.token_string(128009) == published.token_string(128009) == "<|eot_id|>"


@pytest.mark.slow
def test_merges_of_200000_ranks_are_derived_in_seconds():
    content = data_bytes(O200K)
    begin = time.process_time()
    lines = [line.split() for line in content.splitlines()]
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    read_s = time.process_time() - begin
    begin = time.process_time()
    vocabulary = read_vocabulary({"x": content})
    seconds = time.process_time() - begin
    assert len(ranks) > len(vocabulary.model.merges) == 199_742
    assert not vocabulary.model.ignore_merges
    assert seconds < 40 * read_s, (seconds, read_s)  # 8 to 10 times; 1.9 s on a quiet machine.


@pytest.mark.slow
def test_qwen_ranks_mean_the_merges_of_its_tokenizer_json():
    ranks = real(QWEN)
    published = real(TOKENIZER_JSON["qwen3"])
    assert ranks.model == published.model
    assert ranks.tokens == published.tokens[: len(ranks)]
