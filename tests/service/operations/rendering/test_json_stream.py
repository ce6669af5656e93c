"""Answers written in pieces are the JSON of the whole."""

from __future__ import annotations

import json
from base64 import b64encode

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.operations.rendering import json_stream
from service.operations.rendering.json_stream import (
    base64_json,
    base64_texts_json,
    flat_json,
    matrix_json,
    ragged_json,
    text_json,
    texts_json,
    tokens_json,
)
from tests.support.fake_engine import byte_vocabulary


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(json_stream, "PIECE_IDS", 5)
    monkeypatch.setattr(json_stream, "PIECE_BYTES", 6)


@pytest.mark.parametrize("size", [0, 1, 4, 5, 6, 9, 10, 11, 23])
def test_a_flat_array_in_pieces_is_the_whole_list(size):
    array = np.arange(size, dtype=np.int32)
    assert json.loads(b"".join(flat_json(array))) == array.tolist()
    pairs = np.arange(2 * size).reshape(-1, 2)
    assert json.loads(b"".join(flat_json(pairs))) == pairs.tolist()


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1), (1, 12), (7, 2), (4, 3), (6, 5), (9, 7)])
def test_a_matrix_in_pieces_is_the_whole_matrix(shape):
    matrix = np.arange(shape[0] * shape[1], dtype=np.int32).reshape(shape)
    assert json.loads(b"".join(matrix_json(matrix))) == matrix.tolist()


@pytest.mark.parametrize(
    "lengths", [[], [0], [3], [0, 0, 0, 0, 0, 0, 0], [5], [4, 1], [9, 0, 9], [1] * 17, [2, 2, 2, 2]]
)
@pytest.mark.parametrize("skipped", [0, 2])
def test_ragged_rows_in_pieces_are_the_whole_list(lengths, skipped):
    lengths = [3] * skipped + lengths
    offsets = np.cumsum([0, *lengths], dtype=np.int64)
    ids = np.arange(offsets[-1], dtype=np.int32)
    rows = range(skipped, len(lengths))
    expected = [ids[offsets[row] : offsets[row + 1]].tolist() for row in rows]
    assert json.loads(b"".join(ragged_json(ids, offsets, rows))) == expected


@pytest.mark.parametrize("num_ids", [0, 1, 4096, 4097, 10_000])
def test_tokens_in_pieces_are_the_list(num_ids):
    vocabulary = byte_vocabulary()
    ids = np.arange(num_ids, dtype=np.int32) % 256
    pieces = list(tokens_json(vocabulary, ids, "text"))
    assert json.loads(b"".join(pieces)) == [vocabulary.token_string(i % 256) for i in ids]
    assert max(map(len, pieces)) < 60_000


@given(st.lists(st.binary(max_size=30) | st.text(max_size=12).map(str.encode), max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_texts_in_pieces_are_the_strings_of_the_whole(rows):
    data = np.frombuffer(b"-skipped-" + b"".join(rows), np.uint8)
    offsets = np.cumsum([0, 9, *map(len, rows)]).tolist()
    texts = [row.decode(errors="replace") for row in rows]
    encoded = [b64encode(row).decode() for row in rows]
    chosen = range(1, 1 + len(rows))
    assert json.loads(b"".join(texts_json(data, offsets, chosen))) == texts
    assert json.loads(b"".join(base64_texts_json(data, offsets, chosen))) == encoded
    for row, text, in_base64 in zip(rows, texts, encoded, strict=True):
        array = np.frombuffer(row, np.uint8)
        assert json.loads(b"".join(text_json(array))) == text
        assert json.loads(b"".join(base64_json(array))) == in_base64


def test_long_texts_come_in_pieces():
    data = np.frombuffer("é".encode() * 30, np.uint8)
    assert max(map(len, text_json(data))) <= 2 * 6
    assert max(map(len, texts_json(data, list(range(0, 61, 2)), range(30)))) <= 4 * 6
