"""Describes the normalizers that the kernels support for BPE over letters.

First, each letter may be replaced by another one (Lowercase, U by T). Then each run of one letter
may be replaced by a single letter, and white space may be stripped from the ends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu.errors import NotCovered
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.normalizers import Normalizer
from vocabularies.preprocessing.unicode_classes import lowercase_mapping

MAX_RUN = 16
ASCII = 128
_RUN = re.compile(r"([!-~])\{(\d+),\}")
_SYNTAX = set(".^$*+?()[]{}|\\")
_SIGN = re.compile("[!-~]")


@dataclass(frozen=True, slots=True)
class Steps:
    """The changes to a text's letters before they are merged.

    Attributes:
        letters: bytes[256], the byte that replaces each byte.
        strips: 1 if white space is stripped on the left, plus 2 if it is stripped on the right.
        run_letter: the letter whose runs are replaced; 0: there is none.
        run_length: the shortest length of such runs.
        run_content: the letter that replaces a run.
    """

    letters: bytes = bytes(range(256))
    strips: int = 0
    run_letter: int = 0
    run_length: int = 0
    run_content: int = 0

    @property
    def maps(self) -> bool:
        """Whether a letter is replaced by another letter."""
        return self.letters != bytes(range(256))

    def uncovered(self) -> NDArray[np.uint32]:
        """Return the sorted characters outside of ASCII that do not become one such character."""
        found = [
            code_point
            for code_point, lower in (lowercase_mapping().items() if self.maps else ())
            if code_point >= ASCII and (len(lower) > 1 or lower.isascii())
        ]
        return np.array(sorted(found), np.uint32)


def steps_of(vocabulary: Vocabulary) -> Steps:
    """Return the changes that the normalizers of a vocabulary make.

    Raises:
        NotCovered: the kernels do not support one of them, or their order.
    """
    letters, strips, run = bytearray(range(256)), 0, (0, 0, 0)
    for step in vocabulary.normalizers:
        made = _mapped(step)
        if made is not None and not run[0]:
            letters = letters.translate(made)
        elif step.kind == "strip" and not strips:
            strips = step.left | step.right << 1
        elif not run[0] and (found := _run(step)):
            run = found
        else:
            raise NotCovered(f"the normalizer {step.kind} {step.pattern!r} rewrites the text")
    if run[1] > MAX_RUN:
        raise NotCovered(f"runs of {run[1]} letters and more become one")
    return Steps(bytes(letters), strips, *run)


def _mapped(step: Normalizer) -> bytes | None:
    """Return the replacement of each byte, bytes[256]; None if a step maps more than letters."""
    if step.kind == "lowercase":
        return bytes(range(ASCII)).lower() + bytes(range(ASCII, 256))
    signs = _SIGN.fullmatch(step.pattern) and _SIGN.fullmatch(step.content)
    if step.kind == "replace" and signs:
        return bytes.maketrans(step.pattern.encode(), step.content.encode())
    return None


def _run(step: Normalizer) -> tuple[int, int, int] | None:
    """Return the letter of runs, their shortest length and replacement; None for other steps."""
    found = _RUN.fullmatch(step.pattern) if step.kind == "replace_regex" else None
    if not found or found[1] in _SYNTAX or not _SIGN.fullmatch(step.content):
        return None
    return ord(found[1]), int(found[2]), ord(step.content)
