"""Lists the ids of characters without a token, so that they are looked up like tokens.

Most pieces of Chinese, Japanese and Korean text that are not a token are one character of three
bytes, alone or after a blank. NumPy only.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from gpu.text.reachable_tokens import NO_MERGE, RankOf

RANGES = ((0x0800, 0x2800), (0x3000, 0x3400), (0x4E00, 0xA000), (0xAC00, 0xD7A4), (0xFF00, 0xFFF0))
"""Code points of scripts and signs with three bytes a character; uncommon ones are omitted."""

MIN_TOKENS = 1 << 13
"""Smaller vocabularies list none, because 10 MB of characters would be most of their tables."""
LISTED_IDS = 1 << 27
LISTED_SHIFT = 22
MAX_IDS = 4
NUM_BYTES = 256
NOTHING = -1


def listed_characters(
    tokens: Collection[bytes], rank_of: RankOf, symbol_ids: NDArray[np.uint32]
) -> tuple[list[bytes], NDArray[np.uint32], NDArray[np.uint32]]:
    """List the pieces of one character that have several ids.

    Args:
        tokens: the tokens that a look-up finds; these pieces are not listed.
        rank_of: finds the rank of two symbols.
        symbol_ids: the id of each symbol.

    Returns:
        The pieces' bytes; their entries uint32[n], LISTED_IDS | number of ids - 2 << LISTED_SHIFT |
        row of the ids; and the ids uint32[n, 4], zeros after them.
    """
    known = frozenset(tokens)
    if len(known) < MIN_TOKENS:
        return [], np.zeros(0, np.uint32), np.zeros((0, MAX_IDS), np.uint32)
    characters = [chr(c).encode() for begin, end in RANGES for c in range(begin, end)]
    pieces = [c for c in characters if c not in known]
    pieces += [piece for piece in (b" " + c for c in characters) if piece not in known]
    rows = np.frombuffer(b"".join(piece.ljust(MAX_IDS, b"\0") for piece in pieces), np.uint8)
    symbols = rows.reshape(-1, MAX_IDS).astype(np.int64)
    lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
    symbols[np.arange(MAX_IDS) >= lengths[:, None]] = NOTHING
    counts = _merge(symbols, rank_of)
    ids = np.where(symbols == NOTHING, 0, symbol_ids[symbols]).astype(np.uint32)
    several = np.flatnonzero(counts > 1)
    found = LISTED_IDS | counts[several] - 2 << LISTED_SHIFT | np.arange(len(several))
    return [pieces[i] for i in several.tolist()], found.astype(np.uint32), ids[several]


def _merge(symbols: NDArray[np.int64], rank_of: RankOf) -> NDArray[np.int64]:
    """Merge each row of int64[n, 4] in place; return int64[n], how many symbols remain."""
    active = np.arange(len(symbols))
    while len(active):
        rows = symbols[active]
        left, right = rows[:, :-1].reshape(-1), rows[:, 1:].reshape(-1)
        there = right != NOTHING
        ranks = np.full((len(active), MAX_IDS - 1), NO_MERGE, np.int64)
        ranks.reshape(-1)[there] = rank_of(left[there], right[there])
        place, lowest = ranks.argmin(axis=1), ranks.min(axis=1)
        merged = lowest != NO_MERGE
        active, rows, place = active[merged], rows[merged], place[merged]
        columns = np.arange(MAX_IDS)
        # The symbols after the place move one to the left.
        moved = np.concatenate([rows[:, 1:], np.full((len(rows), 1), NOTHING)], axis=1)
        rows = np.where(columns > place[:, None], moved, rows)
        rows[np.arange(len(rows)), place] = NUM_BYTES + lowest[merged]
        symbols[active] = rows
    counts: NDArray[np.int64] = np.count_nonzero(symbols != NOTHING, axis=1)
    return counts
