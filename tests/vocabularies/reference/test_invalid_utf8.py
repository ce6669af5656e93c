"""Bytes that are not UTF-8 have tiktoken's ids, and decode to themselves."""

from __future__ import annotations

import functools

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from vocabularies.batch.batch import EncodeOptions, RowRefused
from vocabularies.builtin import load
from vocabularies.preprocessing.pretokenizers import find_pretokenizer
from vocabularies.reference.invalid_utf8 import MAX_BYTES, encode_bytes, has_all_bytes
from vocabularies.reference.tokenizer import decode

NAMES = ["gpt2", "cl100k_base", "o200k_base"]
PLAIN = EncodeOptions(special="plain")
BYTES = [
    b"\xff",
    b" world\xf0\x9f",
    "Hello 🙂".encode()[:-1],
    "Hello 🙂".encode()[:-2] + b" and more words",
    b"a  \n \xe4\xb8",
    b"a\t\n\n  \x80 b\xc3",
    b"<|endoftext|>\xc3",
    b"\xed\xa0\x80",
    bytes(range(256)),
    b"word " * 300 + b"\xe4\xb8",
]


@functools.cache
def library(name: str) -> tiktoken.Encoding:
    """Make tiktoken's encoding of a built-in vocabulary."""
    vocabulary = load(name)
    special = {token.content: token.id for token in vocabulary.special_tokens}
    ranks = {
        token: number
        for number, token in enumerate(vocabulary.tokens)
        if token is not None and number not in special.values()
    }
    pattern = find_pretokenizer(vocabulary.pretokenizer).tiktoken_pattern
    assert pattern is not None
    return tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def check(name: str, data: bytes) -> None:
    tokens = encode_bytes(load(name), data, PLAIN)
    ids = [token.id for token in tokens]
    assert ids == library(name)._encode_bytes(data)
    assert decode(load(name), ids) == data
    assert b"".join(data[token.begin : token.end] for token in tokens) == data


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("data", BYTES)
def test_ids_are_those_of_tiktoken(name, data):
    check(name, data)


@pytest.mark.parametrize("name", NAMES)
@given(text=st.text("aB1 \n\t'é中🙂", max_size=12), rest=st.binary(max_size=12))
def test_any_bytes_have_the_ids_of_tiktoken(name, text, rest):
    data = text.encode() + b"\xf0" + rest
    if not is_utf8(data):
        check(name, data)


def test_special_tokens_before_the_bytes_are_matched():
    tokens = encode_bytes(load("gpt2"), b"a<|endoftext|>\xff", EncodeOptions())
    assert [token.id for token in tokens[:2]] == [64, 50256]
    assert (tokens[1].begin, tokens[1].end) == (1, 14)
    with pytest.raises(RowRefused, match="special_token_refused"):
        encode_bytes(load("gpt2"), b"a<|endoftext|>\xff", EncodeOptions(special="refuse"))


def test_other_vocabularies_and_long_texts_are_refused():
    assert has_all_bytes(load("gpt2"))
    for name in ("dnabert2", "hyenadna", "mtdna6"):
        assert not has_all_bytes(load(name))
        with pytest.raises(RowRefused, match="does not have all bytes"):
            encode_bytes(load(name), b"A\xff", PLAIN)
    with pytest.raises(RowRefused, match="65536 bytes"):
        encode_bytes(load("gpt2"), b"a" * MAX_BYTES + b"\xff", PLAIN)
