"""Makes the tables by which cuda/dna/tokens.cuh finds the longest token at a position.

Letters are the four bases, as numbers of two bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu.dna.alphabet import BASES
from gpu.kernels.job import constant

UInt16s = NDArray[np.uint16]
UInt32s = NDArray[np.uint32]
UInt64s = NDArray[np.uint64]

NO_TOKEN, LONG_TOKENS = constant("NO_TOKEN"), constant("LONG_TOKENS")
MAX_LETTERS, NEXT_LETTERS = constant("MAX_LETTERS"), constant("NEXT_LETTERS")


@dataclass(frozen=True, slots=True, eq=False)
class Longest:
    """The tables of the longest token that begins at a position, by the letters from there on.

    Attributes:
        first: uint16[4**k], the longest token that is a prefix of the k letters; LONG_TOKENS |
            number if longer tokens begin with all of the k letters.
        longer: uint16[numbers, 4**n], by the next n letters, the longest token that is a prefix of
            the k + n letters; LONG_TOKENS if longer tokens begin with all of them.
        ranges: uint32[numbers, 4], begin and end among the tokens of more than k letters, and the
            longest token of up to k letters.
        keys: uint64[long tokens, 2], their letters from the highest bits on.
        ids: uint32[long tokens], length << 16 | id.
    """

    first: UInt16s
    longer: UInt16s
    ranges: UInt32s
    keys: UInt64s
    ids: UInt32s

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return {Job field: array} for the device."""
        return {
            "dna_longest": self.first,
            "dna_longer": self.longer,
            "long_ranges": self.ranges,
            "long_keys": self.keys,
            "long_ids": self.ids,
        }


def longest_tokens(
    codes: dict[bytes, list[int]], ids: dict[bytes, int], k: int, next_letters: int = NEXT_LETTERS
) -> Longest:
    """Make the tables of tokens from their letters and ids.

    `first` is indexed by k letters, `longer` by the next ones.
    """
    first = np.full(BASES**k, NO_TOKEN, np.uint16)
    for token in sorted(codes, key=len):
        if len(token) <= k:
            first.reshape(-1, BASES ** len(token))[:, _code(codes[token])] = ids[token]
    entries = sorted(
        (_code(codes[token][:k]), _key(codes[token]), len(token), ids[token])
        for token in codes
        if len(token) > k
    )
    ranges: list[list[int]] = []
    numbers: dict[int, int] = {}
    for place, (code, *_) in enumerate(entries):
        if code not in numbers:
            numbers[code] = len(ranges)
            ranges.append([place, place, int(first[code]), 0])
        ranges[-1][1] = place + 1
    shorter = [each for _, _, each, _ in ranges]
    longer = _longer(codes, ids, (k, next_letters), numbers, shorter)
    for code, number in numbers.items():
        first[code] = LONG_TOKENS | number
    return Longest(
        first=first,
        longer=longer,
        ranges=np.array(ranges, np.uint32).reshape(-1, 4),
        keys=np.array([key for _, key, _, _ in entries], np.uint64).reshape(-1, 2),
        ids=np.array([length << 16 | token_id for _, _, length, token_id in entries], np.uint32),
    )


def _longer(
    codes: dict[bytes, list[int]],
    ids: dict[bytes, int],
    letters: tuple[int, int],
    numbers: dict[int, int],
    shorter: list[int],
) -> UInt16s:
    """Return `Longest.longer`; `shorter` has the longest token of up to k letters by number."""
    k, next_letters = letters
    longer = np.repeat(np.array(shorter, np.uint16)[:, None], BASES**next_letters, axis=1)
    for token in sorted(codes, key=len):
        rest = codes[token][k : k + next_letters]
        if not rest:
            continue
        row = longer[numbers[_code(codes[token][:k])]].reshape(-1, BASES ** len(rest))
        row[:, _code(rest)] = LONG_TOKENS if len(token) > k + next_letters else ids[token]
    return longer


def spelled_tokens(codes: dict[bytes, list[int]], ids: dict[bytes, int], k: int) -> UInt16s:
    """Return uint16[...]: the token that 1 .. k letters spell, from (4**length - 4) / 3 on."""
    spelled = np.full((BASES ** (k + 1) - BASES) // 3, NO_TOKEN, np.uint16)
    for token, bases in codes.items():
        if len(token) <= k:
            spelled[(BASES ** len(token) - BASES) // 3 + _code(bases)] = ids[token]
    return spelled


def _code(bases: Sequence[int]) -> int:
    return sum(base << 2 * place for place, base in enumerate(bases))


def _key(bases: Sequence[int]) -> tuple[int, int]:
    """Return two words with the first letter at the top and the two bits of each letter swapped."""
    whole = 0
    for base in bases:
        whole = whole << 2 | (base & 1) << 1 | base >> 1
    whole <<= 2 * (MAX_LETTERS - len(bases))
    return whole >> 64, whole & 0xFFFFFFFFFFFFFFFF
