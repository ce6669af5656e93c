"""Answers as JSON, in pieces: writing a large one never holds the loop for long."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any

import orjson
from numpy.typing import NDArray

from service.registry import Entry
from vocabularies.vocabulary import Vocabulary

__all__ = ["flat_json", "head", "matrix_json", "ragged_json", "tokens_json"]

PIECE_TOKENS = 4_096  # Tokens spelled at once: some milliseconds of Python.
PIECE_IDS = 65_536  # Numbers written at once: about a third of a millisecond.


def head(entry: Entry, field: bytes) -> bytes:
    """The begin of every answer, up to its main field's value."""
    return _head(entry.name, entry.vocabulary.digest, field)


@lru_cache(256)
def _head(name: str, digest: str, field: bytes) -> bytes:
    return b'{"vocabulary":%b,"digest":"%b","%b":' % (orjson.dumps(name), digest.encode(), field)


def flat_json(array: NDArray[Any]) -> Iterator[bytes]:
    """A one- or two-dimensional array as a JSON list, about PIECE_IDS rows a piece."""
    yield from _pieces(array, PIECE_IDS)


def tokens_json(vocabulary: Vocabulary, ids: NDArray[Any]) -> Iterator[bytes]:
    """The tokens of ids as a JSON list of strings, PIECE_TOKENS a piece."""
    for begin in range(0, len(ids), PIECE_TOKENS):
        part = ids[begin : begin + PIECE_TOKENS].tolist()
        piece = orjson.dumps([vocabulary.token_string(token_id) for token_id in part])
        yield (b"," if begin else b"[") + piece[1:-1]
    yield b"]" if len(ids) else b"[]"


def matrix_json(matrix: NDArray[Any]) -> Iterator[bytes]:
    """A matrix as a JSON list of rows, about PIECE_IDS numbers a piece."""
    yield from _pieces(matrix, max(1, PIECE_IDS // max(1, matrix.shape[1])))


def _pieces(array: NDArray[Any], rows: int) -> Iterator[bytes]:
    if len(array) <= rows:
        yield orjson.dumps(array, option=orjson.OPT_SERIALIZE_NUMPY)
        return
    for begin in range(0, len(array), rows):
        part = array[begin : begin + rows]
        piece = orjson.dumps(part, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1]
        yield (b"," if begin else b"[") + piece
    yield b"]"


def ragged_json(ids: NDArray[Any], offsets: list[int], rows: range) -> Iterator[bytes]:
    """Rows of ids as a list of lists, about PIECE_IDS ids, or as many rows, a piece."""
    begin = rows.start
    while True:
        first = offsets[begin]
        end = bisect_right(offsets, first + PIECE_IDS, begin + 1, rows.stop) if rows else begin
        end = min(end, begin + PIECE_IDS)
        values = ids[first : offsets[end]].tolist()
        places = pairwise([place - first for place in offsets[begin : end + 1]])
        piece = orjson.dumps([values[b:e] for b, e in places])
        is_first, is_last = begin == rows.start, end == rows.stop
        if is_first and is_last:
            yield piece
        else:
            yield (b"[" if is_first else b",") + piece[1:-1] + (b"]" if is_last else b"")
        if is_last:
            return
        begin = end
