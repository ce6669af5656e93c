"""Makes the arguments of the C++ extension for characters and k-mers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vocabularies.model.tables import (
    ASCII,
    BASE,
    DROPPED,
    OTHER,
    SINGLE,
    SPACE,
    CharacterTable,
    KmerTable,
)
from vocabularies.model.types import Kmers
from vocabularies.sequences.strand import COMPLEMENT

# Flags and kinds of native/rules.hpp.
REFERENCE, HIGH, BREAK, SIGN, SPACES, NO_LETTER = (1 << bit for bit in range(6))
KINDS = {BASE: 0, SINGLE: 1, SPACE: 2, OTHER: 3}
LETTER, SKIPPED = KINDS[BASE], KINDS[SPACE]


@dataclass(frozen=True, slots=True, eq=False)
class NativeTables:
    """The properties of each byte for the extension.

    Attributes:
        flags: uint8[256], the effects of the byte on its row.
        kinds: uint8[256], how the byte is encoded.
        codes: uint16[256], the index of the byte among the letters; 0 for other bytes.
        characters: uint32[256], the id of the letter alone.
    """

    flags: NDArray[np.uint8]
    kinds: NDArray[np.uint8]
    codes: NDArray[np.uint16]
    characters: NDArray[np.uint32]

    def arguments(self) -> tuple[NDArray[np.generic], ...]:
        """Return the first arguments of the extension's `make`."""
        return self.flags, self.kinds, self.codes, self.characters, COMPLEMENT


def character_tables(table: CharacterTable) -> NativeTables:
    """Make the tables of characters."""
    ids = table.ids[:256]
    is_dropped = ids == DROPPED
    flags = np.where(table.needs_reference, REFERENCE, 0) | np.where(is_dropped, BREAK, 0)
    flags |= np.where(np.arange(256) >= ASCII, HIGH, 0)
    kinds = np.where(is_dropped, SKIPPED, LETTER)
    return NativeTables(
        flags.astype(np.uint8),
        kinds.astype(np.uint8),
        np.zeros(256, np.uint16),
        np.where(is_dropped, 0, ids).astype(np.uint32),
    )


def kmer_tables(model: Kmers, table: KmerTable) -> NativeTables:
    """Make the tables of k-mers."""
    is_letter = table.codes < table.num_kmers
    kinds = np.array([KINDS[kind] for kind in table.classes.tolist()], np.uint8)
    if model.frame == "sequence":
        kinds[kinds != SKIPPED] = LETTER
    is_space = table.is_space if model.whitespace != "letter" else np.zeros(256, np.bool_)
    flags = np.where(table.needs_reference & ~table.is_sign, REFERENCE, 0)
    flags |= np.where(is_space, SPACES, 0) | np.where(table.is_sign, SIGN, 0)
    flags |= np.where(kinds != LETTER, BREAK, 0) | np.where(is_letter, 0, NO_LETTER)
    flags |= np.where(np.arange(256) >= ASCII, HIGH, 0)
    return NativeTables(
        flags.astype(np.uint8),
        kinds,
        np.where(is_letter, table.codes, 0).astype(np.uint16),
        table.letter_ids.astype(np.uint32),
    )
