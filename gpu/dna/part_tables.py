"""Makes the tables of cuda/dna/parts/, whose kernels encode a small DNA batch in one launch.

NumPy only.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import NDArray

from gpu.dna.alphabet import Letters
from gpu.dna.compatible_pairs import Pairs
from gpu.dna.repeat_table import repeat_table
from gpu.dna.suffix_tables import Endings
from gpu.kernels.job import constant
from vocabularies.model.vocabulary import Vocabulary

UInt32s = NDArray[np.uint32]
UInt64s = NDArray[np.uint64]

GAP, DROPPED, OTHER, MIXED = (
    constant(f"PART_CLASS_{name}") for name in ("GAP", "DROPPED", "OTHER", "MIXED")
)
RUN_BEGINS = constant("RUN_BEGINS") - constant("GAP_LENGTH")
LETTER_MIXED, LETTER_GAP = constant("LETTER_MIXED"), constant("LETTER_GAP")
LETTER_DROPPED, MAX_LETTERS = constant("LETTER_DROPPED"), constant("MAX_LETTERS")
FIRST_FACTOR, GOLDEN = 0xD6E8FEB86659FD93, 0x9E3779B97F4A7C15
SPARE_BITS = 2  # The hash table has four slots for each token, or more.
BEFORE_LETTERS, EARLY = constant("BEFORE_LETTERS"), constant("EARLY")
MOST_MIXED = 32  # The most letters of a mixed token.


@dataclass(frozen=True, slots=True, eq=False)
class PartTables:
    """The tables of a vocabulary for the kernels of cuda/dna/parts.

    Attributes:
        classes: uint8[256], the code of a base, or one of PART_CLASS_*.
        ids: uint32[slots, 2], a hash table of tokens of more than k letters: tag, id + 1; empty
            slots are zeros.
        factor: the factor of its hash function.
        mixed: uint64[..., 2], the mixed tokens, see cuda/dna/parts/mixed_letters.cuh.
        tail: the largest number of bases after the last other letter of a mixed token.
        repeats: uint32[256 + 64, REPEAT_LENGTHS], see repeat_table.repeat_table.
    """

    classes: NDArray[np.uint8]
    ids: UInt32s
    factor: int
    mixed: UInt64s
    tail: int
    repeats: UInt32s

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return {Job field: array} for the device."""
        return {
            "part_classes": self.classes,
            "part_ids": self.ids,
            "part_mixed": self.mixed.reshape(-1),
            "part_repeats": self.repeats,
        }

    def numbers(self) -> dict[str, int]:
        """Return {Job field: value} for the other fields of the Job."""
        return {
            "part_shift": 65 - len(self.ids).bit_length(),
            "part_factor": self.factor,
            "num_part_mixed": len(self.mixed),
            "part_tail": self.tail,
        }


def part_tables(
    vocabulary: Vocabulary,
    letters: Letters,
    codes: dict[bytes, list[int]],
    ids: dict[bytes, int],
    k: int,
    endings: Endings,
    pairs: Pairs,
) -> PartTables | None:
    """Make the tables of a vocabulary; None if a special token or a motif may have only bases.

    Args:
        vocabulary: the vocabulary.
        letters: the tables of its letters.
        codes: the letters of each token that consists of bases alone.
        ids: the ids of these tokens and of mixed ones.
        k: the largest number of letters of a token that is looked up by its letters instead of a
            hash.
        endings: the tables of last tokens.
        pairs: the relation of compatible tokens.
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
    if letters.steps.run_length:
        classes[letters.steps.run_letter] = MIXED
    mixed = {token: ids[token] for token in ids if token not in codes}
    letter, tail = _mixed_letter(letters, list(mixed), k, endings)
    if letter is not None:
        classes[letter] = MIXED
    classes[[*signs, *stripped, RUN_BEGINS, *range(0x7F, 256)]] = OTHER  # DEL: see NEVER_KNOWN.
    long = {token: each for token, each in codes.items() if len(each) > k}
    slots, factor = _table(list(long.values()), [ids[token] for token in long])
    spelled = [] if letter is None else [_spelled(t, i, letters) for t, i in mixed.items()]
    mixed_tokens = np.array(spelled, np.uint64).reshape(-1, 2)
    return PartTables(classes, slots, factor, mixed_tokens, tail, repeat_table(codes, ids, pairs))


def _mixed_letter(
    letters: Letters, tokens: list[bytes], k: int, endings: Endings
) -> tuple[int | None, int]:
    """Return the only other letter in merges, and the largest number of bases after it in a token.

    The letter is None if there are several, if runs of another letter are replaced, or if the
    kernels could not decide the tokens soon after it.
    """
    found = np.flatnonzero(letters.classes == LETTER_MIXED).tolist()
    if len(found) != 1 or (letters.steps.run_length and letters.steps.run_letter != found[0]):
        return None, 0
    tail = max(len(token) - 1 - token.rindex(found[0]) for token in tokens)
    most_letters = endings.k + BEFORE_LETTERS * endings.levels
    is_decidable = endings.k + tail <= k + 1 and most_letters + tail <= EARLY
    return (found[0] if is_decidable and max(map(len, tokens)) <= MOST_MIXED else None), tail


def _spelled(token: bytes, token_id: int, letters: Letters) -> tuple[int, int]:
    """Return the row of a mixed token in `PartTables.mixed`."""
    codes = mask = 0
    for place, letter in enumerate(reversed(token)):
        is_mixed = letter not in letters.bases
        code = MIXED & 3 if is_mixed else letters.bases.index(letter)
        codes |= code << 62 - 2 * place
        mask |= is_mixed << 31 - place
    return codes, token_id | len(token) << 16 | mask << 32


def _sign(content: bytes, letters: Letters) -> int | None:
    """Return a byte of a special token that is not a base; None if there is none."""
    return next((byte for byte in content if byte not in letters.bases), None)


def _table(tokens: list[list[int]], ids: list[int]) -> tuple[UInt32s, int]:
    """Return the hash table of tokens and the factor of its hashes, whose lower halves differ."""
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
    """Hash letters as hash_of_token of cuda/dna/parts/write_ids.cuh does."""
    most = (1 << 64) - 1
    high, low = number, 0
    if length > 32:  # The latest 32 letters, and those before.
        high, low = number >> 2 * (length - 32), number & ((1 << 2 * (length - 32)) - 1)
    made = ((high ^ (low + length) * factor) & most) * GOLDEN & most
    return (made ^ made >> 32) * factor & most
