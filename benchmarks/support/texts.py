"""Texts as bytes in rows, with the places where they may be split without changing ids.

This module depends on no corpus, vocabulary or engine.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]
BORDER_EVERY = 1 << 16
BLANK, CASE = 0x20, 0x20


@dataclass(frozen=True, eq=False)
class Text:
    """Bytes in rows.

    Attributes:
        data: uint8[N], UTF-8.
        offsets: int64[B + 1], where rows begin.
        borders: int64[K + 1], where texts begin that may be encoded one by one, because their ids
            joined are the ids of the rows: the rows themselves, or parts of a long row.
    """

    name: str
    data: Bytes
    offsets: Int64s
    borders: Int64s

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 of the bytes."""
        return hashlib.sha256(self.data.data).hexdigest()

    @cached_property
    def digest(self) -> str:
        """The digest of the bytes, rows and borders together."""
        parts = (self.sha256.encode(), self.offsets.tobytes(), self.borders.tobytes())
        return hashlib.sha256(b"".join(parts)).hexdigest()

    @property
    def rows_are_texts(self) -> bool:
        """Return whether the reference libraries also encode each row as a whole."""
        return self.borders is self.offsets


def one_row(name: str, data: Bytes) -> Text:
    """Make a text of one row."""
    return Text(name, data, np.array([0, len(data)], np.int64), borders_in(data))


def repeated(text: Text, times: int) -> Text:
    """Repeat the rows, whose ids repeat accordingly."""
    whole = np.arange(times)[:, None] * len(text.data) + text.offsets[None, :-1]
    offsets = np.append(whole, times * len(text.data)).astype(np.int64)
    return Text(text.name, np.tile(text.data, times), offsets, offsets)


def borders_in(data: Bytes) -> Int64s:
    """Find about every 64 KiB a border between an ASCII letter and a blank after it.

    Every rule that is timed here ends a pretoken there, whatever stands around.
    """
    letters = ((data[:-1] | CASE) >= ord("a")) & ((data[:-1] | CASE) <= ord("z"))
    places = np.flatnonzero(letters & (data[1:] == BLANK)) + 1
    targets = np.arange(BORDER_EVERY, len(data), BORDER_EVERY)
    found = np.searchsorted(places, targets)
    inner = places[found[found < len(places)]]
    return np.unique(np.concatenate(([0], inner, [len(data)]))).astype(np.int64)


def character_begins(data: Bytes, places: Int64s) -> Int64s:
    """Move each place back to where its character begins."""
    moved = places.copy()
    for _ in range(3):
        inside = (moved > 0) & (moved < len(data))
        moved[inside] -= data[moved[inside]] & 0xC0 == 0x80
    return moved


def cut_rows(name: str, data: Bytes, num_rows: int, row_bytes: int) -> Text:
    """Cut the first bytes into rows of about `row_bytes`, whole characters each."""
    places = np.arange(num_rows + 1, dtype=np.int64) * row_bytes
    offsets = character_begins(data, np.minimum(places, len(data)))
    return Text(name, data[: int(offsets[-1])], offsets, offsets)
