"""What runs of one byte become first of all: tables of cuda/text/merge/byte_runs.cuh.

Lines of dashes, stars and zeros need a merge for almost every byte, and always the same ones. Why
merging may begin behind them is told in docs/internals/text-bpe.md. Knows no device.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vocabularies.reference.bpe import BpeRules

MIN_RUN, MAX_RUN = 4, 128
LENGTHS = MAX_RUN + 1 - MIN_RUN
MAX_SYMBOLS, WORD_BITS = 12, 22
ROW_WORDS = 2 * MAX_SYMBOLS + 8
NUM_ASCII, FIRST_MERGED = 128, 256
FIRST_RANKS = 4  # One part in so many: later merges come late enough after those of the neighbours.
NO_RANK, UNUSED = 0xFFFFFFFF, 0x7FFFFFFF
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
UInt32s = NDArray[np.uint32]
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class RunTables:
    """The runs of K bytes: of ASCII, and merged to four of them by the first merges.

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
        symbols: int32[R, MAX_SYMBOLS], lengths of what is left, zeros behind; all zeros where there
            are more of them.
        first, last: int32[R, MAX_RUN + 1], the highest rank that is merged while a symbol of this
            length is the first or the last one; of the one that is left there, the highest of all.
            -1 where it never is.
    """

    symbols: Int32s
    first: Int32s
    last: Int32s


def run_tables(
    rules: BpeRules,
    pairs: UInt32s,
    ranks: UInt32s,
    symbol_ids: UInt32s,
    token_bytes: Bytes,
    begins: UInt32s,
) -> RunTables:
    """The tables of a vocabulary.

    Args:
        rules: its tokens and merges.
        pairs: uint32[M, 2], the ids of the merges' parts.
        ranks: uint32[M], the ranks of these merges.
        symbol_ids: uint32[256 + M], the id of each symbol.
        token_bytes: uint8[N], the bytes of all ids joined.
        begins: uint32[V + 1], where each id's bytes begin.
    """
    limit = int(ranks.max(initial=0)) // FIRST_RANKS
    bytes_used, ids = _run_ids(rules, limit)
    number, length = np.nonzero(ids >= 0)
    run_of = np.full((len(begins) - 1, 2), -1)  # Of a token: number of its byte, length of the run.
    run_of[ids[number, length]] = np.stack((number, length), axis=1)
    left, right = run_of[pairs[:, 0]], run_of[pairs[:, 1]]
    inside = (left[:, 0] >= 0) & (left[:, 0] == right[:, 0])
    inside &= left[:, 1] + right[:, 1] <= MAX_RUN
    table = np.full((len(bytes_used), MAX_RUN + 1, MAX_RUN + 1), NO_RANK, np.uint32)
    table[left[inside, 0], left[inside, 1], right[inside, 1]] = ranks[inside]
    development = _develop(np.where(table < limit, table, UNUSED).astype(np.int32))
    behind, in_front = (right[:, 0] >= 0) & ~inside, (left[:, 0] >= 0) & ~inside
    last_bytes = token_bytes[begins[pairs[behind, 0] + 1] - 1]
    first_bytes = token_bytes[begins[pairs[in_front, 1]]]
    unsafe = (
        _unsafe(development.first, right[behind], ranks[behind], last_bytes),
        _unsafe(development.last, left[in_front], ranks[in_front], first_bytes),
    )
    kind, symbols = np.repeat(np.arange(len(bytes_used)), LENGTHS)[:, None], development.symbols
    words = _run_symbols(ids, bytes_used, symbol_ids)[kind, symbols] | symbols << WORD_BITS
    next_symbols = np.append(symbols[:, 1:], np.zeros((len(symbols), 1), np.int32), axis=1)
    bits = np.packbits(np.concatenate(unsafe, axis=1), axis=1, bitorder="little").view(np.uint32)
    rows = (words.astype(np.uint32), table[kind, symbols, next_symbols], bits)
    numbers = np.zeros(NUM_ASCII, np.uint32)
    numbers[bytes_used] = 1 + np.arange(len(bytes_used))
    shape = len(bytes_used), LENGTHS, ROW_WORDS
    return RunTables(numbers, np.concatenate(rows, axis=1).reshape(shape))


def _run_ids(rules: BpeRules, limit: int) -> tuple[Int64s, Int64s]:
    """The bytes that have runs; int64[K, MAX_RUN + 1] the id of each length of them, or -1."""
    find = rules.token_ids.get
    pairs = [find(bytes([byte, byte]), -1) for byte in range(NUM_ASCII)]
    ranks = [rules.merges.get((pair, pair), (limit, 0))[0] for pair in pairs]
    bytes_used = np.array([byte for byte, rank in enumerate(ranks) if rank < limit], np.int64)
    ids = [[find(bytes([byte]) * n, -1) for n in range(1, MAX_RUN + 1)] for byte in bytes_used]
    table = np.full((len(ids), MAX_RUN + 1), -1)
    table[:, 1:] = np.array(ids, np.int64).reshape(len(ids), MAX_RUN)
    return bytes_used, table


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


def _unsafe(needed: Int32s, runs: Int64s, ranks: UInt32s, neighbours: Bytes) -> NDArray[np.bool_]:
    """bool[R, 128]: the bytes beside a run that could merge with it before its own merges are done.

    Args:
        needed: `first` or `last` of a development.
        runs: int64[n, 2], of merges of a run with what is none, the run's number and length.
        ranks: uint32[n], the ranks of these merges.
        neighbours: uint8[n], the bytes of their other sides that stand beside the run.
    """
    rows = runs[:, :1] * LENGTHS + np.arange(LENGTHS)
    early = needed[rows, runs[:, 1:]] >= ranks[:, None]
    unsafe = np.zeros((len(needed), NUM_ASCII), np.bool_)
    lower_bits = np.broadcast_to(neighbours[:, None] % NUM_ASCII, rows.shape)
    unsafe[rows[early], lower_bits[early]] = True
    return unsafe


def _develop(table: Int32s) -> Development:
    """Merge the runs of all lengths of K bytes; `table`: ranks by number and two lengths.

    In rounds: all pairs of a run's lowest rank, of overlapping ones every other; the leftmost alone
    where what they give is part of a pair of lower rank.
    """
    lengths = np.tile(np.arange(MIN_RUN, MAX_RUN + 1), len(table))
    kinds = np.repeat(np.arange(len(table)), LENGTHS)
    left_over = np.zeros((len(lengths), MAX_SYMBOLS), np.int32)
    first, last = np.full((2, len(lengths), MAX_RUN + 1), -1, np.int32)
    highest = np.full(len(lengths), -1, np.int32)
    lowest_with = np.minimum(table.min(axis=1), table.min(axis=2))
    runs, sizes, symbols = np.arange(len(lengths)), lengths, np.ones(lengths.sum(), np.int32)
    while len(runs):
        begins, owner = np.cumsum(sizes) - sizes, np.repeat(np.arange(len(runs)), sizes)
        ends, place = begins + sizes - 1, np.arange(len(symbols))
        ranks = table[kinds[runs][owner], symbols, np.append(symbols[1:], 0)]
        ranks[ends] = UNUSED
        lowest = np.minimum.reduceat(ranks, begins)
        done = lowest == UNUSED
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
    left_over: Int32s,
    symbols: Int32s,
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
