"""Tables for alphabets of four letters that differ in bits 1 and 2 of their ASCII codes.

cuda/kmers/plain_rows.cuh (FourLetters) reads them to map several letters at once.

Example: these bits of A, C, T and G are 0, 1, 2 and 3.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu.kernels.job import constant
from vocabularies.model.types import Kmers

UInt32s = NDArray[np.uint32]
Numbers = dict[str, int]

NUM_BYTES = 256
FALLBACK = sum(
    constant(f"FALLBACK_{name}") << constant("FALLBACK_SHIFT") for name in ("BREAK", "WIDE", "MARK")
)
ANY_CASE, OWN_CASE = 0xDFDFDFDF, 0xFFFFFFFF
NO_LETTERS = 0x06
"""A value of `four_letters` that no letter matches."""


def four_letters(model: Kmers, entries: UInt32s) -> Numbers:
    """Return the fields for k-mers; `four_letters` is 0 if the alphabet does not allow it."""
    letters, is_upper = model.letters.encode(), model.case == "upper"
    slots = {letter >> 1 & 3: letter for letter in letters}
    any_case = letters + letters.lower() if is_upper else letters
    flagged = entries[list(any_case)] & np.uint32(FALLBACK)
    other_case = entries[list(letters.swapcase())]
    if (
        len(letters) != 4
        or len(slots) != 4
        or flagged.any()
        or (is_upper and not (letters.isalpha() and letters.isupper()))
    ):
        return {"four_letters": 0}
    return {
        "four_letters": sum(letter << 16 * slot for slot, letter in slots.items()),
        "four_codes": sum(letters.index(letter) << 16 * slot for slot, letter in slots.items()),
        "four_fold": ANY_CASE if is_upper else OWN_CASE,
        "four_case_flags": int(np.bitwise_or.reduce(other_case) & np.uint32(FALLBACK)),
    }


def four_characters(entries: UInt32s) -> Numbers:
    """Return the fields for characters, with the ids of A, C, G and T if these have plain ids."""
    upper, lower = list(b"ACGT"), list(b"acgt")
    if (entries[upper] >= NUM_BYTES).any():
        return {"four_letters": NO_LETTERS, "four_fold": OWN_CASE}
    ids = [(letter, int(entries[letter])) for letter in upper]
    return {
        "four_letters": sum(letter << 16 * (letter >> 1 & 3) for letter, _ in ids),
        "four_codes": sum(number << 16 * (letter >> 1 & 3) for letter, number in ids),
        "four_fold": ANY_CASE if (entries[upper] == entries[lower]).all() else OWN_CASE,
    }
