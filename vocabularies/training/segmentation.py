"""The tokens of a corpus after the merges so far; a merge updates only the pairs that it changes.

The total time of all merges is proportional to the number of letters, not to the number of merges,
because each merged occurrence removes a token. This module does not depend on motif files, options
or vocabularies.

A slot holds a letter or a barrier. There are barriers around every sequence and in place of unknown
letters.

    slots        |   A   C   G   T   A   |       after AC (4), ACG (5):
    first       -1   0   1   2   3   0  -1      -1   5   .   .   3   0  -1
    last        -1   0   1   2   3   0  -1      -1   .   .   5   3   0  -1

`first` has a token's id in the slot where it begins, `last` in the slot where it ends. So the
neighbours of a token at slot p are found without links: the next token begins at p + length, and
the previous one ends at p - 1.

All occurrences of a pair are created by one merge, the one that creates the younger of its tokens.
Later merges only remove occurrences. So the record of a pair has a slice of `_places`, in ascending
order, and its occurrences are the places of the slice where both tokens still exist.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from vocabularies.training.pair_table import PairTable, grow
from vocabularies.training.span_scores import SpanScores

BARRIER, GONE = -1, -2
FIRST = np.ones(1, bool)
Slots = NDArray[np.intp]


class _Pairs(Protocol):
    """Pairs of ids with sortable keys; equal pairs have equal keys."""

    def keys(self) -> NDArray[Any]:
        """Return a key for each pair, of 16 bits if possible, because these are sorted fastest."""

    def ids(self, keys: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the left and the right ids of some keys."""


class _AllPairs(NamedTuple):
    """Pairs of any ids."""

    lefts: NDArray[np.signedinteger[Any]]
    rights: NDArray[np.signedinteger[Any]]

    @property
    def width(self) -> int:
        return int(self.rights.max()) + 1

    def keys(self) -> NDArray[Any]:
        dtype = _key_dtype((int(self.lefts.max()) + 1) * self.width)
        keys: NDArray[Any] = self.lefts.astype(dtype) * self.width + self.rights.astype(dtype)
        return keys

    def ids(self, keys: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        return keys // self.width, keys % self.width


class _Sides(NamedTuple):
    """Pairs with one common right id, `middle`, then pairs with the same id on the left."""

    middle: int
    lefts: NDArray[np.signedinteger[Any]]
    rights: NDArray[np.signedinteger[Any]]

    def keys(self) -> NDArray[Any]:
        # All other ids are at most the middle one.
        dtype = _key_dtype(2 * self.middle + 2)
        rights: NDArray[Any] = self.rights.astype(dtype) + (self.middle + 1)
        return np.concatenate((self.lefts.astype(dtype), rights))

    def ids(self, keys: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        is_left = keys <= self.middle
        return (
            np.where(is_left, keys, self.middle),
            np.where(is_left, self.middle, keys - (self.middle + 1)),
        )


def _key_dtype(num_keys: int) -> type[np.uint16] | type[np.int64]:
    return np.uint16 if num_keys <= 1 << 16 else np.int64


class Segmentation:
    """The tokens of a corpus in their slots, and the pairs of neighbouring tokens.

    Attributes:
        first, last: the id of each token in its first and in its last slot, see the module; int16
            if every id fits, else int32.
        lengths: the number of slots of each token, by id.
        records: the pairs with a frequency of at least `min_frequency`.
        num_tokens: the current number of tokens, weighted by the counts of their sequences;
            barriers are not tokens.
    """

    def __init__(
        self,
        first: NDArray[np.signedinteger[Any]],
        last: NDArray[np.signedinteger[Any]],
        lengths: list[int],
        records: PairTable,
        *,
        slot_counts: NDArray[np.int64] | None = None,
        scores: SpanScores | None = None,
        max_length: int | None = None,
    ) -> None:
        """Count the pairs of tokens in slots.

        Args:
            first: the ids of tokens in their first slots, with barriers at both ends and between
                sequences; it is overwritten.
            last: the ids of tokens in their last slots; it is overwritten.
            lengths: the number of slots of each token, by id.
            records: an empty table.
            slot_counts: int64[slots], the number of copies that each slot counts as; None: 1 each.
            scores: computes the bonus and the penalty of an occurrence; None: both are 0.
            max_length: the largest number of slots of a pair that is counted; None: no limit.
        """
        self.first = first
        self.last = last
        self.records = records
        self.lengths = np.array(lengths, np.int64)
        self._slot_counts = slot_counts
        self._scores = scores
        self._max_length = max_length
        self._place_dtype = np.int32 if len(first) < np.iinfo(np.int32).max else np.int64
        # Each merge writes two places for each token that it removes.
        self._places = np.empty(3 * len(first), self._place_dtype)
        self._num_places = 0
        self.pair_at = np.zeros(len(first), np.int32)
        begins = np.flatnonzero(first >= 0)
        self.num_tokens = self._count(begins)
        begins = begins[first[begins + self.lengths[first[begins]]] >= 0]
        middles = begins + self.lengths[first[begins]]
        pairs = _AllPairs(first[begins], first[middles])
        self._add(begins, middles + self.lengths[pairs.rights], pairs)

    def merge(self, record: int, merged_id: int) -> None:
        """Replace every occurrence of a pair by one token; of overlapping ones, the leftmost first.

        Example, a a into c: in a a a a a the pairs begin at 0, 1, 2 and 3; those at 0 and 2 are
        merged to c c a. This removes the pairs a a at 1 and at 3, and adds the pairs c c and c a.
        """
        left, right = self.records.pair(record)
        begins, middles = self._occurrences(record, left, right)
        ends = middles + self.lengths[right]
        if merged_id >= len(self.lengths):
            self.lengths = grow(self.lengths, 2 * merged_id)
        self.lengths[merged_id] = self.lengths[left] + self.lengths[right]
        before, after = self.last[begins - 1], self.first[ends]
        # The pair between two adjacent occurrences counts as the left pair of the second.
        has_right = after >= 0
        has_right[:-1] &= ends[:-1] != begins[1:]
        lefts, rights = (before >= 0).nonzero()[0], has_right.nonzero()[0]
        after = after[rights]
        right_ends = ends[rights] + self.lengths[after]
        self.records.drop(record)
        self._remove(
            np.concatenate((begins[lefts] - self.lengths[before[lefts]], middles[rights])),
            np.concatenate((middles[lefts], right_ends)),
        )
        self.first[begins], self.first[middles], self.last[ends - 1] = merged_id, GONE, merged_id
        self.num_tokens -= self._count(begins)
        before = self.last[begins[lefts] - 1]
        self._add(
            np.concatenate((begins[lefts] - self.lengths[before], begins[rights])),
            np.concatenate((ends[lefts], right_ends)),
            _Sides(merged_id, before, after),
        )

    def _occurrences(self, record: int, left: int, right: int) -> tuple[Slots, Slots]:
        """Return the begins and middles of the occurrences that still exist, without overlaps."""
        begins = self._places[self.records.places(record)].astype(np.intp)
        middles = begins + self.lengths[left]
        exists = (self.first[begins] == left) & (self.first[middles] == right)
        begins, middles = begins[exists], middles[exists]
        if left == right and len(begins):
            kept = _alternate(begins, int(self.lengths[left]))
            begins, middles = begins[kept], middles[kept]
        return begins, middles

    def _remove(self, begins: Slots, ends: Slots) -> None:
        """Subtract the pairs that a merge breaks."""
        counts = 1 if self._slot_counts is None else self._slot_counts[begins]
        measured = () if self._scores is None else self._scores.measure(begins, ends)
        self.records.subtract(self.pair_at[begins], counts, *measured)

    def _add(self, begins: Slots, ends: Slots, pairs: _Pairs) -> None:
        """Add records for new pairs that have no record yet; equal pairs are sorted by position."""
        if not len(begins):
            return
        keys = pairs.keys()
        order = keys.argsort(kind="stable")
        begins, keys = begins[order], keys[order]
        starts = np.concatenate((FIRST, keys[1:] != keys[:-1])).nonzero()[0]
        sizes = np.concatenate((starts[1:], [len(begins)])) - starts
        sums = self._sums(begins, ends, order, starts, sizes)
        kept = sums[0] >= self.records.min_frequency
        if self._max_length is not None:
            kept &= ends[order[starts]] - begins[starts] <= self._max_length
        number = len(self.records)
        numbers = (kept * (kept.cumsum() + (number - 1))).astype(np.int32)
        self.pair_at[begins] = numbers.repeat(sizes)
        if not kept.all():
            begins, keys = begins[kept.repeat(sizes)], keys[starts[kept]]
            sizes, sums = sizes[kept], [column[kept] for column in sums]
        else:
            keys = keys[starts]
        self._places[self._num_places : self._num_places + len(begins)] = begins
        place_ends = self._num_places + sizes.cumsum()
        self._num_places += len(begins)
        self.records.append(*pairs.ids(keys), place_ends - sizes, place_ends, *sums)

    def _sums(
        self, begins: Slots, ends: Slots, order: Slots, starts: Slots, sizes: Slots
    ) -> list[NDArray[np.int64]]:
        """Sum the frequency of each pair and, if there are scores, its bonuses and penalties."""
        counts = None if self._slot_counts is None else self._slot_counts[begins]
        sums = [sizes if counts is None else np.add.reduceat(counts, starts)]
        if self._scores is not None:
            for part in self._scores.measure(begins, ends[order]):
                sums.append(np.add.reduceat(part if counts is None else part * counts, starts))
        return sums

    def _count(self, slots: Slots) -> int:
        return len(slots) if self._slot_counts is None else int(self._slot_counts[slots].sum())


def _alternate(begins: Slots, length: int) -> NDArray[np.bool_]:
    """Mark the first, third, fifth ... place of each run of overlapping places.

    Example, length 1: of the places 0 1 2 3 7 8, this marks 0, 2 and 7.
    """
    index = np.arange(len(begins))
    starts_run = np.ones(len(begins), bool)
    starts_run[1:] = begins[1:] - begins[:-1] != length
    run_start = np.maximum.accumulate(np.where(starts_run, index, 0))
    alternate: NDArray[np.bool_] = (index - run_start) % 2 == 0
    return alternate
