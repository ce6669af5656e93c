"""Makes the tables of single letters of a character-level vocabulary.

The tables say which letters occur in merges, and which ids the others have. NumPy only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu.dna.normalizers import Steps, steps_of
from gpu.errors import NotCovered
from gpu.kernels.job import constant
from vocabularies.model.types import Bpe
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.motif_pretokenizer import MOTIFS
from vocabularies.preprocessing.unicode_classes import class_mask, normalizer_code_points

BASES = 4
MIXED, GAP = constant("LETTER_MIXED"), constant("LETTER_GAP")
DROPPED, UNKNOWN = constant("LETTER_DROPPED"), constant("LETTER_UNKNOWN")
NO_LETTER = constant("NO_TOKEN")
NO_RUN = 0xFF  # A byte that does not occur in UTF-8, whereas NUL does.
_ISOLATE = "isolate:"


@dataclass(frozen=True, slots=True, eq=False)
class Letters:
    """The classes and ids of single letters.

    Attributes:
        bases: the up to four letters that occur in the most tokens; tokens with other letters are
            mixed.
        classes: uint8[256], the place of a letter in `bases`, or one of LETTER_*; all bytes of
            characters outside of ASCII are LETTER_GAP.
        ids: uint16[256], the id of a letter that does not merge, or NO_TOKEN. The id of a character
            outside of ASCII is at its first byte.
        dropped: uint32[...], characters outside of ASCII that have no id, sorted.
        stripped: uint32[...], characters that are stripped from the ends of a text, sorted.
        steps: the normalizers that change letters before they merge.
        run_id: the id of the letter that replaces a run; NO_TOKEN if no runs are replaced.
    """

    bases: bytes
    classes: NDArray[np.uint8]
    ids: NDArray[np.uint16]
    dropped: NDArray[np.uint32]
    stripped: NDArray[np.uint32]
    steps: Steps
    run_id: int

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return {Job field: array} for the device."""
        return {
            "dna_classes": self.classes,
            "dna_letter_ids": self.ids,
            "letter_map": np.frombuffer(self.steps.letters, np.uint8),
            "uncovered_letters": self.steps.uncovered(),
            "dropped_letters": self.dropped,
            "stripped_letters": self.stripped,
        }

    def numbers(self) -> dict[str, int]:
        """Return {Job field: value} for the other fields of the Job."""
        return {
            "num_uncovered": len(self.steps.uncovered()),
            "num_dropped": len(self.dropped),
            "num_stripped": len(self.stripped),
            "strips": self.steps.strips,
            "run_letter": self.steps.run_letter if self.steps.run_length else NO_RUN,
            "run_length": self.steps.run_length,
            "run_id": self.run_id,
        }


def letters_of(
    vocabulary: Vocabulary, letter_ids: dict[bytes, int], merged: Iterable[bytes]
) -> Letters:
    """Make the tables of the letters of a vocabulary.

    Args:
        vocabulary: the vocabulary.
        letter_ids: ids of single characters.
        merged: the tokens of several letters that merges reach.

    Raises:
        NotCovered: letters that merge are not ASCII, or the kernels do not support a step before
            the merges.
    """
    model = vocabulary.model
    assert isinstance(model, Bpe)
    counts = Counter(letter for token in merged for letter in set(token))
    _check(model, letter_ids, counts)
    most = sorted(counts, key=lambda letter: (-counts[letter], letter))[:BASES]
    bases, spaces = bytes(sorted(most)), _dropped(vocabulary, set(counts))
    classes, ids = _classes_and_ids(model, letter_ids, bases, set(counts), spaces)
    steps, stripped = steps_of(vocabulary), normalizer_code_points("strip")
    if steps.strips and any(chr(letter) in stripped for letter in counts):
        raise NotCovered("white space that is stripped is merged")
    return Letters(
        bases=bases,
        classes=classes,
        ids=ids,
        dropped=spaces[spaces >= 0x80],
        stripped=_code_points(stripped if steps.strips else ()),
        steps=steps,
        run_id=_run_id(steps, ids, {*counts, *spaces.tolist()}),
    )


def _classes_and_ids(
    model: Bpe,
    letter_ids: dict[bytes, int],
    bases: bytes,
    merging: set[int],
    dropped: NDArray[np.uint32],
) -> tuple[NDArray[np.uint8], NDArray[np.uint16]]:
    """Return `Letters.classes` and `Letters.ids`."""
    classes = np.full(256, GAP, np.uint8)
    ids = np.full(256, NO_LETTER if model.unknown_id is None else model.unknown_id, np.uint16)
    for spelled, letter_id in letter_ids.items():
        ids[spelled[0]] = letter_id
    ids[0x80:0xC0] = NO_LETTER
    for letter in merging:
        classes[letter] = bases.index(letter) if letter in bases else MIXED
    classes[dropped[dropped < 0x80]] = DROPPED
    ids[classes == DROPPED] = NO_LETTER
    classes[(classes == GAP) & (ids == NO_LETTER) & (np.arange(256) < 0x80)] = UNKNOWN
    return classes, ids


def _check(model: Bpe, letter_ids: dict[bytes, int], merged: Collection[int]) -> None:
    """Raise NotCovered for letters and merges that the kernels do not support."""
    if any(letter > 0x7F for letter in merged):
        raise NotCovered("letters that are not ASCII are merged")
    if any(spelled[0] > 0x7F for spelled in letter_ids):
        raise NotCovered("a letter that is not ASCII has an id")
    if model.fuse_unknown and model.unknown_id is not None:
        raise NotCovered("neighbouring unknown letters are one id")
    if any(model.unknown_id in pair for pair in model.merges):
        raise NotCovered("unknown letters are merged")


def _run_id(steps: Steps, ids: NDArray[np.uint16], others: Collection[int]) -> int:
    """Return the id of the letter that replaces a run; NO_LETTER if no runs are replaced.

    Args:
        steps: the normalizers.
        ids: uint16[256], the id of each letter.
        others: letters that merge or are dropped.
    """
    if not steps.run_letter:
        return NO_LETTER
    if steps.run_content in others:
        run = chr(steps.run_letter)
        raise NotCovered(f"a run of {run} becomes a letter that merges or is dropped")
    run_id = int(ids[steps.run_content])
    if run_id == NO_LETTER:
        raise NotCovered("a run becomes a letter that has no id, and its neighbours merge")
    return run_id


def _code_points(characters: Iterable[str]) -> NDArray[np.uint32]:
    return np.array(sorted(map(ord, characters)), np.uint32)


def _dropped(vocabulary: Vocabulary, merging: set[int]) -> NDArray[np.uint32]:
    """Return the characters that the pretokenizer drops.

    Raises:
        NotCovered: it may split between letters that merge, or is not supported.
    """
    name = vocabulary.pretokenizer
    if name in ("none", MOTIFS):
        return _code_points(())
    if name.startswith(_ISOLATE):
        isolated = name.removeprefix(_ISOLATE)
        if len(isolated) != 1 or ord(isolated) in merging or not isolated.isascii():
            raise NotCovered(f"the pretokenizer {name} cuts letters that merge")
        return _code_points(())
    if name not in ("whitespace", "whitespace_split"):
        raise NotCovered(f"the pretokenizer {name} for letters")
    is_space, is_word = class_mask("s", "rust"), class_mask("w", "rust")
    if any(is_space[letter] for letter in merging):
        raise NotCovered("white space that the pretokenizer drops is merged")
    if name == "whitespace" and len({bool(is_word[letter]) for letter in merging}) > 1:
        raise NotCovered("the pretokenizer whitespace cuts between letters that merge")
    return np.flatnonzero(is_space).astype(np.uint32)
