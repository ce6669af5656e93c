"""Batches cut into chunks: every byte in one of them, cut only where no pretoken can lie across."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.host.split_points import SEARCH_BYTES
from gpu.large.chunking import (
    CHUNK_BYTES,
    LEAST_BYTES,
    NEAR_BYTES,
    SHORT_BYTES,
    chunks_of,
    may_cut_rows,
)
from gpu.memory.workspace_layout import BYTES_A_ROW
from vocabularies.builtin import load
from vocabularies.model.types import Bpe, SpecialToken
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference import tokenizer

GPT2 = load("gpt2")
ROWS = st.lists(st.text("ab é\n", max_size=40), max_size=30)


def flat(rows: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    return np.frombuffer(b"".join(rows), np.uint8), np.cumsum([0, *map(len, rows)])


@given(ROWS, st.integers(1, 100), st.randoms())
def test_chunks_are_the_batch_in_order_whole_rows_or_parts_of_one(texts, chunk_bytes, chance):
    rows = [text.encode() for text in texts]
    data, offsets = flat(rows)
    whole = np.array([chance.random() < 0.2 for _ in rows], np.bool_)
    begin = row = 0
    inside = False
    for chunk in chunks_of(data, offsets, GPT2, chunk_bytes, whole):
        assert (chunk.begin, chunk.first_row, chunk.begins_row) == (begin, row, not inside)
        lengths = np.diff(chunk.begins)
        assert len(lengths) == chunk.num_rows >= 1
        if chunk.is_part:
            assert chunk.num_rows == 1
            assert not whole[row]
        else:
            own = offsets[row : row + chunk.num_rows + 1] - begin
            assert chunk.begins.tolist() == own.tolist()
        if chunk.num_rows > 1:
            assert chunk.end - begin <= chunk_bytes
            assert chunk.num_rows <= max(1, chunk_bytes // BYTES_A_ROW)
        if not chunk.ends_row:
            assert chr(data[chunk.end - 1]) in "ab"
            assert chr(data[chunk.end]) == " "
        begin, inside = chunk.end, not chunk.ends_row
        row += chunk.num_rows - inside
    assert (begin, row, inside) == (len(data), len(rows), False)


@given(st.lists(st.sampled_from(["a ", "word", " ", "\n ", "'s", "12", "é"]), max_size=60))
def test_parts_of_a_row_have_the_ids_of_the_row(words):
    text = "".join(words)
    data, offsets = flat([text.encode()])
    parts = [data[c.begin : c.end].tobytes().decode() for c in chunks_of(data, offsets, GPT2, 9)]
    ids = [id_ for part in parts for id_ in tokenizer.encode(GPT2, part).ids]
    assert ids == tokenizer.encode(GPT2, text).ids


@pytest.mark.parametrize("row_bytes", [100, 1000, 1 << 21, 3 << 20, 1 << 26])
def test_chunks_are_small_at_both_ends_and_none_is_too_large(row_bytes):
    data = np.tile(np.frombuffer(b"a b ", np.uint8), 10 << 20)
    offsets = np.arange(0, len(data) + row_bytes, row_bytes).clip(max=len(data))
    chunks = list(chunks_of(data, offsets, GPT2, CHUNK_BYTES))
    sizes = [chunk.end - chunk.begin for chunk in chunks]
    assert sum(sizes) == len(data)
    least = max(LEAST_BYTES, row_bytes if row_bytes <= CHUNK_BYTES else 0)
    assert sizes[0] <= least
    assert sizes[-1] <= least
    assert max(sizes) <= CHUNK_BYTES
    assert len(sizes) < 20 + len(data) // CHUNK_BYTES


@pytest.mark.parametrize("row_bytes", [100, 1000, 1 << 26])
def test_chunks_are_of_one_size_where_the_least_is_the_most(row_bytes):
    data = np.tile(np.frombuffer(b"a b ", np.uint8), 1 << 18)
    offsets = np.arange(0, len(data) + row_bytes, row_bytes).clip(max=len(data))
    sizes = [c.end - c.begin for c in chunks_of(data, offsets, GPT2, 50_000, ends=(50_000, 50_000))]
    assert sum(sizes) == len(data)
    assert len(sizes) == -(-len(data) // max(sizes))
    assert 49_000 <= min(sizes[:-1]) <= max(sizes) <= 50_000


@pytest.mark.parametrize("row_bytes", [100, 1 << 26])
def test_the_last_chunks_may_be_larger_than_the_first(row_bytes):
    data = np.tile(np.frombuffer(b"a b ", np.uint8), 1 << 16)
    offsets = np.arange(0, len(data) + row_bytes, row_bytes).clip(max=len(data))
    chunks = chunks_of(data, offsets, GPT2, 20_000, ends=(1000, 5000))
    sizes = [chunk.end - chunk.begin for chunk in chunks]
    assert sum(sizes) == len(data)
    assert sizes[0] <= 1000
    assert max(sizes) <= 20_000
    assert 4900 <= min(sizes[4:-1])  # All but the rest.
    assert sizes[-1] <= 5000


@pytest.mark.parametrize("distance", [1, SEARCH_BYTES - 1, SEARCH_BYTES, 3 * SEARCH_BYTES + 7])
def test_a_border_is_found_at_any_distance_from_the_limit(distance):
    size = 8 * SEARCH_BYTES
    for place in (size // 2 - distance, size // 2 + distance):
        row = b"-" * (place - 1) + b"a " + b"-" * (size - place - 1)
        ends = [chunk.end for chunk in chunks_of(*flat([row]), GPT2, size // 2)]
        assert ends[0] == place


@pytest.mark.parametrize(
    ("row_bytes", "chunk_bytes", "parts"),
    [(SHORT_BYTES, CHUNK_BYTES, 1), (SHORT_BYTES + 1, CHUNK_BYTES, 2), (SHORT_BYTES, 1 << 20, 2)],
)
def test_a_short_row_is_not_looked_through_for_a_border_that_is_far(row_bytes, chunk_bytes, parts):
    row = np.full(row_bytes, ord("-"), np.uint8)
    far = LEAST_BYTES - NEAR_BYTES - 1
    row[far - 1 : far + 1] = np.frombuffer(b"a ", np.uint8)
    offsets = np.array([0, row_bytes])
    cut = [chunk.end for chunk in chunks_of(row, offsets, GPT2, chunk_bytes)]
    assert cut == [far, row_bytes][-parts:]
    row[LEAST_BYTES : LEAST_BYTES + 2] = np.frombuffer(b"a ", np.uint8)  # This one is near.
    assert len(list(chunks_of(row, offsets, GPT2, chunk_bytes))) > 1


def test_a_row_is_cut_behind_ascii_letters_and_nothing_else():
    for byte in range(256):
        data = np.frombuffer(b"." * 60 + bytes([byte]) + b" " + b"." * 60, np.uint8)
        cut = [chunk.end for chunk in chunks_of(data, np.array([0, len(data)]), GPT2, 100)]
        is_letter = bytes([byte]).isalpha()
        assert cut == ([61, len(data)] if is_letter else [len(data)]), byte


def test_a_row_stays_whole_where_it_or_the_vocabulary_has_no_border():
    data, offsets = flat([b"---" * 100, b"a b" * 100])
    chunks = [(c.begin, c.end) for c in chunks_of(data, offsets, GPT2, 50)]
    assert chunks[0] == (0, 300)
    assert len(chunks) > 4
    tokens = tuple(bytes([byte]) for byte in range(256))
    special = (SpecialToken("a b", 256),)
    for vocabulary in (
        Vocabulary(tokens, Bpe(()), pretokenizer="none"),
        Vocabulary((*tokens, b"a b"), Bpe(()), special, pretokenizer="gpt2"),
    ):
        assert not may_cut_rows(vocabulary)
        assert len(list(chunks_of(data, offsets, vocabulary, 50))) == 2
