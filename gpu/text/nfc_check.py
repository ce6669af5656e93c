"""Makes the tables by which kernels check that a text is in NFC; also checks texts on the host.

Most texts are in NFC already; for them, a vocabulary with NFC gives the same ids as without. The
kernels check each character and the one before it (cuda/text/pretokenize/nfc_check.cuh). A batch
that fails the check is encoded by the CPU engine.
"""

from __future__ import annotations

import functools
import unicodedata

import numpy as np
from numpy.typing import NDArray

from gpu.kernels.job import constant
from vocabularies.batch.batch import Batch
from vocabularies.model.types import Bpe
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.class_patterns import to_code_points
from vocabularies.preprocessing.normalizers import nfc
from vocabularies.preprocessing.unicode_classes import NUM_CODE_POINTS, normalizer_code_points

Int64s = NDArray[np.int64]
MAX_CHARACTER = 4  # Bytes.
CLASS, CHANGES, JOINS, TAKES = (
    constant(f"COMPOSED_{name}") for name in ("CLASS", "CHANGES", "JOINS", "TAKES")
)


def only_composes(vocabulary: Vocabulary) -> bool:
    """Return whether NFC is the only normalizer of a byte-level BPE and does not change its tokens.

    Then tokens that are matched in normalized text are matched in the text itself.
    """
    model, steps = vocabulary.model, vocabulary.normalizers
    if not steps or not isinstance(model, Bpe) or not model.byte_level or vocabulary.motifs:
        return False
    later = (token.content for token in vocabulary.special_tokens if token.normalized)
    is_only_nfc = all(step.kind == "nfc" for step in steps)
    return is_only_nfc and all(nfc(content)[0] == content for content in later)


def is_in_nfc(text: str) -> bool:
    """Return whether a text passes the kernels' check; a text that fails it may still be in NFC."""
    kinds = _kinds()[to_code_points(text)].astype(np.uint32)
    before = np.concatenate([np.zeros(1, np.uint32), kinds[:-1]])[: len(kinds)]
    last, own = before & CLASS, kinds & CLASS
    moves = (own != 0) & (last > own)
    joins = ((kinds & JOINS) != 0) & ((last != 0) | ((before & TAKES) != 0))
    return not (((kinds & CHANGES) != 0) | moves | joins).any()


def composed_tables() -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """Make the kind of each code point, COMPOSED_* of nfc_check.cuh, by pages.

    Returns:
        uint16[0x110000 >> 8], the page of each 256 code points, and uint16[pages, 256].
    """
    numbers: dict[bytes, int] = {}
    rows = [row.tobytes() for row in _kinds().reshape(-1, 256)]
    pages = [numbers.setdefault(row, len(numbers)) for row in rows]
    return np.array(pages, np.uint16), np.frombuffer(b"".join(numbers), np.uint16).reshape(-1, 256)


def widen_spans(spans: Int64s, offsets: Int64s, batch: Batch) -> None:
    """Widen spans int64[T, 2] of ids to whole characters, in place; `offsets` are those of the ids.

    After a normalizer, the source of each part of a character is the whole character.
    """
    continues = np.append(batch.data & 0xC0 == 0x80, np.zeros(4, np.bool_))
    first = np.repeat(batch.offsets[:-1], np.diff(offsets))
    is_part = spans[:, 0] < spans[:, 1]
    for _ in range(MAX_CHARACTER - 1):
        spans[:, 0] -= is_part & continues[first + spans[:, 0]]
        spans[:, 1] += is_part & continues[first + spans[:, 1]]


def composed_leads() -> int:
    """Return the bits of the lead bytes of characters to check: bit i is for the byte 0xC0 + i.

    ASCII and Chinese characters are not checked: their kinds are TAKES at most.
    """
    checked = np.flatnonzero(_kinds() & np.uint16(0xFFFF ^ TAKES)).tolist()
    return sum(1 << lead - 0xC0 for lead in {chr(c).encode()[0] for c in checked})


@functools.cache
def _kinds() -> NDArray[np.uint16]:
    """Return uint16[NUM_CODE_POINTS], the kind of each code point by the tables of `tokenizers`."""
    kinds = np.zeros(NUM_CODE_POINTS, np.uint16)
    for character in normalizer_code_points("combining"):
        kinds[ord(character)] |= unicodedata.combining(character)
    for character in normalizer_code_points("decomposing"):
        kinds[ord(character)] |= TAKES
        if unicodedata.normalize("NFC", character) != character:
            kinds[ord(character)] |= CHANGES
            continue
        parts = unicodedata.normalize("NFD", character)
        kinds[ord(unicodedata.normalize("NFC", parts[:-1]))] |= TAKES
        kinds[ord(parts[-1])] |= JOINS
    return kinds
