"""Shuffles the rows of a shard with a seed; the order is the same on every machine.

Rows are sorted by a hash of their number, so that the order does not depend on the random generator
of a library. The ids are stored on disk; memory contains a few numbers for each row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.corpus.documents import Int64s, Rows
from service.corpus.writing.shard_files import ShardPlan, ShardWriter, WrittenFile
from vocabularies.batch.ragged import ragged_indices

PIECE_TOKENS = 1 << 20
STEP, FACTORS = 0x9E3779B97F4A7C15, ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def shuffled_order(num_rows: int, seed: int) -> Int64s:
    """Return row numbers, sorted by their hashes, which splitmix64 computes from the seed.

    Source: Steele, Lea, Flood, 2014.
    """
    values = np.arange(1, num_rows + 1, dtype=np.uint64) * np.uint64(STEP)
    values += hash_number(seed)
    for shift, factor in FACTORS:
        values = (values ^ (values >> np.uint64(shift))) * np.uint64(factor)
    values ^= values >> np.uint64(31)
    return np.argsort(values, kind="stable")


def hash_number(seed: int) -> NDArray[np.uint64]:
    """Hash a seed, so that consecutive seeds lead to unrelated orders."""
    value = np.full(1, seed % 2**64, np.uint64)
    for shift, factor in FACTORS:
        value = (value ^ (value >> np.uint64(shift))) * np.uint64(factor)
    return value


class ShuffledWriter:
    """Stores the rows of a shard, and finally passes them to another writer in shuffled order.

    Args:
        plan: the parameters of the shard.
        writer: the other writer.
        seed: determines the order.
    """

    def __init__(self, plan: ShardPlan, writer: ShardWriter, seed: int) -> None:
        self._writer = writer
        self._seed = seed
        self._ids = plan.spool("unshuffled", plan.id_dtype)
        self._mask = plan.spool("unshuffled_mask", np.uint8) if plan.has_mask else None
        self._lengths = plan.spool("unshuffled_lengths", np.int32)

    def write(self, rows: Rows) -> None:
        """Store rows."""
        self._ids.write(rows.ids)
        self._lengths.write(np.diff(rows.offsets))
        if self._mask is not None and rows.mask is not None:
            self._mask.write(rows.mask)

    def finish(self) -> list[WrittenFile]:
        """Write the rows in shuffled order, and rename the files to their final names."""
        none = np.zeros(0, np.int32)
        lengths = np.concatenate([none, *self._lengths.read()]).astype(np.int64)
        begins = np.cumsum(lengths) - lengths
        order = shuffled_order(len(lengths), self._seed)
        if self._ids.num_items:
            self._write_all(begins[order], lengths[order])
        elif len(lengths):
            mask = None if self._mask is None else np.zeros(0, np.uint8)
            self._writer.write(make_piece(np.zeros(0, np.int32), lengths, mask))
        self._remove()
        return self._writer.finish()

    def _write_all(self, begins: Int64s, lengths: Int64s) -> None:
        ids = self._ids.mapped()
        mask = None if self._mask is None else self._mask.mapped()
        ends = np.cumsum(lengths)
        first = 0
        while first < len(lengths):
            done = int(ends[first] - lengths[first])
            last = max(first + 1, int(np.searchsorted(ends, done + PIECE_TOKENS, side="right")))
            # An index of a long row would take four times the memory of the row.
            index: slice | Int64s = slice(begins[first], begins[first] + lengths[first])
            if last > first + 1:
                index = ragged_indices(begins[first:last], lengths[first:last])
            piece_mask = None if mask is None else mask.items[index]
            self._writer.write(make_piece(ids.items[index], lengths[first:last], piece_mask))
            ids.forget()
            if mask is not None:
                mask.forget()
            first = last

    def abandon(self) -> None:
        """Remove the files of the shard."""
        self._remove()
        self._writer.abandon()

    def _remove(self) -> None:
        for spool in (self._ids, self._mask, self._lengths):
            if spool is not None:
                spool.remove()


def make_piece(
    ids: NDArray[np.integer[Any]],
    lengths: Int64s,
    mask: NDArray[np.uint8] | None,
) -> Rows:
    """Make rows without places, which writers do not need, of joined ids and lengths int64[R]."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    none = np.zeros(len(lengths), np.int64)
    return Rows(ids, offsets, none, none, none, np.zeros(len(offsets), np.int64), mask)
