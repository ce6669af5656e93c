"""Writes answers as JSON, large ones in pieces, so that none blocks the event loop for long."""

from __future__ import annotations

from base64 import b64encode
from bisect import bisect_right
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from service.registry.entries import LoadedVocabulary
from vocabularies.model.vocabulary import TokenForm, Vocabulary

try:
    from service.operations.rendering import _json_rows as native
except ImportError:
    native = None  # type: ignore[assignment]

PIECE_TOKENS = 4_096  # Tokens of a piece: some milliseconds of Python.
PIECE_BYTES = 3 << 18  # Text bytes of a piece: some milliseconds if many are not ASCII.
PIECE_IDS = 65_536  # Numbers of a piece: about a third of a millisecond.


def head(entry: LoadedVocabulary, field: bytes) -> bytes:
    """Return the start of an answer, up to the value of its main field."""
    return _head(entry.name, entry.vocabulary.digest, field)


@lru_cache(256)
def _head(name: str, digest: str, field: bytes) -> bytes:
    return b'{"vocabulary":%b,"digest":"%b","%b":' % (orjson.dumps(name), digest.encode(), field)


def flat_json(array: NDArray[Any]) -> Iterator[bytes]:
    """Write an array of one or two dimensions as a JSON list, in pieces of about PIECE_IDS rows."""
    yield from _pieces(array, PIECE_IDS)


def tokens_json(vocabulary: Vocabulary, ids: NDArray[Any], form: TokenForm) -> Iterator[bytes]:
    """Write the tokens of ids as a JSON list of strings, in pieces of PIECE_TOKENS tokens."""
    for begin in range(0, len(ids), PIECE_TOKENS):
        part = ids[begin : begin + PIECE_TOKENS].tolist()
        piece = orjson.dumps([vocabulary.show_token(token_id, form) for token_id in part])
        yield (b"," if begin else b"[") + piece[1:-1]
    yield b"]" if len(ids) else b"[]"


def texts_json(data: NDArray[np.uint8], offsets: list[int], rows: range) -> Iterator[bytes]:
    """Write rows of bytes as a list of strings, in pieces of about PIECE_BYTES; see `text_json`."""
    yield from _strings(data, offsets, rows, _text, text_json)


def base64_texts_json(data: NDArray[np.uint8], offsets: list[int], rows: range) -> Iterator[bytes]:
    """Write rows of bytes as a list of base64 strings, in pieces of about PIECE_BYTES."""
    yield from _strings(data, offsets, rows, _base64, base64_json)


def text_json(data: NDArray[np.uint8]) -> Iterator[bytes]:
    """Write bytes as a JSON string, in pieces of PIECE_BYTES.

    Bytes that are not UTF-8 become U+FFFD.
    """
    if len(data) <= PIECE_BYTES:
        yield orjson.dumps(_text(data.tobytes()))
        return
    decoder = getincrementaldecoder("utf-8")("replace")
    yield b'"'
    for begin in range(0, len(data), PIECE_BYTES):
        part = data[begin : begin + PIECE_BYTES].tobytes()
        yield orjson.dumps(decoder.decode(part, begin + len(part) == len(data)))[1:-1]
    yield b'"'


def base64_json(data: NDArray[np.uint8]) -> Iterator[bytes]:
    """Write bytes as a JSON string in base64, in pieces of PIECE_BYTES, a multiple of three."""
    yield b'"'
    for begin in range(0, len(data), PIECE_BYTES):
        yield b64encode(data[begin : begin + PIECE_BYTES].tobytes())
    yield b'"'


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


def _strings(
    data: NDArray[np.uint8],
    offsets: list[int],
    rows: range,
    spell: Callable[[bytes], str],
    write_long: Callable[[NDArray[np.uint8]], Iterator[bytes]],
) -> Iterator[bytes]:
    """Write rows of bytes as a JSON list of strings.

    Args:
        data: the bytes of all rows.
        offsets: the start of each row.
        rows: the numbers of the rows to write.
        spell: converts a row to its string.
        write_long: writes one long row as JSON, in pieces.
    """
    yield b"["
    for begin, end in _groups(offsets, rows, PIECE_BYTES):
        if begin > rows.start:
            yield b","
        if end - begin == 1:
            yield from write_long(data[offsets[begin] : offsets[end]])
        else:
            places = pairwise(offsets[begin : end + 1])
            yield orjson.dumps([spell(data[b:e].tobytes()) for b, e in places])[1:-1]
    yield b"]"


def _groups(
    offsets: Sequence[int] | NDArray[np.int64], rows: range, size: int
) -> Iterator[tuple[int, int]]:
    """Group neighbouring rows: up to `size` rows with about `size` elements, at least one row."""
    begin = end = rows.start
    while True:
        if rows:
            end = bisect_right(offsets, offsets[begin] + size, begin + 1, rows.stop)
            end = min(end, begin + size)
        yield begin, end
        if end == rows.stop:
            return
        begin = end


def matrix_json(matrix: NDArray[Any]) -> Iterator[bytes]:
    """Write a matrix as a JSON list of rows, in pieces of about PIECE_IDS numbers."""
    yield from _pieces(matrix, max(1, PIECE_IDS // max(1, matrix.shape[1])))


def _pieces(array: NDArray[Any], num_rows: int) -> Iterator[bytes]:
    """Write an array as a JSON list, in pieces of `num_rows` rows."""
    if len(array) <= num_rows:
        yield orjson.dumps(array, option=orjson.OPT_SERIALIZE_NUMPY)
        return
    for begin in range(0, len(array), num_rows):
        part = array[begin : begin + num_rows]
        piece = orjson.dumps(part, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1]
        yield (b"," if begin else b"[") + piece
    yield b"]"


def rows_by_orjson(ids: NDArray[Any], offsets: NDArray[np.int64]) -> bytes:
    """Write rows of ids as `rows_json` does, without the C++ extension."""
    # Arrays need no Python integer for each id: a third of the time of lists.
    arrays = [ids[begin:end] for begin, end in pairwise(offsets.tolist())]
    return orjson.dumps(arrays, option=orjson.OPT_SERIALIZE_NUMPY)


rows_json = rows_by_orjson if native is None else native.write_rows
"""Writes rows of ids as a JSON list of lists.

Args:
    ids: uint8, uint16, int32 or int64[T], contiguous, the rows one after another.
    offsets: int64[B + 1], the start of each row.

Raises:
    ValueError: the extension received other arrays, or offsets that decrease or exceed the ids.

Example: ids 7 8 9 10 and offsets 0 2 2 4 give [[7,8],[],[9,10]].
"""


def ragged_json(ids: NDArray[Any], offsets: NDArray[np.int64], rows: range) -> Iterator[bytes]:
    """Write rows of ids as `rows_json` does, in pieces of about PIECE_IDS ids and rows."""
    for begin, end in _groups(offsets, rows, PIECE_IDS):
        piece = rows_json(ids, offsets[begin : end + 1])
        is_first, is_last = begin == rows.start, end == rows.stop
        if is_first and is_last:
            yield piece
        else:
            yield (b"[" if is_first else b",") + piece[1:-1] + (b"]" if is_last else b"")


def write_ids(ids: NDArray[Any]) -> bytes:
    """Write the ids of one row as a JSON list, in one piece."""
    return rows_json(np.ascontiguousarray(ids), np.array([0, len(ids)]))[1:-1]
