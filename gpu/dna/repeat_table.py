"""The last token of texts that repeat up to four letters: a table of cuda/dna/parts/repeats.cuh.

NumPy only. A text is known by its latest letters, four of them where it repeats one, two or four,
three where it repeats three, and by its length.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu.dna.compatible_pairs import Pairs
from gpu.kernels.job import constant

__all__ = ["repeats_of"]

UInt32s = NDArray[np.uint32]
Int64s = NDArray[np.int64]

PLACES, MAX_LETTERS = constant("REPEAT_PLACES"), constant("MAX_LETTERS")
MOST_PERIOD = PLACES - 2 * MAX_LETTERS


def repeats_of(codes: dict[bytes, list[int]], ids: dict[bytes, int], pairs: Pairs) -> UInt32s:
    """Last tokens by the latest letters, the first one's bits the lowest, and by length.

    Args:
        codes: tokens with their letters as numbers of two bits.
        ids: the tokens in the order of `pairs`; those of `codes` are among them.
        pairs: which tokens are compatible.

    Returns:
        uint32[256 + 64, PLACES], left class | letters << 16; 0 where the latest letters are more
        than there are. Column 0 has the period of what is behind the last column, 0 if there is
        none.
    """
    return np.concatenate([_of_units(letters, codes, ids, pairs) for letters in (4, 3)])


def _of_units(
    unit: int, codes: dict[bytes, list[int]], ids: dict[bytes, int], pairs: Pairs
) -> UInt32s:
    """The rows of texts that repeat so many letters."""
    numbers = {token: number for number, token in enumerate(ids)}
    by_letters = {bytes(letters): numbers[token] for token, letters in codes.items()}
    ends, before = _ends(unit, by_letters)
    left, right = pairs.left.astype(np.int64), pairs.right.astype(np.int64)[ends]
    lengths = np.arange(1, MAX_LETTERS + 1)
    last = np.zeros((4**unit, PLACES), np.int64)  # The number of letters.
    classes = np.zeros((4**unit, PLACES), np.int64)  # Left ones; 0: nothing stands in front.
    for length in range(1, PLACES):
        tried = lengths[:length]
        stands = classes[before[:, : len(tried)], length - tried]
        asked = right[:, : len(tried)]
        may = pairs.bits[stands, asked // 32] >> (asked % 32).astype(np.uint32) & 1
        may = (may == 1) & (ends[:, : len(tried)] >= 0) & ((stands > 0) | (tried == length))
        last[:, length] = may.argmax(axis=1) + 1
        classes[:, length] = left[ends[np.arange(4**unit), last[:, length] - 1]]
    table = classes | last << 16
    table[:, :unit] = 0
    table[:, 0] = _periods(table, before[:, :unit])
    return np.asarray(table, np.uint32)


def _ends(unit: int, by_letters: dict[bytes, int]) -> tuple[Int64s, Int64s]:
    """[4**unit, MAX_LETTERS]: the token that a text ends with, -1 for none, by its letters.

    And the latest letters of what is in front of it.
    """
    ends = np.full((4**unit, MAX_LETTERS), -1, np.int64)
    before = np.zeros_like(ends)
    for latest in range(4**unit):
        letters = [latest >> 2 * i & 3 for i in range(unit)]
        text = bytes(letters * (MAX_LETTERS // unit + 2))
        for length in range(1, MAX_LETTERS + 1):
            ends[latest, length - 1] = by_letters.get(text[-length:], -1)
            front = text[: len(text) - length][-unit:]
            before[latest, length - 1] = sum(code << 2 * i for i, code in enumerate(front))
    return ends, before


def _periods(table: Int64s, rotations: Int64s) -> Int64s:
    """After how many letters the last columns repeat: for as many as tokens have, they do for ever.

    For a last token follows from those of places at most MAX_LETTERS in front of it, of texts that
    end with the rotations of the latest letters: [rows, unit], each of them once.
    """
    alike = np.unique(np.sort(rotations, axis=1), axis=0, return_inverse=True)[1].ravel()
    behind = table[:, PLACES - MAX_LETTERS :]
    periods = np.zeros(len(table), np.int64)
    for period in range(MOST_PERIOD - 1, 0, -1):
        earlier = table[:, PLACES - MAX_LETTERS - period : PLACES - period]
        differs = np.bincount(alike, (behind != earlier).any(axis=1))
        periods[differs[alike] == 0] = period
    return periods
