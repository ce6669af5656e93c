"""Computes the reverse complement of every sequence of a batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BLOCK_BYTES = 1 << 22  # Bounds the memory of the index, 8 bytes for each base, to 32 MiB.

_PAIRS = ("AT", "CG", "RY", "KM", "BV", "DH", "SS", "WW", "NN")


def _complement_table() -> NDArray[np.uint8]:
    table = np.arange(256, dtype=np.uint8)
    for pairs in (_PAIRS, [pair.lower() for pair in _PAIRS]):
        for pair in pairs:
            first, second = pair.encode()
            table[first], table[second] = second, first
    table[ord("U")], table[ord("u")] = ord("A"), ord("a")
    table.flags.writeable = False
    return table


COMPLEMENT = _complement_table()
"""The complement of each byte, uint8[256]: IUPAC codes (U to A) keep their case."""


def reverse_complement(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Compute the reverse complement of each row; the order of the rows does not change.

    Args:
        data: uint8[N], the rows joined.
        offsets: int64[B + 1], where each row begins; the first entry is 0, the last N.

    Returns:
        uint8[N], a new array with the same offsets.

    Example: rows AACG and TT become CGTT and AA.
    """
    num_bytes = len(data)
    assert int(offsets[0]) == 0
    assert int(offsets[-1]) == num_bytes
    opposite = np.empty(num_bytes, np.uint8)
    # Byte i of a row becomes the complement of byte mirror - i.
    mirrors = offsets[:-1] + offsets[1:] - 1
    for first in range(0, num_bytes, BLOCK_BYTES):
        last = min(first + BLOCK_BYTES, num_bytes)
        begin_row = int(np.searchsorted(offsets, first, side="right")) - 1
        end_row = int(np.searchsorted(offsets, last, side="left"))
        borders = np.clip(offsets[begin_row : end_row + 1], first, last)
        index = np.repeat(mirrors[begin_row:end_row], np.diff(borders))
        index -= np.arange(first, last)
        np.take(COMPLEMENT, data[index], out=opposite[first:last])
    return opposite
