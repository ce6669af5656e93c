"""Finds borders at which a row may be split: in front of a blank that follows an ASCII letter.

A pretoken always ends at such a border, except with the pretokenizers that `large.chunking`
excludes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from vocabularies.batch.shared_rows import SharedText

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]
FindBorder = Callable[[Bytes | SharedText, int, int, bool], int | None]
SEARCH_BYTES, MAX_SEARCH_BYTES = 1 << 8, 1 << 18  # At first, and after many doublings.
BLANK, LOWER_A, TO_LOWER = 0x20, np.uint8(0x61), 0x20
NUM_LETTERS = 26


def find_border(data: Bytes | SharedText, begin: int, end: int, from_end: bool) -> int | None:
    """Find the first or the last border with begin <= place < end; None if there is none.

    Args:
        data: uint8[N]; the byte before `begin` is read as well.
        begin: 1 or more.
        end: N or less.
        from_end: whether to find the last border.
    """
    size = SEARCH_BYTES  # In English, borders are a few bytes apart.
    while begin < end:
        low, high = (max(begin, end - size), end) if from_end else (begin, min(end, begin + size))
        found = _borders(data, low, high)
        if len(found):
            return int(found[-1 if from_end else 0])
        begin, end = (begin, low) if from_end else (high, end)
        size = min(2 * size, MAX_SEARCH_BYTES)
    return None


def _borders(data: Bytes | SharedText, begin: int, end: int) -> Int64s:
    """Return all borders with begin <= place < end."""
    text = data[begin - 1 : end]  # Once: a shared one is copied.
    found = text[1:] == BLANK
    if found.any():  # Text without blanks is searched quickly.
        found &= (text[:-1] | TO_LOWER) - LOWER_A < NUM_LETTERS
    places: Int64s = found.nonzero()[0]
    return places + begin
