"""Finds the best pair of tokens in a corpus and merges it.

`CpuMerger` uses NumPy, and `gpu.training.merger.DeviceMerger` a GPU; both make the same merges.
This module does not depend on vocabularies or files.
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
    """One merge, with the frequency, bonus, penalty and score of its pair when it was chosen."""

    left: int
    right: int
    frequency: int
    bonus: int
    penalty: int
    score: int


class Merger(Protocol):
    """The tokens of a corpus after the merges so far."""

    @property
    def num_tokens(self) -> int:
        """The current number of tokens, weighted by the counts of their sequences."""

    @property
    def first(self) -> Ids:
        """The id of the token that begins in each slot; see `Segmentation.first`."""

    def best(self) -> Merge | None:
        """Find the pair with the highest score; of equal scores, the lowest left, then right id.

        Returns None if no pair has both the frequency `min_frequency` and the lowest allowed score.
        """

    def merge(self, merge: Merge, merged_id: int) -> None:
        """Replace every occurrence of the best pair by one token, leftmost first."""

    def close(self) -> None:
        """Release the memory of the merger."""


MakeMerger = Callable[[Layout, TrainingOptions, Ids, list[int]], Merger]
"""Makes a Merger from a layout, options, `first` (may be overwritten) and the length of each id.

It raises VocabularyError if the weights could make a score overflow, and may raise other errors.
"""


class CpuMerger:
    """A Merger for the CPU."""

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
        """The current number of tokens, weighted by the counts of their sequences."""
        return self._segmentation.num_tokens

    @property
    def first(self) -> Ids:
        """`Segmentation.first`."""
        return self._segmentation.first

    def best(self) -> Merge | None:
        """Find the pair with the highest score."""
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
    """Make the tables of bonuses and penalties; None if there are no spans.

    Raises:
        VocabularyError: a score could exceed 64 bits, or there are too many different weights.
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
        message = f"are too large, with the motifs' weights, for {layout.num_bases} letters"
        raise VocabularyError.at("motif_weight, penalty_weight", message)
