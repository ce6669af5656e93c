"""Vocabularies whose batches of bases are one launch: tables of cuda/bases_*.cuh. NumPy only."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import NDArray

from gpu.dna_letters import Letters
from gpu.job import constant
from vocabularies.vocabulary import Vocabulary

__all__ = ["Bases", "bases_of"]

UInt32s = NDArray[np.uint32]
UInt64s = NDArray[np.uint64]

GAP, DROPPED, OTHER = (constant(f"BASES_{name}") for name in ("GAP", "DROPPED", "OTHER"))
LETTER_MIXED, LETTER_GAP = constant("LETTER_MIXED"), constant("LETTER_GAP")
LETTER_DROPPED, MAX_LETTERS = constant("LETTER_DROPPED"), constant("MAX_LETTERS")
FIRST_FACTOR, GOLDEN = 0xD6E8FEB86659FD93, 0x9E3779B97F4A7C15
SPARE_BITS = 2  # Of a slot's number, beyond those that the tokens need.


@dataclass(frozen=True, slots=True, eq=False)
class Bases:
    """What the kernels read.

    Attributes:
        classes: uint8[256], the code of a base or one of BASES_*.
        ids: uint32[slots, 2], a hash table of tokens of many letters: tag, id + 1; zeros are empty.
        factor: of its hash function.
    """

    classes: NDArray[np.uint8]
    ids: UInt32s
    factor: int

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """By Job field."""
        return {"bases_classes": self.classes, "bases_ids": self.ids}

    def numbers(self) -> dict[str, int]:
        """By Job field."""
        return {"bases_shift": 65 - len(self.ids).bit_length(), "bases_factor": self.factor}


def bases_of(
    vocabulary: Vocabulary,
    letters: Letters,
    codes: dict[bytes, list[int]],
    ids: dict[bytes, int],
    k: int,
) -> Bases | None:
    """The tables; `ids` are those of tokens with their letters, of which more than `k` are many.

    None where bases alone may be a special token or a motif.
    """
    signs = [
        _sign(token.content.encode(), letters)
        for token in vocabulary.special_tokens
        if token.matched
    ]
    if vocabulary.motifs or None in signs:
        return None
    classes = np.full(256, OTHER, np.uint8)
    classes[letters.classes < LETTER_MIXED] = letters.classes[letters.classes < LETTER_MIXED]
    classes[letters.classes == LETTER_GAP] = GAP
    classes[letters.classes == LETTER_DROPPED] = DROPPED
    stripped = letters.stripped[letters.stripped < 0x80].tolist()
    runs = [letters.steps.run_letter] if letters.steps.run_letter else []
    classes[[*signs, *stripped, *runs, *range(0x7F, 256)]] = OTHER  # DEL: see NEVER_KNOWN.
    long = {token: each for token, each in codes.items() if len(each) > k}
    return Bases(classes, *_table(list(long.values()), [ids[token] for token in long]))


def _sign(content: bytes, letters: Letters) -> int | None:
    """A byte by which a special token is known to be near; None where all are bases."""
    return next((byte for byte in content if byte not in letters.bases), None)


def _table(tokens: list[list[int]], ids: list[int]) -> tuple[UInt32s, int]:
    """Where tokens lie by their hashes, whose lower halves all differ, and the factor of these."""
    bits = len(tokens).bit_length() + SPARE_BITS
    numbers = [sum(code << 2 * i for i, code in enumerate(each)) for each in tokens]
    for step in count():
        factor = FIRST_FACTOR + 2 * step
        hashes = [_hash(n, len(t), factor) for n, t in zip(numbers, tokens, strict=True)]
        if len({each & 0xFFFFFFFF for each in hashes}) == len(hashes):
            break
    slots = np.zeros((1 << bits, 2), np.uint32)
    for each, token_id in zip(hashes, ids, strict=True):
        slot = each >> (64 - bits)
        while slots[slot, 1]:
            slot = (slot + 1) % len(slots)
        slots[slot] = each & 0xFFFFFFFF, token_id + 1
    return slots, factor


def _hash(number: int, length: int, factor: int) -> int:
    """Of letters, the first one's bits the lowest; see hash_of_token in cuda/bases_ids.cuh."""
    most = (1 << 64) - 1
    high, low = number, 0
    if length > 32:  # The latest 32 letters, and those before.
        high, low = number >> 2 * (length - 32), number & ((1 << 2 * (length - 32)) - 1)
    made = ((high ^ (low + length) * factor) & most) * GOLDEN & most
    return (made ^ made >> 32) * factor & most
