"""What runs of one byte become before anything else can merge with them: tables of cuda/runs.cuh.

Lines of dashes, stars and zeros need a merge for almost every byte, and always the same ones. Why
merging may begin behind them is told in gpu/README.md, Head start. Knows no device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["RunTables", "run_tables"]

MIN_RUN, MAX_RUN = 4, 128
LENGTHS = MAX_RUN + 1 - MIN_RUN
MAX_SYMBOLS, WORD_BITS = 12, 22
ROW_WORDS = 2 * MAX_SYMBOLS + 8
NUM_ASCII, FIRST_MERGED = 128, 256
FIRST_RANKS = 4  # One part in so many: later merges come late enough after those of the neighbours.
NO_RANK = 0xFFFFFFFF
Int64s = NDArray[np.int64]
UInt32s = NDArray[np.uint32]
Merges = Mapping[tuple[int, int], tuple[int, int]]


@dataclass(frozen=True, slots=True, eq=False)
class RunTables:
    """The runs of each ASCII byte that has a token of MIN_RUN of them; K such bytes.

    Attributes:
        run_numbers: uint32[128], 1 + the number of a byte, or 0.
        run_rows: uint32[K, LENGTHS, 32], of a run of MIN_RUN bytes or more: 12 symbols |
            length << 22, then 0; 12 ranks of each with the next one; bits of the bytes (of their
            lower 7 bits) behind which it has no head start; of those in front of which it has none.
    """

    run_numbers: UInt32s
    run_rows: UInt32s


@dataclass(frozen=True, slots=True, eq=False)
class Development:
    """How runs are merged, each by itself, by the ranks of a table.

    Attributes:
        symbols: int64[R, MAX_SYMBOLS], lengths of what is left, zeros behind; all zeros where there
            are more of them.
        first, last: int64[R, MAX_RUN + 1], the highest rank that is merged while a symbol of this
            length is the first or the last one; of the one that is left there, the highest of all.
            -1 where it never is.
    """

    symbols: Int64s
    first: Int64s
    last: Int64s


def run_tables(
    tokens: Sequence[bytes | None],
    token_ids: Mapping[bytes, int],
    merges: Merges,
    symbol_ids: UInt32s,
) -> RunTables:
    """The tables of a vocabulary: its tokens, their ids, its merges, and the id of each symbol."""
    bytes_used, ids = _run_ids(token_ids)
    kinds, lengths = np.nonzero(ids >= 0)
    run_of = np.full((len(tokens), 2), -1)  # Of tokens that are runs: number of the byte, length.
    run_of[ids[kinds, lengths]] = np.stack((kinds, lengths), axis=1)
    pairs = np.array([*merges], np.int64).reshape(-1, 2)
    ranks = np.array([*merges.values()], np.int64).reshape(-1, 2)[:, 0]
    left, right = run_of[pairs[:, 0]], run_of[pairs[:, 1]]
    inside = (left[:, 0] >= 0) & (left[:, 0] == right[:, 0])
    inside &= left[:, 1] + right[:, 1] <= MAX_RUN
    table = np.full((len(bytes_used), MAX_RUN + 1, MAX_RUN + 1), NO_RANK)
    table[left[inside, 0], left[inside, 1], right[inside, 1]] = ranks[inside]
    limit = ranks.max(initial=0) // FIRST_RANKS
    development = _develop(np.where(table < limit, table, NO_RANK))
    last_bytes = np.array([token[-1] if token else 0 for token in tokens])[pairs[:, 0]]
    first_bytes = np.array([token[0] if token else 0 for token in tokens])[pairs[:, 1]]
    behind, in_front = (right[:, 0] >= 0) & ~inside, (left[:, 0] >= 0) & ~inside
    unsafe = (
        _unsafe(development.first, right[behind], ranks[behind], last_bytes[behind]),
        _unsafe(development.last, left[in_front], ranks[in_front], first_bytes[in_front]),
    )
    kind, symbols = np.repeat(np.arange(len(bytes_used)), LENGTHS)[:, None], development.symbols
    words = _run_symbols(ids, bytes_used, symbol_ids)[kind, symbols] | symbols << WORD_BITS
    next_symbols = np.append(symbols[:, 1:], np.zeros((len(symbols), 1), np.int64), axis=1)
    rows = np.concatenate((words, table[kind, symbols, next_symbols]), axis=1).astype(np.uint32)
    bits = np.packbits(np.concatenate(unsafe, axis=1), axis=1, bitorder="little").view(np.uint32)
    rows = np.concatenate((rows, bits), axis=1)
    numbers = np.zeros(NUM_ASCII, np.uint32)
    numbers[bytes_used] = 1 + np.arange(len(bytes_used))
    return RunTables(numbers, rows.reshape(len(bytes_used), LENGTHS, ROW_WORDS))


def _run_ids(token_ids: Mapping[bytes, int]) -> tuple[Int64s, Int64s]:
    """The bytes that have runs; int64[K, MAX_RUN + 1] the id of each length of them, or -1."""
    sizes = range(1, MAX_RUN + 1)
    ids = np.array([[token_ids.get(bytes([b]) * n, -1) for n in sizes] for b in range(NUM_ASCII)])
    bytes_used = np.flatnonzero(ids[:, MIN_RUN - 1] >= 0)
    return bytes_used, np.insert(ids[bytes_used], 0, -1, axis=1)


def _run_symbols(ids: Int64s, bytes_used: Int64s, symbol_ids: UInt32s) -> Int64s:
    """int64[K, MAX_RUN + 1]: a symbol of each id, whichever of several; 0 where there is none."""
    merged = symbol_ids[FIRST_MERGED:].astype(np.int64)
    order = np.append(np.argsort(merged, kind="stable"), 0)
    place = order[np.searchsorted(merged, ids, sorter=order[:-1])]
    symbols = np.zeros_like(ids)
    found = np.append(merged, -2)[place] == ids
    symbols[found] = FIRST_MERGED + place[found]
    symbols[:, 1] = bytes_used
    return symbols


def _unsafe(needed: Int64s, runs: Int64s, ranks: Int64s, neighbours: Int64s) -> NDArray[np.bool_]:
    """bool[R, 128]: the bytes beside a run that could merge with it before its own merges are done.

    Args:
        needed: `first` or `last` of a development.
        runs: int64[n, 2], of merges of a run with what is none, the run's number and length.
        ranks: int64[n], the ranks of these merges.
        neighbours: int64[n], the bytes of their other sides that stand beside the run.
    """
    rows = runs[:, :1] * LENGTHS + np.arange(LENGTHS)
    early = needed[rows, runs[:, 1:]] >= ranks[:, None]
    unsafe = np.zeros((len(needed), NUM_ASCII), np.bool_)
    lower_bits = np.broadcast_to(neighbours[:, None] % NUM_ASCII, rows.shape)
    unsafe[rows[early], lower_bits[early]] = True
    return unsafe


def _develop(table: Int64s) -> Development:
    """Merge the runs of all lengths of K bytes; `table`: ranks by number and two lengths.

    In rounds: all pairs of a run's lowest rank, of overlapping ones every other; the leftmost alone
    where what they give is part of a pair of lower rank.
    """
    lengths = np.tile(np.arange(MIN_RUN, MAX_RUN + 1), len(table))
    kinds = np.repeat(np.arange(len(table)), LENGTHS)
    left_over = np.zeros((len(lengths), MAX_SYMBOLS), np.int64)
    first, last = np.full((2, len(lengths), MAX_RUN + 1), -1)
    highest = np.full(len(lengths), -1)
    lowest_with = np.minimum(table.min(axis=1), table.min(axis=2))
    runs, sizes, symbols = np.arange(len(lengths)), lengths, np.ones(lengths.sum(), np.int64)
    while len(runs):
        begins, owner = np.cumsum(sizes) - sizes, np.repeat(np.arange(len(runs)), sizes)
        ends, place = begins + sizes - 1, np.arange(len(symbols))
        ranks = table[kinds[runs][owner], symbols, np.append(symbols[1:], 0)]
        ranks[ends] = NO_RANK
        lowest = np.minimum.reduceat(ranks, begins)
        done = lowest == NO_RANK
        _finish(left_over, symbols, sizes, begins, runs, done)
        pairs = (ranks == lowest[owner]) & ~done[owner]
        pairs &= (place - np.maximum.accumulate(np.where(pairs, -1, place))) % 2 == 1
        given = np.where(pairs, symbols + np.append(symbols[1:], 0), symbols)
        leftmost = np.minimum.reduceat(np.where(pairs, place, len(place)), begins)
        late = ~done
        late[late] = lowest_with[kinds[runs[late]], given[leftmost[late]]] <= lowest[late]
        pairs &= ~late[owner] | (place == leftmost[owner])
        given = np.where(pairs, given, symbols)
        kept = np.append(True, ~pairs[:-1])
        new_last = np.where(kept[ends], given[ends], given[ends - 1])
        highest[runs] = np.maximum(highest[runs], np.where(done, -1, lowest))
        merged = np.where(done, highest[runs], lowest)
        for side, seen in (first, symbols[begins]), (first, given[begins]):
            side[runs, seen] = np.maximum(side[runs, seen], merged)
        for side, seen in (last, symbols[ends]), (last, new_last):
            side[runs, seen] = np.maximum(side[runs, seen], merged)
        kept &= ~done[owner]
        symbols, runs = given[kept], runs[~done]
        sizes = np.bincount(owner[kept], minlength=len(done))[~done]
    return Development(left_over, first, last)


def _finish(
    left_over: Int64s,
    symbols: Int64s,
    sizes: Int64s,
    begins: Int64s,
    runs: Int64s,
    done: NDArray[np.bool_],
) -> None:
    """Write down what is left of the runs that are done, where it is not too much."""
    done = done & (sizes <= MAX_SYMBOLS)
    column = np.arange(MAX_SYMBOLS)
    here = column < sizes[done, None]
    places = np.where(here, begins[done, None] + column, 0)
    left_over[runs[done]] = np.where(here, symbols[places], 0)
