"""Makes the tables of cuda/text/merge/byte_runs.cuh: the first merges of runs of one byte.

Lines of dashes, stars or zeros need a merge for almost every byte, always the same ones. So merging
starts with their result; docs/internals/text-bpe.md proves when this is exact.
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
FIRST_RANKS = 4  # Only the first quarter of the ranks is merged in advance.
NO_RANK, UNUSED = 0xFFFFFFFF, 0x7FFFFFFF
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
UInt32s = NDArray[np.uint32]
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class RunTables:
    """The results of merging runs of K different bytes; each is ASCII and merges early.

    Attributes:
        run_numbers: uint32[128], 1 + the number of a byte among the K, or 0.
        run_rows: uint32[K, LENGTHS, 32], for each run of MIN_RUN bytes or more: 12 symbols |
            length << 22, zeros after them; 12 ranks of each symbol with the next one; a bit for
            each byte (its lower 7 bits) after which the table must not be used; and one for each
            byte before which it must not.
    """

    run_numbers: UInt32s
    run_rows: UInt32s


@dataclass(frozen=True, slots=True, eq=False)
class MergedRuns:
    """The results of merging R runs, each by itself.

    Attributes:
        symbols: int32[R, MAX_SYMBOLS], the lengths of the symbols that remain, zeros after them;
            all zeros where more symbols remain.
        first, last: int32[R, MAX_RUN + 1], for each length of a symbol: the highest rank that is
            merged while the first (or last) symbol has this length. For the final symbol, it is
            the highest rank of all merges; for a length that never occurs there, -1.
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
    """Make the tables of a vocabulary.

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
    merged_runs = _merge_runs(np.where(table < limit, table, UNUSED).astype(np.int32))
    behind, in_front = (right[:, 0] >= 0) & ~inside, (left[:, 0] >= 0) & ~inside
    last_bytes = token_bytes[begins[pairs[behind, 0] + 1] - 1]
    first_bytes = token_bytes[begins[pairs[in_front, 1]]]
    unsafe = (
        _unsafe(merged_runs.first, right[behind], ranks[behind], last_bytes),
        _unsafe(merged_runs.last, left[in_front], ranks[in_front], first_bytes),
    )
    kind, symbols = np.repeat(np.arange(len(bytes_used)), LENGTHS)[:, None], merged_runs.symbols
    words = _run_symbols(ids, bytes_used, symbol_ids)[kind, symbols] | symbols << WORD_BITS
    next_symbols = np.append(symbols[:, 1:], np.zeros((len(symbols), 1), np.int32), axis=1)
    bits = np.packbits(np.concatenate(unsafe, axis=1), axis=1, bitorder="little").view(np.uint32)
    rows = (words.astype(np.uint32), table[kind, symbols, next_symbols], bits)
    numbers = np.zeros(NUM_ASCII, np.uint32)
    numbers[bytes_used] = 1 + np.arange(len(bytes_used))
    shape = len(bytes_used), LENGTHS, ROW_WORDS
    return RunTables(numbers, np.concatenate(rows, axis=1).reshape(shape))


def _run_ids(rules: BpeRules, limit: int) -> tuple[Int64s, Int64s]:
    """Return the K bytes that have runs, and their ids by length, int64[K, MAX_RUN + 1], or -1."""
    find = rules.token_ids.get
    pairs = [find(bytes([byte, byte]), -1) for byte in range(NUM_ASCII)]
    ranks = [rules.merges.get((pair, pair), (limit, 0))[0] for pair in pairs]
    bytes_used = np.array([byte for byte, rank in enumerate(ranks) if rank < limit], np.int64)
    ids = [[find(bytes([byte]) * n, -1) for n in range(1, MAX_RUN + 1)] for byte in bytes_used]
    table = np.full((len(ids), MAX_RUN + 1), -1)
    table[:, 1:] = np.array(ids, np.int64).reshape(len(ids), MAX_RUN)
    return bytes_used, table


def _run_symbols(ids: Int64s, bytes_used: Int64s, symbol_ids: UInt32s) -> Int64s:
    """Return int64[K, MAX_RUN + 1]: a symbol of each id, any of several; 0 if there is none."""
    merged = symbol_ids[FIRST_MERGED:].astype(np.int64)
    order = np.append(np.argsort(merged, kind="stable"), 0)
    place = order[np.searchsorted(merged, ids, sorter=order[:-1])]
    symbols = np.zeros_like(ids)
    found = np.append(merged, -2)[place] == ids
    symbols[found] = FIRST_MERGED + place[found]
    symbols[:, 1] = bytes_used
    return symbols


def _unsafe(needed: Int32s, runs: Int64s, ranks: UInt32s, neighbours: Bytes) -> NDArray[np.bool_]:
    """Return bool[R, 128]: the bytes beside a run that could merge with it too early.

    That is before the merges of the run itself are done.

    Args:
        needed: `first` or `last` of MergedRuns.
        runs: int64[n, 2], the number and length of the run in each merge of a run with another
            symbol.
        ranks: uint32[n], the ranks of these merges.
        neighbours: uint8[n], the byte of the other symbol that is next to the run.
    """
    rows = runs[:, :1] * LENGTHS + np.arange(LENGTHS)
    early = needed[rows, runs[:, 1:]] >= ranks[:, None]
    unsafe = np.zeros((len(needed), NUM_ASCII), np.bool_)
    lower_bits = np.broadcast_to(neighbours[:, None] % NUM_ASCII, rows.shape)
    unsafe[rows[early], lower_bits[early]] = True
    return unsafe


def _merge_runs(table: Int32s) -> MergedRuns:
    """Merge the runs of all lengths of K bytes; `table`: ranks by number and two lengths.

    Each round merges all pairs of a run's lowest rank, and every other one of overlapping pairs. It
    merges only the leftmost pair where the result is part of a pair of lower rank.
    """
    lengths = np.tile(np.arange(MIN_RUN, MAX_RUN + 1), len(table))
    kinds = np.repeat(np.arange(len(table)), LENGTHS)
    remaining = np.zeros((len(lengths), MAX_SYMBOLS), np.int32)
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
        _finish(remaining, symbols, sizes, begins, runs, done)
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
    return MergedRuns(remaining, first, last)


def _finish(
    remaining: Int32s,
    symbols: Int32s,
    sizes: Int64s,
    begins: Int64s,
    runs: Int64s,
    done: NDArray[np.bool_],
) -> None:
    """Store the symbols of the runs that are done, unless there are too many."""
    done = done & (sizes <= MAX_SYMBOLS)
    column = np.arange(MAX_SYMBOLS)
    here = column < sizes[done, None]
    places = np.where(here, begins[done, None] + column, 0)
    remaining[runs[done]] = np.where(here, symbols[places], 0)
