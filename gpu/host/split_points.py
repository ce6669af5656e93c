"""Where a row may be cut: in front of a blank behind an ASCII letter.

A pretoken ends there whatever is around it; `large.chunking` knows the rules of which that is not
true.
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
    """The first border begin <= place < end, or the last; None: there is none.

    Args:
        data: uint8[N], whose byte in front of `begin` is read, too.
        begin: 1 or more.
        end: N or less.
        from_end: the last one is wanted.
    """
    size = SEARCH_BYTES  # In English it is one of a few places.
    while begin < end:
        low, high = (max(begin, end - size), end) if from_end else (begin, min(end, begin + size))
        found = _borders(data, low, high)
        if len(found):
            return int(found[-1 if from_end else 0])
        begin, end = (begin, low) if from_end else (high, end)
        size = min(2 * size, MAX_SEARCH_BYTES)
    return None


def _borders(data: Bytes | SharedText, begin: int, end: int) -> Int64s:
    """All borders begin <= place < end."""
    text = data[begin - 1 : end]  # Once: a shared one is copied.
    found = text[1:] == BLANK
    if found.any():  # Megabytes of letters or digits without one are passed quickly.
        found &= (text[:-1] | TO_LOWER) - LOWER_A < NUM_LETTERS
    places: Int64s = found.nonzero()[0]
    return places + begin
