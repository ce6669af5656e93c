"""Makes the tables by which cuda/dna/windows/suffix_state.cuh finds the last token of a text.

The tables are indexed by the last letters of a text. Letters and texts are numbers as in
`last_tokens`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from gpu.dna.compatible_pairs import Pairs
from gpu.dna.last_tokens import DENSE, LATEST, LastTokens
from gpu.kernels.job import constant

UInt32s = NDArray[np.uint32]
UInt64s = NDArray[np.uint64]
Int64s = NDArray[np.int64]

BEFORE_LETTERS, FORWARD_K = constant("BEFORE_LETTERS"), constant("FORWARD_K")
COPIED_K, COPIED_LETTERS = constant("COPIED_K"), constant("COPIED_LETTERS")
COPIED_TOKENS = 6000
"""The largest number of tokens for which `last` is small enough for shared memory."""
COPIED_BEFORE, FORWARD_BEFORE = constant("COPIED_BEFORE"), constant("FORWARD_BEFORE")
MOST_LOOKED, OPEN = constant("MOST_LOOKED"), constant("OPEN")
MOST_OPENED = 1 << 17
"""The largest number of open texts for which more letters are read."""


@dataclass(frozen=True, slots=True, eq=False)
class Endings:
    """The possible last tokens of a text, by its last letters.

    See dna/windows/suffix_state.cuh. A text is open if more than two tokens may be its last one;
    then two more letters are read.

    Attributes:
        k: the number of letters that index `last`.
        levels: how often two more letters may be read.
        is_copied: whether `last` is copied to shared memory.
        last: uint32[4**k, 2], the possible last tokens, see `LastTokens.remaining`.
        opened: uint32[..., 4**2, 2], the same for each open text, by the two letters before it.
        short: uint32[...], left class | length << 16 of the last token of each text of 1 .. k - 1
            letters, from (4**length - 4) / 3 on.
        begins: uint32[open texts + 1], where the tokens of each begin in `listed`.
        listed: uint32[..., 2], the possible last tokens of open texts, the shortest first.
        keys: uint64[..., 2], the letters of tokens of more than k letters, the last letter's bits
            the highest.
    """

    k: int
    levels: int
    is_copied: bool
    last: UInt32s
    opened: UInt32s
    short: UInt32s
    begins: UInt32s
    listed: UInt32s
    keys: UInt64s

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return {Job field: array} for the device."""
        return {
            "ending_last": self.last,
            "ending_opened": self.opened,
            "ending_short": self.short,
            "ending_begins": self.begins,
            "ending_listed": self.listed,
            "ending_keys": self.keys,
        }

    def numbers(self) -> dict[str, int]:
        """Return {Job field: value} for the other fields of the Job."""
        return {"ending_k": self.k, "ending_levels": self.levels}


def endings_of(
    codes: dict[bytes, list[int]], ids: dict[bytes, int], pairs: Pairs
) -> Endings | None:
    """Make the tables of possible last tokens; return None if no token consists only of bases.

    Args:
        codes: the letters of each token that consists of bases alone, see `last_tokens`.
        ids: the ids of these tokens and of mixed ones.
        pairs: the relation of tokens, in the order of `ids`.
    """
    if not codes:
        return None
    longest = max(map(len, codes))
    is_copied = len(codes) <= COPIED_TOKENS and longest <= COPIED_LETTERS
    k = min(COPIED_K if is_copied else FORWARD_K, 2 + len(codes).bit_length() // 2)
    last_tokens = LastTokens(codes, ids, pairs, k, deep=LATEST if is_copied else DENSE)
    levels, lists = _levels(last_tokens, k, COPIED_BEFORE if is_copied else FORWARD_BEFORE)
    return Endings(
        k=k,
        levels=len(levels) - 1,
        is_copied=is_copied,
        last=levels[0],
        opened=np.concatenate([*levels[1:], np.zeros((1, 2), np.uint32)]),
        short=np.concatenate([last_tokens.of_whole(length) for length in range(1, k)]),
        begins=np.cumsum([0, *chain(*(counts for counts, _ in lists))], dtype=np.uint32),
        listed=np.concatenate([items for _, items in lists]),
        keys=last_tokens.keys,
    )


def _levels(
    last_tokens: LastTokens, k: int, most_before: int
) -> tuple[list[UInt32s], list[tuple[Int64s, UInt32s]]]:
    """Return the table of each level, and the counts and tokens listed for its open texts."""
    texts, letters, count, num_listed = np.arange(4**k), k, 0, 0
    levels, lists = [], []
    while True:
        may_be = last_tokens.of(texts, letters)
        level = last_tokens.remaining(texts, letters, may_be)
        levels.append(level)
        is_open = level[:, 1] >= OPEN
        texts, opened = texts[is_open], int(is_open.sum())
        level[is_open, 0] = 4**BEFORE_LETTERS * (count + np.arange(opened))
        counts, items = last_tokens.listed(texts, letters, may_be[is_open])
        level[is_open, 1] |= (num_listed + np.cumsum(counts) - counts).astype(np.uint32)
        lists.append((counts, items))
        num_listed += len(items)
        count += opened
        letters += BEFORE_LETTERS
        if letters > min(k + most_before, MOST_LOOKED) or count > MOST_OPENED:
            return levels, lists
        texts = (texts[:, None] << 2 * BEFORE_LETTERS | np.arange(4**BEFORE_LETTERS)).ravel()
