"""Computes indices of ragged arrays: rows of different lengths, one after another in one array."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]


def ragged_indices(begins: Int64s, counts: Int64s, step: int = 1) -> Int64s:
    """Join the indices begins[i] + step * (0 .. counts[i] - 1) of all i.

    Example: begins 5 0 and counts 2 3 give 5 6 0 1 2.
    """
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    index = np.repeat(begins - step * (ends - counts), counts)
    index += np.arange(0, step * total, step)
    return index


def offsets_from_lengths(lengths: Int64s) -> Int64s:
    """Return where each of int64[B] rows begins in the joined rows, int64[B + 1]."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
