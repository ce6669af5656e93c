"""Which token of a text is the last one: tables of cuda/dna/windows/suffix_state.cuh.

Letters and texts are numbers as in `last_tokens`.
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
"""Up to so many tokens the tables are small enough to be copied."""
COPIED_BEFORE, FORWARD_BEFORE = constant("COPIED_BEFORE"), constant("FORWARD_BEFORE")
MOST_LOOKED, OPEN = constant("MOST_LOOKED"), constant("OPEN")
MOST_OPENED = 1 << 17
"""Texts that are open; where there are more, no more letters are looked at."""


@dataclass(frozen=True, slots=True, eq=False)
class Endings:
    """Last tokens by the letters that a text ends with; see dna/windows/suffix_state.cuh.

    Attributes:
        k: letters that `last` is indexed by.
        levels: how often two letters more are looked at where these leave more than two tokens.
        is_copied: multiprocessors have room for a copy of `last`.
        last: uint32[4**k, 2], what is left of the tokens that end there.
        opened: uint32[..., 4**2, 2], the same by the two letters before, by number.
        short: uint32[...], left class | length << 16 of the last token of each text of 1 .. k - 1
            letters, from (4**length - 4) / 3 on.
        begins: uint32[numbers + 1], where the tokens of each number begin in `listed`.
        listed: uint32[..., 2], tokens that may be the last one, the shortest first.
        keys: uint64[..., 2], the letters of tokens of more than k, the last one's bits the highest.
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
        """By Job field."""
        return {
            "ending_last": self.last,
            "ending_opened": self.opened,
            "ending_short": self.short,
            "ending_begins": self.begins,
            "ending_listed": self.listed,
            "ending_keys": self.keys,
        }

    def numbers(self) -> dict[str, int]:
        """By Job field."""
        return {"ending_k": self.k, "ending_levels": self.levels}


def endings_of(
    codes: dict[bytes, list[int]], ids: dict[bytes, int], pairs: Pairs
) -> Endings | None:
    """The tables of tokens with their letters, and with pairs in the order of `ids`.

    Tokens with other letters are among `ids` and not among `codes`. None where there are no codes.
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
    """What k letters leave, two more where these are open, and so on; what is listed for these."""
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
