"""The reference on real vocabularies: published ids, tiktoken, tokenizers, hashes of real files."""

from __future__ import annotations

import base64
import functools

import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tests.support.data_files import data_bytes, data_json, expected, ids_digest, records
from tests.support.inputs.nasty_texts import SEQUENCES, TEXTS
from tests.vocabularies.reference.test_against_tokenizers import in_characters
from vocabularies.batch.batch import EncodeOptions
from vocabularies.builtin import load
from vocabularies.formats import read_vocabulary
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference.tokenizer import decode, encode

ORDINARY = EncodeOptions(add_special_tokens=False, special="plain")
TOKENIZER_JSON = {
    "gpt2": "vocab/gpt2/tokenizer.json.xz",
    "llama3": "vocab/llama3/tokenizer.json.xz",
    "qwen3_hf": "vocab/qwen/qwen3_tokenizer.json.xz",
    "deepseek_v3": "vocab/deepseek_v3/tokenizer.json.xz",
    "dnabert2": "dna_vocab/dnabert2/tokenizer.json",
    "gena_lm_t2t_32k": "dna_vocab/gena_lm_t2t_32k/tokenizer.json",
    "gpn": "dna_vocab/gpn/tokenizer.json",
}
LARGE = ("llama3", "qwen3_hf", "deepseek_v3")  # Their files take seconds to read.
TIKTOKEN = ("gpt2", "cl100k_base", "o200k_base")
SMALL_TEXTS = ("text/blns.txt", "text/grapheme_break_test.txt", "text/udhr_17_languages.txt")
SMALL_SEQUENCES = (
    "dna/lambda_NC_001416.fa",
    "dna/sars_cov2_NC_045512.2.fa",
    "dna/mtdna_rCRS_NC_012920.1.fa",
    "dna/human_hg38_softmasked_chr13_chr4.fa",
)
READS = "dna/reads_lambda_with_N.fastq.gz"
DNA = (
    *("dnabert2", "gena_lm_t2t_32k", "gpn", "nt_v1", "nt_v2", "hyenadna", "caduceus", "evo_bytes"),
    *("dnabert1_3mer", "dnabert1_6mer", "mtdna6_linear", "mtdna6_circular"),
)


@functools.cache
def from_file(name: str) -> Vocabulary:
    return read_vocabulary({"tokenizer.json": data_bytes(TOKENIZER_JSON[name])})


@functools.cache
def library(name: str) -> Tokenizer:
    return Tokenizer.from_str(data_bytes(TOKENIZER_JSON[name]).decode())


@pytest.mark.parametrize(
    ("name", "text", "ids"),
    [
        ("gpt2", "Hello, world!", [15496, 11, 995, 0]),
        ("gpt2", "1000", [12825]),
        ("gpt2", "....", [1106]),
        ("cl100k_base", "hello world", [15339, 1917]),
        ("o200k_base", "hello world", [24912, 2375]),
        ("nt_v2", "AAAAAA", [3, 6]),
        ("nt_v2", "ATCGN", [3, 4102, 4103, 4104, 4105, 4106]),
        ("nt_v2", "AAAAAATNa<mask>", [3, 6, 4103, 4106, 0, 2]),
        ("nt_v1", "ATCGN", [3, 4100, 4101, 4102, 4103, 4104]),
        ("nt_v1", "A<eos>C<bos>", [3, 4100, 0, 4102, 0]),
        ("nt_v2", "A<eos>C<bos>", [3, 4102, 4, 4104, 5]),
        ("ntv3", "ATCGN", [6, 7, 8, 9, 10]),
        ("hyenadna", "ACGTNa", [7, 8, 9, 10, 11, 6, 1]),
        ("caduceus", "ACGTna", [7, 8, 9, 10, 11, 7, 1]),
        ("evo_bytes", "ACN\n", [65, 67, 78, 10]),
        ("gpn", "acGTN", [3, 4, 5, 6, 2]),
        ("mtdna6", "AAAAAAc", [6, 7]),
        ("dnabert1_3mer", "AAATN", [2, 5, 6, 1, 3]),
        ("gena_lm_t2t_32k", "N" * 10, [1, 5, 2]),
        (
            "dnabert2",
            "ACGTAGCATCGGATCTATCTATCGACACTTGGTTATCGATCTACGAGCATCTCGTTAGC",
            [1, 5, 194, 32, 757, 1239, 2092, 294, 24, 359, 88, 93, 32, 75, 77, 19, 2],
        ),
    ],
)
def test_published_ids(name, text, ids):
    assert encode(load(name), text).ids == ids


@pytest.mark.slow
def test_ids_of_the_data_folder():
    known = {"gpt2", "cl100k_base", "o200k_base"}
    files = {"llama3": "llama3", "deepseek_v3": "deepseek_v3"}
    for name, text, ids in data_json("vocab/llm_encodings.json")["_checks"]:
        if name in known or name in files:
            vocabulary = load(name) if name in known else from_file(files[name])
            assert encode(vocabulary, text, ORDINARY).ids == ids, (name, text)


@functools.cache
def tiktoken_encoding(name: str) -> tiktoken.Encoding:
    described = data_json("vocab/llm_encodings.json")[name]
    lines = data_bytes(described["ranks_file"]).splitlines()
    return tiktoken.Encoding(
        name,
        pat_str=described["pat_str"],
        mergeable_ranks={base64.b64decode(t): int(rank) for t, rank in map(bytes.split, lines)},
        special_tokens=described["special_tokens"],
    )


@pytest.mark.parametrize("name", TIKTOKEN)
def test_texts_have_the_ids_of_tiktoken(name):
    vocabulary, theirs = load(name), tiktoken_encoding(name)
    for text in [*TEXTS, *SEQUENCES]:
        ordinary = encode(vocabulary, text, ORDINARY)
        assert ordinary.ids == theirs.encode_ordinary(text), text
        matched = encode(vocabulary, text, EncodeOptions(add_special_tokens=False))
        assert matched.ids == theirs.encode(text, allowed_special="all"), text
        assert decode(vocabulary, ordinary.ids) == text.encode()
        assert b"".join(text.encode()[a:b] for a, b in ordinary.spans) == text.encode()


@pytest.mark.parametrize("name", TIKTOKEN)
@settings(max_examples=100)
@given(text=st.text() | st.text("ab '\n1é中🙂sS", max_size=60))
def test_random_texts_have_the_ids_of_tiktoken(name, text):
    assert encode(load(name), text, ORDINARY).ids == tiktoken_encoding(name).encode_ordinary(text)


@pytest.mark.parametrize("name", TOKENIZER_JSON)
@pytest.mark.slow
def test_texts_have_the_ids_and_offsets_of_tokenizers(name):
    vocabulary, theirs = from_file(name), library(name)
    for text in [*TEXTS, *SEQUENCES]:
        _check_like_library(vocabulary, theirs, text)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in LARGE else ())
        for name in TOKENIZER_JSON
    ],
)
@settings(max_examples=60)
@given(
    text=st.text()
    | st.lists(
        st.sampled_from(["N" * 9, "N" * 12, "ACGT", "a", "-", "é", "e\u0301", " ", "[MASK]", "\n"])
    ).map("".join)
)
def test_random_texts_have_the_ids_and_offsets_of_tokenizers(name, text):
    _check_like_library(from_file(name), library(name), text)


def _check_like_library(vocabulary: Vocabulary, theirs: Tokenizer, text: str) -> None:
    for mode, plain in (("match", False), ("plain", True)):
        theirs.encode_special_tokens = plain
        for added in (True, False):
            row = encode(vocabulary, text, EncodeOptions(added, mode))
            encoding = theirs.encode(text, add_special_tokens=added)
            assert row.ids == encoding.ids, (mode, text)
            assert in_characters(text, row.spans) == encoding.offsets, (mode, text)


@pytest.mark.parametrize("max_length", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("side", ["right", "left"])
def test_truncation_is_that_of_tokenizers(max_length, side):
    for name in ("dnabert2", "gena_lm_t2t_32k", "gpn"):
        vocabulary, theirs = from_file(name), Tokenizer.from_str(library(name).to_str())
        if max_length < len(vocabulary.prefix) + len(vocabulary.suffix):
            continue
        theirs.enable_truncation(max_length, direction=side)
        options = EncodeOptions(max_length=max_length, truncation_side=side)
        for text in [*TEXTS, *SEQUENCES]:
            assert encode(vocabulary, text, options).ids == theirs.encode(text).ids, (name, text)


@pytest.mark.parametrize("name", SMALL_TEXTS)
@pytest.mark.parametrize("encoding", ["gpt2", "cl100k_base", "o200k_base"])
def test_real_texts_have_the_expected_ids(encoding, name):
    (text,) = records(name)
    ids = encode(load(encoding), text, ORDINARY).ids
    assert ids_digest(ids) == expected()[encoding][name]["sha256"]


@pytest.mark.parametrize("encoding", ["llama3", "qwen3_hf", "deepseek_v3"])
def test_a_real_text_has_the_expected_ids_from_tokenizer_json(encoding):
    (text,) = records(SMALL_TEXTS[0])
    ids = encode(from_file(encoding), text, ORDINARY).ids
    assert ids_digest(ids) == expected()[encoding][SMALL_TEXTS[0]]["sha256"]


@pytest.mark.parametrize(
    ("encoding", "name"),
    [(e, n) for e in DNA for n in SMALL_SEQUENCES if "circular" not in e or "mtdna" in n]
    + [(e, READS) for e in ("dnabert2", "gena_lm_t2t_32k", "nt_v2", "dnabert1_6mer")],
)
@pytest.mark.slow
def test_real_sequences_have_the_expected_ids(encoding, name):
    sequences = records(name)
    known = expected()[encoding][name]
    options = EncodeOptions(circular=True if encoding == "mtdna6_circular" else None)
    vocabulary = load(encoding.removesuffix("_linear").removesuffix("_circular"))
    ids = [i for s in sequences for i in encode(vocabulary, s, options).ids]
    assert len(ids) == known["n_tokens"]
    assert ids_digest(ids) == known["sha256"]
