"""White space and the ends of texts in C++, and the rows that are left to the library."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engines.cpu.bpe import tokenizers_encoder
from service.engines.cpu.bpe.tokenizers_encoder import TokenizersEncoder
from service.engines.cpu.engine import CpuEngine
from service.engines.cpu.text import encoder as text_encoder
from service.engines.cpu.text.encoder import TextEncoder
from service.engines.encoder import ReferenceEncoder
from tests.support.data_files import data_bytes
from vocabularies import builtin
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.model.tables import token_table
from vocabularies.model.types import Bpe, Normalizer, SpecialToken
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.pretokenizers import find_pretokenizer
from vocabularies.reference import tokenizer

WHITE_SPACE = [" ", "\n", "\r", "\t", "\v", "\x85", "\xa0", "\u2028", "\u3000"]
PARTS = [*WHITE_SPACE, " ", "\n", " ", "\n", "a", "!", "1", "<m>", "<p> ", "'\u017f", "\u180e"]
TEXTS = st.lists(st.sampled_from(PARTS)).map("".join)


def encoder_of(vocabulary: Vocabulary) -> TextEncoder:
    return TextEncoder(vocabulary, token_table(vocabulary))


def white_space_vocabulary(content: str = "<m>", **special: bool) -> Vocabulary:
    """Bytes, and merges that show every way to cut white space."""
    tokens = [bytes([byte]) for byte in range(256)]
    merges = []
    for pair in ("\n ", " \n", "\n\n", "  ", "\r\n", "\n\t", "! ", "!\n", " a"):
        merges.append((ord(pair[0]), ord(pair[1])))
        tokens.append(pair.encode())
    for left, right in (("\n\n", " "), ("  ", "\n"), ("\n ", "\n "), (" \n", " ")):
        merges.append((tokens.index(left.encode()), tokens.index(right.encode())))
        tokens.append((left + right).encode())
    mark = SpecialToken(content, len(tokens), **special)
    unmatched = SpecialToken("<u>", len(tokens) + 1, matched=False)
    tokens += [content.encode(), b"<u>"]
    return Vocabulary(tuple(tokens), Bpe(tuple(merges)), (mark, unmatched), pretokenizer="cl100k")


BASE = white_space_vocabulary()
VOCABULARIES = {
    "base": BASE,
    "lstrip": white_space_vocabulary(lstrip=True),
    "rstrip": white_space_vocabulary(rstrip=True),
    "not special": white_space_vocabulary(special=False),
    "not matched": white_space_vocabulary(matched=False),
    "normalized": white_space_vocabulary(normalized=True),
    "ends in a blank": white_space_vocabulary("<p> "),
    "no special tokens": replace(BASE, special_tokens=()),
    "whole tokens first": replace(BASE, model=replace(BASE.model, ignore_merges=True)),
}
ENCODERS = {name: encoder_of(vocabulary) for name, vocabulary in VOCABULARIES.items()}


@settings(max_examples=600)
@given(
    name=st.sampled_from([*VOCABULARIES]),
    texts=st.lists(TEXTS, max_size=5),
    mode=st.sampled_from(["match", "plain", "refuse"]),
    spans=st.booleans(),
)
def test_white_space_is_cut_as_cl100k_cuts_it(name, texts, mode, spans):
    options = EncodeOptions(False, mode, spans=spans)
    got = ENCODERS[name].encode(Batch(texts), options)
    right = ReferenceEncoder(VOCABULARIES[name]).encode(Batch(texts), options)
    assert got.errors == right.errors
    assert got.offsets.tolist() == right.offsets.tolist()
    assert got.ids.tolist() == right.ids.tolist()
    if spans:
        assert got.spans.tolist() == right.spans.tolist()


def test_many_rows_of_every_kind_in_one_batch():
    texts = ["a\n ", "<m>", "", "!\n \n ", "'\u017f\n ", "a\n <m>\n ", "b", "\n " * 3] * 3
    for mode in ("match", "plain", "refuse"):
        options = EncodeOptions(False, mode, spans=True)
        got = ENCODERS["base"].encode(Batch(texts), options)
        right = ReferenceEncoder(BASE).encode(Batch(texts), options)
        assert got.ids.tolist() == right.ids.tolist()
        assert got.offsets.tolist() == right.offsets.tolist()
        assert got.errors == right.errors


def test_bytes_that_are_not_utf8_are_refused_beside_tails():
    batch = Batch.from_bytes([b"a\n ", b"\xff\n ", b"a\n "])
    content = ENCODERS["base"].content(batch, False)
    assert content.offsets.tolist() == [0, 2, 2, 4]
    assert content.errors[1].where == "byte 0"


WHOLE_WORDS = white_space_vocabulary(single_word=True)
LONG = "x <m> y\n" * 1000


@pytest.fixture
def low_limit(monkeypatch):
    """LONG is longer than the rows that the reference encodes."""
    monkeypatch.setattr(text_encoder, "MAX_REFERENCE_BYTES", len(LONG) - 1)


def test_a_long_row_that_is_left_is_encoded_by_a_compared_library(low_limit):
    encoder = encoder_of(WHOLE_WORDS)
    encoder.other.tokenizers.clear()
    content = encoder.content(Batch([LONG, "short"]), False)
    assert encoder.other.tokenizers
    batch = Batch([LONG, "short"])
    right = ReferenceEncoder(WHOLE_WORDS).encode(batch, EncodeOptions())
    assert content.ids.tolist() == right.ids.tolist()


def test_a_library_that_differs_is_not_used(low_limit, monkeypatch, caplog):
    def differs(self, batch, plain, with_spans):
        content = ReferenceEncoder(self.vocabulary).encode(batch, EncodeOptions())
        content.ids += 1
        return content

    monkeypatch.setattr(TokenizersEncoder, "library_content", differs)
    encoder = encoder_of(WHOLE_WORDS)
    content = encoder.content(Batch([LONG]), False)
    right = ReferenceEncoder(WHOLE_WORDS).encode(Batch([LONG]), EncodeOptions())
    assert content.ids.tolist() == right.ids.tolist()
    assert "Self-test of" in caplog.text


def test_real_texts_cut_inside_white_space_get_the_ids_of_tiktoken():
    vocabulary = builtin.load("cl100k_base")
    special = {token.content: token.id for token in vocabulary.special_tokens}
    ranks = {token: i for i, token in enumerate(vocabulary.tokens) if token is not None}
    ranks = {token: i for token, i in ranks.items() if i not in special.values()}
    pattern = find_pretokenizer("cl100k").tiktoken_pattern
    library = tiktoken.Encoding("t", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)
    text = data_bytes("text/code_python_stdlib.txt").decode()
    chance = np.random.default_rng(0)
    texts = []
    for place in chance.integers(0, len(text), 3000).tolist():
        part = text[max(0, place - 100) : place].rstrip("".join(WHITE_SPACE))
        texts.append(part + "".join(chance.choice([*WHITE_SPACE], 4)))
    content = encoder_of(vocabulary).content(Batch(texts), False)
    right = [library.encode_ordinary(each) for each in texts]
    assert content.ids.tolist() == [token_id for row in right for token_id in row]
    assert np.diff(content.offsets).tolist() == [*map(len, right)]


def test_it_takes_vocabularies_with_an_empty_token_and_without_bytes_that_no_text_has():
    base = replace(BASE, pretokenizer="gpt2")
    never = {0xC0, 0xC1, *range(0xF5, 0x100)}
    tokens = [None if i in never else token for i, token in enumerate(base.tokens)]
    empty = SpecialToken("", len(tokens), special=False, matched=False)
    special = (*base.special_tokens, empty)
    vocabulary = replace(base, tokens=(*tokens, b""), special_tokens=special)
    texts = ["a <m> b\n\n", "\U0010ffff\u00ff\u07ff", "<u>"]
    engine = CpuEngine()
    residency = engine.load(vocabulary)
    assert residency.encoder == text_encoder.NAME, residency.fallback_reason
    batch = Batch(texts, options=EncodeOptions(spans=True))
    got = engine.encode(vocabulary, batch)
    for row, text in enumerate(texts):
        right = tokenizer.encode(vocabulary, text)
        begin, end = got.offsets[row : row + 2]
        assert got.row(row).tolist() == right.ids
        assert [*map(tuple, got.spans[begin:end].tolist())] == right.spans


def test_begin_and_end_tokens_of_roberta_do_not_keep_it_away():
    mark, end = BASE.special_tokens
    roles = {"cls": mark.id, "sep": end.id}
    vocabulary = replace(BASE, prefix=(mark.id,), suffix=(end.id,), roles=roles)
    engine = CpuEngine()
    assert engine.load(vocabulary).encoder == text_encoder.NAME
    text = "a <m> b\n\n"
    assert engine.encode(vocabulary, Batch([text])).ids.tolist() == (
        tokenizer.encode(vocabulary, text).ids
    )


def test_a_model_is_read_by_tokenizers_once_for_both_ways_to_see_special_tokens(monkeypatch):
    special = (SpecialToken("<m>", 256), SpecialToken("<t>", 257, special=False))
    tokens = (*(bytes([byte]) for byte in range(256)), b"<m>", b"<t>")
    vocabulary = Vocabulary(
        tokens, Bpe((), byte_level=True), special, normalizers=(Normalizer("nfc"),)
    )
    documents = []
    read = tokenizers_encoder.read_tokenizer

    def count(document: str) -> object:
        documents.append(document)
        return read(document)

    monkeypatch.setattr(tokenizers_encoder, "read_tokenizer", count)
    encoder = encoder_of(vocabulary)
    matched, plain = encoder.tokenizer(False), encoder.tokenizer(True)
    assert len(documents) == 1
    for text in ("a<m>b<t>", "<m><m", "e\u0301<t>", ""):
        assert matched.encode(text).ids == read(documents[0]).encode(text).ids
        alone = read(documents[0])
        alone.encode_special_tokens = True
        assert plain.encode(text).ids == alone.encode(text).ids
    assert matched.encode("<m>").ids == [256]
    assert plain.encode("<m>").ids != [256]
