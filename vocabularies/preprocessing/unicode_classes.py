r"""The Unicode classes of the published regex engines, the only ones that vocabularies/ uses.

The classes are read from `unicode_classes.json`, which `probe_unicode` writes. Two engines were
measured: "rust" (tiktoken's, which tokenizers' Whitespace also uses) and "onig" (tokenizers' Split
and ByteLevel). They agree on every class here except ``\w``. This module does not depend on
patterns or rules.
"""

from __future__ import annotations

import functools
import json
from importlib.resources import files
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Engine = Literal["rust", "onig"]
Mask = NDArray[np.bool_]

NUM_CODE_POINTS = 0x110000
CLASSES = ("L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "N", "P", "S", "s", "w")


@functools.cache
def _data() -> dict[str, Any]:
    text = files(__package__).joinpath("unicode_classes.json").read_text("ascii")
    data: dict[str, Any] = json.loads(text)
    return data


def _ranges(text: str) -> list[tuple[int, int]]:
    """Parse ``"41-5a aa"`` to [(0x41, 0x5A), (0xAA, 0xAA)], both ends included."""
    ends = (part.partition("-") for part in text.split())
    return [(int(first, 16), int(last or first, 16)) for first, _, last in ends]


def to_mask(ranges: str) -> Mask:
    """Convert ranges as in the data file to a read-only bool[NUM_CODE_POINTS]."""
    mask = np.zeros(NUM_CODE_POINTS, np.bool_)
    for first, last in _ranges(ranges):
        mask[first : last + 1] = True
    mask.flags.writeable = False
    return mask


def _measured_ranges(table: str, name: str, engine: Engine) -> str:
    measured = _data()[table]
    both: str | None = measured.get(name)
    ranges: str = measured[f"{engine}:{name}"] if both is None else both
    return ranges


@functools.cache
def class_mask(name: str, engine: Engine) -> Mask:
    """Return the members of a class as bool[NUM_CODE_POINTS], read-only.

    Args:
        name: one of CLASSES: a general category, "s" for white space or "w" for word characters.
        engine: the regex engine, "rust" or "onig". Surrogates are in no class, because texts
            contain none.

    Raises:
        KeyError: there is no such class.
    """
    return to_mask(_measured_ranges("classes", name, engine))


def folded(letter: str, engine: Engine) -> frozenset[str]:
    """Return the characters that ``(?i:letter)`` matches, for the letters of contractions.

    Raises:
        KeyError: the letter was not probed.
    """
    ranges = _ranges(_measured_ranges("folded", letter, engine))
    return frozenset(chr(c) for first, last in ranges for c in range(first, last + 1))


@functools.cache
def normalizer_code_points(name: Literal["strip", "decomposing", "combining"]) -> frozenset[str]:
    """Return the characters that a normalizer of `tokenizers` treats specially.

    Args:
        name: "strip": Strip removes them; "decomposing": NFD rewrites them; "combining": NFD sorts
            them (their combining class is not 0).
    """
    ranges = _ranges(_data()[name])
    return frozenset(chr(c) for first, last in ranges for c in range(first, last + 1))


@functools.cache
def lowercase_mapping() -> dict[int, str]:
    """Return {code point: lower case} of tokenizers' Lowercase, for `str.translate`."""
    lowercase = _data()["lowercase"]
    mapping = {ord(upper): lower for upper, lower in lowercase["several"].items()}
    for run in lowercase["runs"].split():
        ends, step, distance = run.split(":")
        for first, last in _ranges(ends):
            for code_point in range(first, last + 1, int(step)):
                mapping[code_point] = chr(code_point + int(distance))
    return mapping


def engine_versions() -> dict[str, str]:
    """Return the measured engines, such as ``{"rust": "tiktoken 0.14.0", ...}``."""
    return dict(_data()["engines"])
