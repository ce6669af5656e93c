r"""A pretokenizer rule as a machine that reads one character class after another.

Outputs, for the character that begins at place i, the one before it at place p:

    START        a pretoken begins at i
    START_PREV   a pretoken begins at p: the last space of "  a", which `\s+(?!\S)` leaves alone
    COMMIT       a pretoken begins at the pending place, which is then forgotten
    MARK         i becomes the pending place, after any COMMIT of the same step

MARK and COMMIT serve what only later characters decide: "\n  a" is "\n", " ", " a", but "\n  \na"
is "\n  \n", "a". A state may forget the pending place: it then commits nothing before it marks.

    reads   a      \n     blank          blank          a
    does    START  START  MARK                          COMMIT, START_PREV
    state   word   line   pending blank  pending blank  word
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vocabularies.preprocessing.unicode_classes import NUM_CODE_POINTS, Mask, class_mask

__all__ = [
    "COMMIT",
    "END",
    "FRESH",
    "MARK",
    "START",
    "START_PREV",
    "Rule",
    "Step",
    "any_of",
    "everything",
    "of",
    "then",
]

START, START_PREV, MARK, COMMIT = 1, 2, 4, 8
END = "end"  # The class that stands for the end of a text.
FRESH = "fresh"  # The state where a pretoken begins whatever comes: a text's beginning is one.

Step = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Rule:
    """A pretokenizer as classes and steps.

    Attributes:
        classes: makes {class: bool[NUM_CODE_POINTS]}; a code point is in the first that has it,
            and the last has them all.
        step: (state, class or END) -> (next state, outputs).
    """

    classes: Callable[[], dict[str, Mask]]
    step: Callable[[str, str], Step]


def of(characters: str) -> Mask:
    """These characters."""
    mask = np.zeros(NUM_CODE_POINTS, np.bool_)
    mask[[ord(character) for character in characters]] = True
    return mask


def any_of(*names: str) -> Mask:
    """The characters of these Unicode classes, as the engines have them."""
    mask: Mask = np.logical_or.reduce([class_mask(name, "rust") for name in names])
    return mask


def everything() -> Mask:
    """All code points."""
    return np.ones(NUM_CODE_POINTS, np.bool_)


def then(outputs: int, step: Step) -> Step:
    """A step that outputs more."""
    return step[0], step[1] | outputs
