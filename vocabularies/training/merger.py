"""Finds the best pair of tokens in a corpus and merges it.

`CpuMerger` works in NumPy, `gpu.training.merger.DeviceMerger` on a GPU; both make the same merges.
Knows no vocabulary and no file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from vocabularies.errors import VocabularyError
from vocabularies.training.layout import Layout
from vocabularies.training.options import TrainingOptions
from vocabularies.training.pair_table import UNIT, PairTable
from vocabularies.training.segmentation import BARRIER, GONE, Segmentation
from vocabularies.training.span_scores import SpanScores

Ids = NDArray[np.signedinteger[Any]]


class Merge(NamedTuple):
    """One merge and the integer figures of its pair when it was chosen; see `pair_table`."""

    left: int
    right: int
    frequency: int
    bonus: int
    penalty: int
    score: int


class Merger(Protocol):
    """A corpus as the tokens of the merges so far."""

    @property
    def num_tokens(self) -> int:
        """The number of tokens now, each counted as often as its sequence counts."""

    @property
    def first(self) -> Ids:
        """For each slot the id of the token that begins there; see `Segmentation.first`."""

    def best(self) -> Merge | None:
        """Find the pair of the highest score; of equal scores the lowest left, then right id.

        Returns None where no pair has both `min_frequency` and the least score.
        """

    def merge(self, merge: Merge, merged_id: int) -> None:
        """Make one token of every occurrence of the best pair, leftmost first."""

    def close(self) -> None:
        """Release the memory of the merger."""


MakeMerger = Callable[[Layout, TrainingOptions, Ids, list[int]], Merger]
"""Makes a Merger of a layout, options, `first` (may be overwritten) and the length of each id.

It raises VocabularyError where weights could overflow a score, and may raise errors of its own.
"""


class CpuMerger:
    """A corpus in this process's memory; see Merger."""

    def __init__(
        self, layout: Layout, options: TrainingOptions, first: Ids, lengths: list[int]
    ) -> None:
        self._records = PairTable(options.min_frequency, options.rule)
        self._segmentation = Segmentation(
            first,
            _last(first, lengths),
            lengths,
            self._records,
            slot_counts=layout.slot_counts,
            scores=span_scores(layout, options),
            max_length=options.max_token_length,
        )
        self._best: int | None = None

    @property
    def num_tokens(self) -> int:
        """The number of tokens now, each counted as often as its sequence counts."""
        return self._segmentation.num_tokens

    @property
    def first(self) -> Ids:
        """`Segmentation.first`."""
        return self._segmentation.first

    def best(self) -> Merge | None:
        """Find the pair of the highest score."""
        record = self._best = self._records.best()
        if record is None:
            return None
        return Merge(*self._records.pair(record), *self._records.figures(record))

    def merge(self, merge: Merge, merged_id: int) -> None:
        """Merge the pair that `best` has just returned."""
        assert self._best is not None
        self._segmentation.merge(self._best, merged_id)

    def close(self) -> None:
        """Do nothing: Python frees the memory with this object."""


def span_scores(layout: Layout, options: TrainingOptions) -> SpanScores | None:
    """Make bonus and penalty tables; None where there are no spans.

    Raises:
        VocabularyError: a score could exceed 64 bits, or spans have too many different weights.
    """
    if not len(layout.span_begins):
        return None
    _check_scores(layout, options)
    return SpanScores(
        layout.span_begins,
        layout.span_ends,
        layout.span_weights,
        num_slots=len(layout.symbols),
        crossing=options.crossing,
    )


def _last(first: Ids, lengths: list[int]) -> Ids:
    """Return `Segmentation.last`: the id of each token in the slot where it ends."""
    last = np.where(first == BARRIER, BARRIER, GONE).astype(first.dtype)
    begins = np.flatnonzero(first >= 0)
    ids = first[begins]
    last[begins + np.array(lengths, np.int64)[ids] - 1] = ids
    return last


def _check_scores(layout: Layout, options: TrainingOptions) -> None:
    """Refuse weights whose scores could exceed 64 bits, in any order of adding."""
    rule = options.rule
    heaviest = int(layout.span_weights.max())
    per_base = UNIT + (rule.motif_weight + rule.penalty_weight) * heaviest
    if layout.num_bases * per_base >= 1 << 62:
        message = f"too large, with motifs' weights, for a corpus of {layout.num_bases} letters"
        raise VocabularyError.at("motif_weight, penalty_weight", message)
