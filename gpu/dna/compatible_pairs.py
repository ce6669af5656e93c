"""Computes which tokens may be neighbours in a byte-pair encoding, by classes of tokens.

Tokens l and r are *compatible* if enc(l + r) = l, r; see *Pairs decide* in
docs/internals/text-bpe.md. host/native/compatible_pairs.cpp computes the relation if merges are in
order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from gpu.errors import NotCovered
from vocabularies.reference.bpe import BpeRules, Symbol, merge

try:
    from gpu.host import _compatible_pairs as native
except ImportError:
    native = None  # type: ignore[assignment]

MAX_TRIED = 256  # The most tokens for which every pair is encoded.
MAX_PAIR_BYTES = 64 << 20
NO_LETTER = -1


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """The relation of compatible tokens.

    Attributes:
        left, right: uint16[T], the class of each token as the left and as the right neighbour. Left
            classes begin with 1; class 0 is the beginning of a text.
        bits: uint32[left classes + 1, ceil(right classes / 32)], 1 where compatible.
    """

    left: NDArray[np.uint16]
    right: NDArray[np.uint16]
    bits: NDArray[np.uint32]


@dataclass(frozen=True, slots=True, eq=False)
class SpelledTokens:
    """Tokens as the ids of their letters.

    Attributes:
        letters: int32[sum of lengths], the ids of all letters; NO_LETTER for those without one.
        lengths: int32[T].
    """

    letters: NDArray[np.int32]
    lengths: NDArray[np.int32]

    @classmethod
    def of(cls, tokens: Collection[str], letter_ids: Mapping[str, int]) -> SpelledTokens:
        """Spell tokens by the ids of letters."""
        spelled = np.frombuffer("".join(tokens).encode("utf-32-le"), "<u4")
        known = np.array([*map(ord, letter_ids)], np.uint32)
        most = max(spelled.max(initial=0), known.max(initial=0))
        ids = np.full(most + 1, NO_LETTER, np.int32)
        ids[known] = [*letter_ids.values()]
        return cls(ids[spelled], np.fromiter(map(len, tokens), np.int32, len(tokens)))

    def rows(self) -> list[list[int]]:
        """Return the letters of each token."""
        return [part.tolist() for part in np.split(self.letters, np.cumsum(self.lengths)[:-1])]


def find_reached(tokens: SpelledTokens, rules: BpeRules) -> NDArray[np.bool_]:
    """Return bool[T], whether merges make a token from its letters.

    Raises:
        NotCovered: the extension is not built.
    """
    _check_extension()
    reached = native.reached(tokens.letters, tokens.lengths, _merge_array(rules))
    return np.frombuffer(reached, np.bool_)


def compatible_pairs(tokens: SpelledTokens, rules: BpeRules) -> Pairs:
    """Compute the relation of tokens that merges reach.

    Raises:
        NotCovered: the extension is not built, the relation is too large, or the merges are out of
            order, and there are too many tokens to try every pair.
    """
    _check_extension()
    merges = _merge_array(rules)
    try:
        related = native.relate(tokens.letters, tokens.lengths, merges, MAX_PAIR_BYTES)
    except ValueError as error:
        raise NotCovered(str(error)) from error
    if related is not None:
        left, right, bits, num_words = related
        return Pairs(
            np.frombuffer(left, np.uint16),
            np.frombuffer(right, np.uint16),
            np.frombuffer(bits, np.uint32).reshape(-1, num_words),
        )
    if len(tokens.lengths) > MAX_TRIED:
        raise NotCovered(f"merges out of order and more than {MAX_TRIED} tokens")
    return pairs_by_trial(tokens.rows(), rules)


def _check_extension() -> None:
    if native is None:
        raise NotCovered("the C++ extension _compatible_pairs is not built")


def _merge_array(rules: BpeRules) -> NDArray[np.int32]:
    """Return int32[M, 4], the left and the right id, the rank and the merged id of each merge."""
    numbers = chain.from_iterable(chain.from_iterable(rules.merges.items()))
    return np.fromiter(numbers, np.int32, 4 * len(rules.merges)).reshape(-1, 4)


def pairs_by_trial(letters: Sequence[Sequence[int]], rules: BpeRules) -> Pairs:
    """Compute the relation by its definition, for every pair; each token is its own class."""
    count = len(letters)
    compatible = np.ones((count + 1, -(-count // 32) * 32), np.bool_)
    for i, left in enumerate(letters):
        for j, right in enumerate(letters):
            compatible[i + 1, j] = _stays_apart(left, right, rules)
    bits = np.packbits(compatible, axis=1, bitorder="little").view(np.uint32)
    numbers = np.arange(count, dtype=np.uint16)
    return Pairs(numbers + np.uint16(1), numbers, bits)


def _stays_apart(left: Sequence[int], right: Sequence[int], rules: BpeRules) -> bool:
    """Return whether the letters of two tokens encode to these two tokens."""
    symbols = [Symbol(letter, place, place + 1) for place, letter in enumerate((*left, *right))]
    merged = merge(symbols, rules)
    return len(merged) == 2 and merged[0].end == len(left)
