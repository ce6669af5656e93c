"""Answers as JSON, in pieces: writing a large one never holds the loop for long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
from numpy.typing import NDArray

from service.registry import Entry

__all__ = ["flat_json", "head", "matrix_json", "ragged_json"]

PIECE_IDS = 65_536  # Numbers written at once: about a third of a millisecond.


def head(entry: Entry, field: bytes) -> bytes:
    """The begin of every answer, up to its main field's value."""
    name, digest = orjson.dumps(entry.name), entry.vocabulary.digest.encode()
    return b'{"vocabulary":%b,"digest":"%b","%b":' % (name, digest, field)


def flat_json(array: NDArray[Any]) -> Iterator[bytes]:
    """A one- or two-dimensional array as a JSON list, about PIECE_IDS rows a piece."""
    yield from _pieces(array, PIECE_IDS)


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
    """Rows of ids as a list of lists, about PIECE_IDS ids a piece."""
    piece: list[list[int]] = []
    first, num_ids = True, 0
    for row in rows:
        begin, end = offsets[row], offsets[row + 1]
        piece.append(ids[begin:end].tolist())
        num_ids += end - begin + 1
        if num_ids >= PIECE_IDS:
            yield (b"[" if first else b",") + orjson.dumps(piece)[1:-1]
            piece, first, num_ids = [], False, 0
    if first:
        yield orjson.dumps(piece)
    else:
        yield (b"," + orjson.dumps(piece)[1:-1] if piece else b"") + b"]"
