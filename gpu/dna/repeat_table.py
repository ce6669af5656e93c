"""The last tokens of texts that repeat up to four letters: a table of cuda/dna/parts/repeats.cuh.

NumPy only. A text has a period p if each of its letters is the one p letters before it. Texts of
period 1 and 2 have period 4, so that there are tables for the periods 4 and 3. A text of
period p is identified by p, its last p letters and its length.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu.dna.compatible_pairs import Pairs
from gpu.kernels.job import constant

UInt32s = NDArray[np.uint32]
Int64s = NDArray[np.int64]

REPEAT_LENGTHS, MAX_LETTERS = constant("REPEAT_LENGTHS"), constant("MAX_LETTERS")
MAX_TOKEN_PERIOD = REPEAT_LENGTHS - 2 * MAX_LETTERS


def repeat_table(codes: dict[bytes, list[int]], ids: dict[bytes, int], pairs: Pairs) -> UInt32s:
    """Return the last tokens of texts of period 4, and then of period 3.

    Args:
        codes: tokens with their letters as numbers of two bits.
        ids: the tokens in the order of `pairs`; those of `codes` are among them.
        pairs: which tokens are compatible.

    Returns:
        uint32[256 + 64, REPEAT_LENGTHS], left class | length << 16 of the last token, by the text's
        latest letters, the first one's bits the lowest, and by its length; 0 if it is shorter
        than its period. Column 0 has the period of last tokens after the last column, 0 if none
        was found.
    """
    return np.concatenate([_texts_of_period(period, codes, ids, pairs) for period in (4, 3)])


def _texts_of_period(
    period: int, codes: dict[bytes, list[int]], ids: dict[bytes, int], pairs: Pairs
) -> UInt32s:
    """Return the rows of one period."""
    order = {token: number for number, token in enumerate(ids)}
    by_letters = {bytes(letters): order[token] for token, letters in codes.items()}
    ends, before = _ends(period, by_letters)
    left, right = pairs.left.astype(np.int64), pairs.right.astype(np.int64)[ends]
    token_lengths = np.arange(1, MAX_LETTERS + 1)
    last_length = np.zeros((4**period, REPEAT_LENGTHS), np.int64)
    last_class = np.zeros((4**period, REPEAT_LENGTHS), np.int64)  # Left; 0: nothing is in front.
    for length in range(1, REPEAT_LENGTHS):
        tried = token_lengths[:length]
        in_front = last_class[before[:, : len(tried)], length - tried]
        behind = right[:, : len(tried)]
        may = pairs.bits[in_front, behind // 32] >> (behind % 32).astype(np.uint32) & 1
        may = (may == 1) & (ends[:, : len(tried)] >= 0) & ((in_front > 0) | (tried == length))
        last_length[:, length] = may.argmax(axis=1) + 1
        last_class[:, length] = left[ends[np.arange(4**period), last_length[:, length] - 1]]
    table = last_class | last_length << 16
    table[:, :period] = 0
    table[:, 0] = _token_periods(table, before[:, :period])
    return np.asarray(table, np.uint32)


def _ends(period: int, by_letters: dict[bytes, int]) -> tuple[Int64s, Int64s]:
    """Return the tokens that texts end with, and the latest letters in front of these.

    Both are int64[4**period, MAX_LETTERS], by the text's latest letters and the token's length - 1;
    -1 where no token has these letters.
    """
    ends = np.full((4**period, MAX_LETTERS), -1, np.int64)
    before = np.zeros_like(ends)
    for latest in range(4**period):
        letters = [latest >> 2 * i & 3 for i in range(period)]
        text = bytes(letters * (MAX_LETTERS // period + 2))
        for length in range(1, MAX_LETTERS + 1):
            ends[latest, length - 1] = by_letters.get(text[-length:], -1)
            in_front = text[: len(text) - length][-period:]
            before[latest, length - 1] = sum(code << 2 * i for i, code in enumerate(in_front))
    return ends, before


def _token_periods(table: Int64s, rotations: Int64s) -> Int64s:
    """Return the period with which the columns of each row repeat from the last one on; 0: none.

    The last token of a text follows from the last tokens of the MAX_LETTERS places before it. These
    belong to texts that end with a rotation of the same letters; `rotations`, int64[rows, period],
    has their rows. So a period that all of them show in MAX_LETTERS columns never ends.
    """
    alike = np.unique(np.sort(rotations, axis=1), axis=0, return_inverse=True)[1].ravel()
    latest = table[:, REPEAT_LENGTHS - MAX_LETTERS :]
    periods = np.zeros(len(table), np.int64)
    for period in range(MAX_TOKEN_PERIOD - 1, 0, -1):
        earlier = table[:, REPEAT_LENGTHS - MAX_LETTERS - period : REPEAT_LENGTHS - period]
        differs = np.bincount(alike, (latest != earlier).any(axis=1))
        periods[differs[alike] == 0] = period
    return periods
