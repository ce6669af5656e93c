"""A table of pairs of tokens with their frequency, bonus, penalty and score; finds the best pair.

`segmentation` adds and subtracts occurrences; this module does not depend on slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# The score of one occurrence: scores are in millionths, as products of two numbers in thousandths.
UNIT = 1_000_000
DROPPED = np.iinfo(np.int64).min
NUM_CANDIDATES = 512
FIRST_CAPACITY = 1024
COLUMNS = (
    "_lefts",
    "_rights",
    "_begins",
    "_ends",
    "_frequencies",
    "_bonuses",
    "_penalties",
    "_scores",
    "_is_candidate",
)
MAX_CANDIDATES = 8 * NUM_CANDIDATES


@dataclass(frozen=True, slots=True)
class ScoreRule:
    """score = UNIT * frequency + motif_weight * bonus - penalty_weight * penalty, in integers.

    Attributes:
        motif_weight: the paper's lambda in thousandths.
        penalty_weight: the paper's mu in thousandths.
        binary: whether the penalty of a pair is 1 if any occurrence crosses a border, instead of
            their number.
        lowest: the lowest score of a pair that may be merged.
    """

    motif_weight: int = 0
    penalty_weight: int = 0
    binary: bool = False
    lowest: int = 1

    def scores(
        self,
        frequencies: NDArray[np.int64],
        bonuses: NDArray[np.int64] | None = None,
        penalties: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int64]:
        """Compute int64[P], the scores of P pairs; missing bonuses and penalties are 0."""
        if bonuses is None or penalties is None:
            return UNIT * frequencies
        if self.binary:
            penalties = np.where(penalties > 0, 1000, 0)
        return UNIT * frequencies + self.motif_weight * bonuses - self.penalty_weight * penalties


class PairTable:
    """A table of pairs of tokens; each pair has a numbered record, and 0 means no record.

    The best pair is searched among at most MAX_CANDIDATES candidates, which include every pair with
    a score of at least `_bar`. When the score of the best candidate falls below `_bar`, new
    candidates are chosen.
    """

    def __init__(self, min_frequency: int, rule: ScoreRule) -> None:
        self.min_frequency = max(1, min_frequency)
        self._rule = rule
        self._size = 1
        self._lefts = np.zeros(FIRST_CAPACITY, np.int32)
        self._rights = np.zeros(FIRST_CAPACITY, np.int32)
        self._begins = np.zeros(FIRST_CAPACITY, np.int64)
        self._ends = np.zeros(FIRST_CAPACITY, np.int64)
        self._frequencies = np.zeros(FIRST_CAPACITY, np.int64)
        self._bonuses = np.zeros(FIRST_CAPACITY, np.int64)
        self._penalties = np.zeros(FIRST_CAPACITY, np.int64)
        self._scores = np.full(FIRST_CAPACITY, DROPPED)
        self._is_candidate = np.zeros(FIRST_CAPACITY, bool)
        self._candidates = np.zeros(MAX_CANDIDATES, np.intp)
        self._num_candidates = 0
        self._bar = DROPPED + 1
        self._is_candidate[0] = True

    def __len__(self) -> int:
        return self._size

    def pair(self, record: int) -> tuple[int, int]:
        """Return the ids of a record's two tokens."""
        return int(self._lefts[record]), int(self._rights[record])

    def places(self, record: int) -> slice:
        """Return the slice of `Segmentation`'s places that contains a record's occurrences."""
        return slice(int(self._begins[record]), int(self._ends[record]))

    def figures(self, record: int) -> tuple[int, int, int, int]:
        """Return the current (frequency, bonus, penalty, score) of a record."""
        columns = (self._frequencies, self._bonuses, self._penalties, self._scores)
        return tuple(int(column[record]) for column in columns)  # type: ignore[return-value]

    def append(
        self,
        lefts: NDArray[Any],
        rights: NDArray[Any],
        begins: NDArray[np.int64],
        ends: NDArray[np.int64],
        frequencies: NDArray[np.int64],
        *sums: NDArray[np.int64],
    ) -> None:
        """Add records with the next numbers; `sums` are bonuses and penalties, if there are motifs.

        Each array has one entry for each record.
        """
        old = self._size
        self._size += len(lefts)
        self._make_room()
        new = slice(old, self._size)
        self._lefts[new], self._rights[new] = lefts, rights
        self._begins[new], self._ends[new] = begins, ends
        self._frequencies[new] = frequencies
        if sums:
            self._bonuses[new], self._penalties[new] = sums
        scores = self._rule.scores(frequencies, *sums)
        self._scores[new] = scores
        self._nominate((scores >= self._bar).nonzero()[0] + old)

    def _make_room(self) -> None:
        if self._size <= len(self._lefts):
            return
        for name in COLUMNS:
            setattr(self, name, grow(getattr(self, name), 2 * self._size))

    def subtract(
        self,
        records: NDArray[np.int32],
        counts: NDArray[np.int64] | int,
        *measured: NDArray[np.int64],
    ) -> None:
        """Subtract occurrences from records; a record may occur several times.

        Args:
            records: int32[K], the number of the record of each occurrence.
            counts: int64[K], how often each occurrence counts; or one number for all.
            measured: the bonuses and the penalties of the occurrences, each int64[K], if there are
                motifs.
        """
        np.subtract.at(self._frequencies, records, counts)
        frequencies = self._frequencies[records]
        sums = [self._bonuses, self._penalties] if measured else []
        for sum_of, part in zip(sums, measured, strict=True):
            np.subtract.at(sum_of, records, part * counts)
        scores = self._rule.scores(frequencies, *(sum_of[records] for sum_of in sums))
        scores[frequencies < self.min_frequency] = DROPPED
        self._scores[records] = scores
        if measured:
            # Scores can rise only with motifs, when an occurrence with a penalty is subtracted.
            risen = (scores >= self._bar) & ~self._is_candidate[records]
            self._nominate(np.unique(records[risen]))

    def drop(self, record: int) -> None:
        """Remove the record of a pair that is merged."""
        self._frequencies[record] = 0
        self._scores[record] = DROPPED

    def best(self) -> int | None:
        """Find the record with the highest score; of equal scores, the lowest left, then right id.

        Returns None if no pair has both the frequency `min_frequency` and the lowest allowed score.
        """
        if (found := self._best_candidate()) is None:
            self._choose_candidates()
            found = self._best_candidate()
        return found

    def _best_candidate(self) -> int | None:
        candidates = self._candidates[: self._num_candidates]
        scores = self._scores[candidates]
        if not len(scores):
            return None
        highest = scores.max()
        if highest < max(self._bar, self._rule.lowest, DROPPED + 1):
            return None
        best = candidates[scores == highest]
        if len(best) > 1:
            keys = self._lefts[best].astype(np.int64) << 32 | self._rights[best]
            return int(best[keys.argmin()])
        return int(best[0])

    def _choose_candidates(self) -> None:
        """Choose the best NUM_CANDIDATES records, and all with the same score as the last one."""
        scores = self._scores[1 : self._size]
        self._bar = DROPPED + 1
        if len(scores) > NUM_CANDIDATES:
            lowest = np.partition(scores, -NUM_CANDIDATES)[-NUM_CANDIDATES]
            self._bar = max(self._bar, int(lowest))
        self._is_candidate[1 : self._size] = scores >= self._bar
        chosen = 1 + np.flatnonzero(scores >= self._bar)
        self._candidates = grow(chosen, len(chosen) + MAX_CANDIDATES)
        self._num_candidates = len(chosen)

    def _nominate(self, records: NDArray[Any]) -> None:
        if not len(records):
            return
        end = self._num_candidates + len(records)
        if end > len(self._candidates):
            # The table already contains the new records, so these are considered as well.
            self._choose_candidates()
            return
        self._candidates[self._num_candidates : end] = records
        self._num_candidates = end
        self._is_candidate[records] = True


def grow(array: NDArray[Any], size: int) -> NDArray[Any]:
    """Return a copy of an array with zeros appended, `size` entries in all."""
    larger = np.zeros(size, array.dtype)
    larger[: len(array)] = array
    return larger
