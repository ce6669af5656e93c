"""Scores parts of a corpus as GeneticBPE does: a bonus inside a motif, a penalty for a split.

A stretch is a range of slots [b, e), such as an occurrence of a pair. For each weight, three tables
describe the spans of at least this weight; scoring a stretch takes one look-up in each table.
Positions are slots of `segmentation`. This module does not depend on tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vocabularies.errors import VocabularyError

Crossing = Literal["split", "any"]
MAX_LEVELS = 16
Slots = NDArray[np.signedinteger[Any]]


@dataclass(frozen=True, slots=True)
class Level:
    """The tables of the spans that have at least a certain weight.

    Attributes:
        step: this weight minus the weight of the next level, in thousandths.
        reach: for each slot, the largest end of the spans that begin at or before it; [b, e) is
            inside a span exactly if reach[b] >= e.
        next_cut: for each slot b, the nearest border after it; a stretch [b, e) with a larger e
            crosses this border.
        last_cut: for each slot e, the nearest border before it; a stretch [b, e) with a smaller b
            crosses this border.
    """

    step: int
    reach: Slots
    next_cut: Slots
    last_cut: Slots


class SpanScores:
    """Bonus and penalty of stretches, by the heaviest span that contains the stretch or is split.

    Example, a span [2, 6): [3, 5) is inside; [1, 4) and [4, 8) split it; [0, 7) contains all of it,
    which is a penalty only if `crossing` is "any".

    Attributes:
        levels: one Level for each different weight, the heaviest first.
    """

    def __init__(
        self,
        begins: NDArray[np.int64],
        ends: NDArray[np.int64],
        weights: NDArray[np.int64],
        num_slots: int,
        crossing: Crossing = "split",
    ) -> None:
        """Make the tables, which need 12 bytes for each slot and each different weight.

        Args:
            begins: int64[S], the first slot of each span, ascending.
            ends: int64[S], the slot after each span.
            weights: int64[S], the weight of each span in thousandths.
            num_slots: the number of slots; all ends are below it.
            crossing: which stretches have a penalty. "split": those that contain a part of a span,
                but not all of it, and also other slots. "any": also those that contain all of it
                and other slots.

        Raises:
            VocabularyError: there are more than MAX_LEVELS different weights.
        """
        levels = np.unique(weights)[::-1]
        if len(levels) > MAX_LEVELS:
            message = f"have {len(levels)} different weights; round them to at most {MAX_LEVELS}"
            raise VocabularyError.at("motifs", message)
        tables = _any_tables if crossing == "any" else _split_tables
        self.levels: list[Level] = []
        for weight, lighter in zip(levels.tolist(), [*levels.tolist(), 0][1:], strict=True):
            kept = weights >= weight
            level = begins[kept], ends[kept]
            reach = _reach(*level, num_slots)
            self.levels.append(Level(weight - lighter, reach, *tables(*level, num_slots)))

    def measure(
        self, begins: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the bonuses and penalties of stretches [begin, end), int64, in thousandths."""
        bonus, penalty = np.zeros((2, len(begins)), np.int64)
        for level in self.levels:
            bonus += level.step * (level.reach[begins] >= ends)
            crossed = (level.next_cut[begins] < ends) | (level.last_cut[ends] > begins)
            penalty += level.step * crossed
        return bonus, penalty


def _dtype(num_slots: int) -> type[np.int32] | type[np.int64]:
    return np.int32 if num_slots < np.iinfo(np.int32).max else np.int64


def _reach(begins: NDArray[np.int64], ends: NDArray[np.int64], num_slots: int) -> Slots:
    reach = np.zeros(num_slots + 1, _dtype(num_slots))
    np.maximum.at(reach, begins, ends.astype(reach.dtype))
    return np.maximum.accumulate(reach, out=reach)


def _split_tables(
    begins: NDArray[np.int64], ends: NDArray[np.int64], num_slots: int
) -> tuple[Slots, Slots]:
    """Make next_cut and last_cut for stretches that begin or end strictly inside a span.

    A span [2, 6) writes 6 into next_cut[3..5] and 2 into last_cut[3..5]; of several borders, the
    nearest is stored.
    """
    next_cut = np.full(num_slots + 1, num_slots, _dtype(num_slots))
    last_cut = np.zeros(num_slots + 1, next_cut.dtype)
    lengths = ends - begins
    for inside in range(1, int(lengths.max(initial=0))):
        longer = lengths > inside
        slots = begins[longer] + inside
        np.minimum.at(next_cut, slots, ends[longer].astype(next_cut.dtype))
        np.maximum.at(last_cut, slots, begins[longer].astype(next_cut.dtype))
    return next_cut, last_cut


def _any_tables(
    begins: NDArray[np.int64], ends: NDArray[np.int64], num_slots: int
) -> tuple[Slots, Slots]:
    """Make next_cut with the nearest border after each slot, and last_cut without borders."""
    borders = np.full(num_slots + 2, num_slots, _dtype(num_slots))
    borders[begins] = begins
    borders[ends] = ends
    nearest = np.minimum.accumulate(borders[::-1])[::-1]
    return nearest[1:], np.zeros(num_slots + 1, borders.dtype)
