"""Computes the period of the token borders in a long run of one byte.

Windows of a long piece begin at multiples of it (cuda/text/split/windows.cuh). It is only a hint:
ids are exact with any value.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vocabularies.reference.bpe import BpeRules

MAX_STEP = 128
RUN = 4 * MAX_STEP  # Bytes of the runs that are merged: long enough that their ends do not matter.
NUM_BYTES = 256
NO_RANK = np.iinfo(np.int32).max
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]


def run_steps(rules: BpeRules) -> NDArray[np.uint8]:
    """Return uint8[256]: the period of the borders in a run of each byte; 0 if there is none.

    Example: where a run of "a" becomes aaaa aaaa ..., that of "a" is 4.
    """
    find, steps = rules.token_ids.get, np.zeros(NUM_BYTES, np.uint8)
    ids = [[find(bytes([byte]) * n, -1) for n in range(MAX_STEP + 1)] for byte in range(NUM_BYTES)]
    pairs = [(own[1], own[1]) for own in ids]
    used = [byte for byte, pair in enumerate(pairs) if pair in rules.merges]
    ranks = np.full((len(used), MAX_STEP + 1, MAX_STEP + 1), NO_RANK, np.int32)
    for number, byte in enumerate(used):
        ranks[number] = _ranks_of_run(rules, ids[byte])
    for byte, lengths in zip(used, _merged_lengths(ranks), strict=True):
        steps[byte] = _step_of(np.cumsum(lengths))
    return steps


def _ranks_of_run(rules: BpeRules, ids: list[int]) -> Int32s:
    """Return int32[129, 129]: the rank of two symbols of a run by their lengths."""
    ranks = np.full((MAX_STEP + 1, MAX_STEP + 1), NO_RANK, np.int32)
    lengths = [length for length in range(1, MAX_STEP + 1) if ids[length] >= 0]
    for left in lengths:
        for right in lengths:
            if left + right <= MAX_STEP and (found := rules.merges.get((ids[left], ids[right]))):
                ranks[left, right] = found[0]
    return ranks


def _merged_lengths(ranks: Int32s) -> list[Int32s]:
    """Merge a run of each byte, in rounds of one rank; return the lengths of the symbols."""
    symbols, owner = np.ones(len(ranks) * RUN, np.int32), np.repeat(np.arange(len(ranks)), RUN)
    while True:
        begins = np.flatnonzero(np.diff(owner, prepend=-1))
        if not len(begins):
            return []
        found = ranks[owner, symbols, np.append(symbols[1:], 0)]
        found[np.append(begins[1:], len(symbols)) - 1] = NO_RANK
        lowest = np.minimum.reduceat(found, begins)
        if (lowest == NO_RANK).all():
            return np.split(symbols, begins[1:])
        pairs, place = (found == lowest[owner]) & (found != NO_RANK), np.arange(len(symbols))
        # Of overlapping pairs, merge the first, the third ...
        pairs &= (place - np.maximum.accumulate(np.where(pairs, -1, place))) % 2 == 1
        symbols = np.where(pairs, symbols + np.append(symbols[1:], 0), symbols)
        kept = np.append(True, ~pairs[:-1])
        symbols, owner = symbols[kept], owner[kept]


def _step_of(ends: Int64s) -> int:
    """Return the shortest period of the borders in the first half of a run; 0: there is none."""
    border = np.zeros(RUN + 1, np.bool_)
    border[0] = border[ends] = True
    for step in ends[ends <= MAX_STEP].tolist():
        if (border[step : RUN // 2] == border[: RUN // 2 - step]).all():
            return int(step)
    return 0
