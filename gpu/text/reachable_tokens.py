"""Finds the tokens that merges reach: those that their own bytes encode to.

All tokens of a vocabulary are merged side by side. Each round merges one pair in each token: the
leftmost one of the lowest rank, as BPE is defined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
RankOf = Callable[[Int64s, Int64s], Int64s]
"""Maps symbols int64[n] and int64[n] to the ranks of their pairs, or NO_MERGE."""

NO_MERGE = 1 << 32
NUM_BYTES = 256
INDEX_BITS = 28


def reachable_symbols(tokens: Sequence[bytes], rank_of: RankOf) -> Int64s:
    """Return int64[T]: the symbol that each token's bytes merge to; -1 where several remain.

    A symbol is a byte's value, or 256 + the rank of the merge that makes it. No token may be empty.
    """
    lengths = np.fromiter(map(len, tokens), np.int64, len(tokens))
    symbols = np.frombuffer(b"".join(tokens), np.uint8).astype(np.int64)
    result = np.full(len(tokens), -1, np.int64)
    owners = np.arange(len(tokens))
    begins = np.cumsum(lengths) - lengths
    single = lengths == 1
    result[single] = symbols[begins[single]]
    ranks = np.full(len(symbols), NO_MERGE, np.int64)
    ranks[:-1] = rank_of(symbols[:-1], symbols[1:])
    ranks[begins + lengths - 1] = NO_MERGE
    while len(owners):
        key = np.minimum.reduceat(ranks << INDEX_BITS | np.arange(len(ranks)), begins)
        active = key >> INDEX_BITS < NO_MERGE
        kept = np.repeat(active, lengths)
        place = (np.cumsum(kept) - 1)[key[active] & (1 << INDEX_BITS) - 1]
        rank = key[active] >> INDEX_BITS
        symbols, ranks, owners, lengths = (
            symbols[kept],
            ranks[kept],
            owners[active],
            lengths[active],
        )
        symbols, ranks = _merge(symbols, ranks, place, NUM_BYTES + rank, rank_of, lengths)
        lengths = lengths - 1
        begins = np.cumsum(lengths) - lengths
        done = lengths == 1
        result[owners[done]] = symbols[begins[done]]
    return result


def _merge(
    symbols: Int64s, ranks: Int64s, place: Int64s, given: Int64s, rank_of: RankOf, lengths: Int64s
) -> tuple[Int64s, Int64s]:
    """Merge the symbols at `place`, one in each token, with their right neighbours."""
    ends = np.cumsum(lengths)
    last = place + 2 == ends
    first = place == ends - lengths
    symbols[place] = given
    ranks[place] = NO_MERGE
    behind = place[~last]
    ranks[behind] = rank_of(symbols[behind], symbols[behind + 2])
    before = place[~first]
    ranks[before - 1] = rank_of(symbols[before - 1], symbols[before])
    kept = np.ones(len(symbols), np.bool_)
    kept[place + 1] = False
    return symbols[kept], ranks[kept]
