"""Joins strings as UTF-8 with offsets, by string_join.cpp where that is built, else in Python.

Both give the same bytes and refuse the same strings; JOINED_BY names the one that is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vocabularies.batch.ragged import offsets_from_lengths

try:
    from vocabularies.batch import _string_join as native

    if not hasattr(native, "hold"):  # Built from older sources.
        raise ImportError
except ImportError:
    native = None  # type: ignore[assignment]

Joined = tuple[NDArray[np.uint8], NDArray[np.int64]]
Memory = Callable[[int], NDArray[np.uint8] | None]
"""Returns uint8[N] to write N bytes to, or None if there is no memory for them."""
Copy = Callable[[tuple[str, ...], NDArray[np.int64], NDArray[np.uint8]], object]
"""Writes the UTF-8 of measured strings to uint8[N], each at its offset of int64[B + 1]."""
JOINED_BY = "Python" if native is None else "C++"
LARGE_BYTES = 1 << 18  # Fewer bytes go to new memory, not to the caller's.
LONG_TEXT = 64  # Characters from which on a call for each text costs less than a second pass.
CACHE_BYTES = 1 << 22
UINT8 = np.dtype(np.uint8)
INT64 = np.dtype(np.int64)
INTEGERS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
SAMPLE = 64  # The typical length is the mean of about so many texts.


def join_texts(
    texts: Sequence[str],
    memory: Memory | None = None,
    by: Any = native,
    copy: Copy | None = None,
) -> Joined:
    """Encode and join texts: UTF-8 uint8[N], and where each begins, int64[B + 1].

    Args:
        texts: the texts.
        memory: returns the memory for LARGE_BYTES or more; joining in Python does not use it.
        by: the extension, or None to join in Python.
        copy: copies LARGE_BYTES or more; None: the extension does.

    Raises:
        TypeError: a row is no string; it is named.
        UnicodeEncodeError: a text has a lone surrogate; it is named.
    """
    try:
        return join_in_python(texts) if by is None else _joined(texts, memory, by, copy)
    except (TypeError, UnicodeEncodeError) as error:
        raise _with_row(error, texts) from error


def _joined(texts: Sequence[str], memory: Memory | None, by: Any, copy: Copy | None) -> Joined:
    listed: Any = texts if isinstance(texts, list | tuple) else list(texts)
    offsets = np.empty(len(listed) + 1, np.int64)
    if copy is None:
        by.measure(listed, offsets)
    else:  # The copy runs later: a tuple keeps the measured strings, whoever changes the list.
        listed = by.hold(listed, offsets)
    num_bytes = int(offsets[-1])
    data = memory(num_bytes) if memory is not None and num_bytes >= LARGE_BYTES else None
    if data is None:
        data = np.empty(num_bytes, np.uint8)
    if copy is None or num_bytes < LARGE_BYTES:
        copy = by.copy
    copy(listed, offsets, data)
    return data, offsets


def _with_row(error: Exception, texts: Sequence[Any]) -> Exception:
    """Find the row of an error, and return the error with its number."""
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            return TypeError(f"row {row} is a {type(text).__name__}; texts are str")
        try:
            text.encode()
        except UnicodeEncodeError as own:
            own.reason = f"{own.reason} (row {row})"
            return own
    return error


def join_in_python(texts: Sequence[str]) -> Joined:
    """Join texts as `join_texts` does, without the extension.

    Short texts are joined and then encoded, since a call for each costs more than a second pass.
    Long texts are encoded one by one, unless all are ASCII and fit into a cache together.
    """
    sample = texts[:: len(texts) // SAMPLE + 1]
    typical = sum(map(len, sample)) // max(1, len(sample))
    fits = typical * len(texts) <= CACHE_BYTES
    if typical >= LONG_TEXT and not (fits and all(map(str.isascii, texts))):
        rows = [*map(str.encode, texts)]
        data = np.frombuffer(b"".join(rows), np.uint8)
        return data, _offsets(map(len, rows), len(rows))
    joined = "".join(texts)
    data = np.frombuffer(joined.encode(), np.uint8)
    lengths: Iterable[int] = map(len, texts)
    if len(data) != len(joined):
        lengths = (len(t) if t.isascii() else len(t.encode()) for t in texts)
    return data, _offsets(lengths, len(texts))


def _offsets(lengths: Iterable[int], num_rows: int) -> NDArray[np.int64]:
    return offsets_from_lengths(np.fromiter(lengths, np.int64, num_rows))


def utf8_size(texts: list[str], most: int, by: Any = native) -> int:
    """Count the UTF-8 bytes of all texts; return -1 if they have more than `most` characters.

    Raises:
        UnicodeEncodeError: a text has a lone surrogate.
    """
    if by is not None:
        counted: int = by.utf8_size(texts, most)
        return counted
    if sum(map(len, texts)) > most:
        return -1
    joined = "".join(texts)
    return len(joined) if joined.isascii() else len(joined.encode())


def wide_rows(texts: Sequence[str], by: Any = native) -> list[int]:
    """Return the numbers of the texts that have a character above U+00FF.

    Without C++ these are the numbers of all texts that are not ASCII.
    """
    if by is None:
        return [row for row, text in enumerate(texts) if not text.isascii()]
    found: list[int] = by.wide_rows(texts if isinstance(texts, list) else list(texts))
    return found


def contiguous_rows(
    data: NDArray[np.uint8], offsets: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes of the rows, contiguous uint8[N], and where each begins, int64[B + 1].

    Raises:
        TypeError: the data are no uint8[N], or the offsets are no integers[B + 1].
        ValueError: offsets begin before 0 or end behind the data.
    """
    if data.dtype != UINT8 or offsets.dtype != INT64 or data.strides != (1,):
        data, offsets = _make_contiguous(data, offsets)
    if not offsets[0] and offsets[-1] == len(data):
        return data, offsets
    if not 0 <= offsets[0] <= offsets[-1] <= len(data):
        raise ValueError(f"offsets go from {offsets[0]} to {offsets[-1]} in {len(data)} bytes")
    return data[offsets[0] : offsets[-1]], offsets - offsets[0]


def _make_contiguous(
    data: NDArray[np.uint8], offsets: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Make contiguous uint8[N] and int64[B + 1] of arrays.

    Raises:
        TypeError: an array has another dtype or shape; the message names it.
    """
    for name, array, kinds, expected in (
        ("data", data, ("u1",), "uint8[N]"),
        ("offsets", offsets, INTEGERS, "int64[B + 1]"),
    ):
        if array.dtype.str[1:] not in kinds or array.ndim != 1:
            raise TypeError(f"{name} are {array.dtype}{list(array.shape)}, not {expected}")
    return np.ascontiguousarray(data), offsets.astype(np.int64, copy=False)
