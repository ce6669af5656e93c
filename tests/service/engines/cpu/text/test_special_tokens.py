"""Special tokens that share characters, or white space, are found as `tokenizers` finds them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from service.engines.cpu.engine import CpuEngine
from service.engines.cpu.text.encoder import NAME, TextEncoder
from service.engines.cpu.text.special_tokens import find_ambiguous
from tests.support.data_files import data_bytes
from tests.support.inputs.tokenizer_documents import BYTES, added, document, encoded
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.formats import read_vocabulary
from vocabularies.model.tables import token_table
from vocabularies.model.types import Bpe, SpecialToken
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference import tokenizer

CONTENTS = ["<m>", "m", "<", ">", "a", "ab", "b<", "  ", "   ", " ", "\n", " a", "a "]
TEXTS = st.lists(st.sampled_from(["<m>", "a", "b", "c", "<", ">", " ", "  ", "\n"]), max_size=12)
FLAGS = ("normalized", "special", "lstrip", "rstrip")


def of_added(tokens: list[dict]) -> dict:
    """A tokenizer.json of all bytes; each token has its byte's id, or one behind them."""
    number = len(BYTES)
    for token in tokens:
        token["id"] = BYTES.get(token["content"], number)
        number += token["id"] == number
    return document(dict(BYTES), [], byte_level=True, added_tokens=tokens)


def encoder_of(vocabulary: Vocabulary) -> TextEncoder:
    """Make the encoder directly, as the engine replaces it if its self-test finds a difference."""
    return TextEncoder(vocabulary, token_table(vocabulary))


def test_blanks_that_modernberts_mask_strips_are_no_token():
    mask, blanks = added("[MASK]", 0, lstrip=True), added("   ", 0, normalized=True, special=False)
    content = encoded(of_added([mask, blanks]))
    vocabulary, engine = read_vocabulary({"tokenizer.json": content}), CpuEngine()
    text = "a   [MASK]   b"
    right = Tokenizer.from_str(content.decode()).encode(text).ids
    assert right == [BYTES["a"], 256, 257, BYTES["b"]]
    assert engine.encode(vocabulary, Batch([text])).ids.tolist() == right
    assert engine.load(vocabulary).encoder == NAME


def test_a_token_behind_the_normalizers_is_found_in_what_the_others_leave():
    content = encoded(of_added([added("bc", 0), added("abc", 0, normalized=True)]))
    vocabulary = read_vocabulary({"tokenizer.json": content})
    library = Tokenizer.from_str(content.decode())
    for text in ("babcb", "abc", "b", "bab c"):
        got = encoder_of(vocabulary).encode(Batch([text]), EncodeOptions(False))
        assert got.ids.tolist() == library.encode(text).ids


@settings(max_examples=80, deadline=None)
@given(
    contents=st.lists(st.sampled_from(CONTENTS), min_size=1, max_size=4, unique=True),
    flags=st.lists(st.tuples(*[st.booleans()] * len(FLAGS)), min_size=4, max_size=4),
    texts=st.lists(TEXTS.map("".join), min_size=8, max_size=8),
)
def test_random_tokens_have_the_ids_of_tokenizers_and_the_spans_of_the_reference(
    contents, flags, texts
):
    tokens = [
        added(content, 0, **dict(zip(FLAGS, own, strict=True)))
        for content, own in zip(contents, flags, strict=False)
    ]
    for token in tokens:
        if token["content"].isspace():  # With nothing left of it the library panics.
            token["lstrip"] = False
    content = of_added(tokens)
    vocabulary = read_vocabulary({"tokenizer.json": encoded(content)})
    options = EncodeOptions(spans=True)
    answer = encoder_of(vocabulary).encode(Batch(texts), options)
    library = Tokenizer.from_str(json.dumps(content))
    for row, text in enumerate(texts):
        begin, end = answer.offsets[row : row + 2]
        assert answer.ids[begin:end].tolist() == library.encode(text).ids, text
        spans = [tuple(span) for span in answer.spans[begin:end].tolist()]
        assert spans == tokenizer.encode(vocabulary, text, options).spans, text


@pytest.mark.parametrize("content", ["mask", "a b"])
def test_a_long_row_is_not_cut_where_a_token_strips_blanks(content):
    document = of_added([added(content, 0, lstrip=True, rstrip=True)])
    vocabulary = read_vocabulary({"tokenizer.json": encoded(document)})
    encoder, library = encoder_of(vocabulary), Tokenizer.from_str(json.dumps(document))
    encoder.task_bytes = 64
    text = f"{content}   " * 2000
    for encoder.num_threads in (1, 2):
        got = encoder.encode(Batch([text]), EncodeOptions(False))
        assert got.ids.tolist() == library.encode(text).ids


def test_a_token_that_begins_in_the_blanks_of_the_one_before_it_has_its_own_span():
    tokens = (*(bytes([byte]) for byte in range(256)), b"</s>", b"  ")
    special = (SpecialToken("</s>", 256, rstrip=True), SpecialToken("  ", 257))
    vocabulary = Vocabulary(tokens, Bpe(()), special)
    options = EncodeOptions(spans=True)
    answer = CpuEngine().encode(vocabulary, Batch(["</s>  a"], options=options))
    assert answer.ids.tolist() == [256, 257, 97]
    assert answer.spans.tolist() == [[0, 6], [4, 6], [6, 7]]


def token(content: str, **flags: bool) -> SpecialToken:
    return SpecialToken(content, 0, **flags)


@pytest.mark.parametrize(
    ("tokens", "ambiguous"),
    [
        ([token("<a>"), token("<b>", normalized=True)], []),
        ([token("<a>"), token("a", normalized=True)], ["<a>", "a"]),
        ([token("a"), token("<a>", normalized=True)], ["<a>", "a"]),
        ([token("<a>"), token("><", normalized=True)], ["<a>", "><"]),
        ([token("ab"), token("bc", normalized=True), token("x")], ["ab", "bc"]),
        ([token("ab"), token("bc")], []),
        ([token("ab", normalized=True), token("bc", normalized=True)], []),
        ([token("<m>", lstrip=True), token(" a")], []),
        ([token("<m>", lstrip=True), token(" a", normalized=True)], ["<m>"]),
        ([token("<m>"), token("  ", normalized=True)], []),
        ([token("x" * 4096), token("y" * 4096, normalized=True)], ["x" * 4096, "y" * 4096]),
    ],
)
def test_only_texts_with_tokens_that_may_meet_are_in_doubt(tokens, ambiguous):
    assert sorted(find_ambiguous(tokens)) == ambiguous


def test_deepseeks_two_rounds_do_not_meet_and_stay_fast():
    content = data_bytes("vocab/deepseek_v3/tokenizer.json.xz")
    vocabulary = read_vocabulary({"tokenizer.json": content})
    assert {True, False} == {token.normalized for token in vocabulary.special_tokens}
    assert find_ambiguous(vocabulary.special_tokens) == set()
