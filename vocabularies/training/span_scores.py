"""Scores stretches of a corpus as GeneticBPE does: whether they are inside a motif or split one.

Three tables answer for all spans of one weight with one look-up each. Positions are slots of
`segmentation`; knows no tokens.
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
    """The spans of at least one weight.

    Attributes:
        step: how much more they weigh than those of the next level, thousandths.
        reach: the last end of the spans that begin at or before a slot: [b, e) is inside one
            exactly where reach[b] >= e.
        next_cut: the nearest slot behind b that a stretch from b on must not pass.
        last_cut: the nearest slot before e that a stretch up to e must not begin before.
    """

    step: int
    reach: Slots
    next_cut: Slots
    last_cut: Slots


class SpanScores:
    """Bonus and penalty of stretches, by the heaviest span that each is inside, or splits.

    Example, a span [2, 6): [3, 5) is inside; [1, 4) and [4, 8) split it; [0, 7) holds it whole,
    which is no split, but crosses its borders where `crossing` is "any".

    Attributes:
        levels: for each different weight, the heaviest first.
    """

    def __init__(
        self,
        begins: NDArray[np.int64],
        ends: NDArray[np.int64],
        weights: NDArray[np.int64],
        num_slots: int,
        crossing: Crossing = "split",
    ) -> None:
        """Make tables of 12 bytes a slot for each different weight.

        Args:
            begins: int64[S], slots, ascending.
            ends: int64[S].
            weights: int64[S], thousandths.
            num_slots: ends are below it.
            crossing: "split": a stretch that has some of a span and not all of it, and more than
                it; "any": also one that has more than all of it.

        Raises:
            VocabularyError: more than MAX_LEVELS different weights.
        """
        levels = np.unique(weights)[::-1]
        if len(levels) > MAX_LEVELS:
            message = f"{len(levels)} different weights; {MAX_LEVELS} are possible: round them"
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
        """Return (bonus, penalty) of the stretches [begin, end), each int64, thousandths."""
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
    """Make the tables of stretches that begin or end strictly inside a span and leave it.

    A span [2, 6) writes 6 into next_cut[3..5] and 2 into last_cut[3..5]; the nearest one stays.
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
    """Make a table of the nearest border after each slot; the other table bars nothing."""
    borders = np.full(num_slots + 2, num_slots, _dtype(num_slots))
    borders[begins] = begins
    borders[ends] = ends
    nearest = np.minimum.accumulate(borders[::-1])[::-1]
    return nearest[1:], np.zeros(num_slots + 1, borders.dtype)
