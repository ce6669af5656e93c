"""Computes which two tokens may be neighbours in a byte-pair encoding, by classes of tokens.

Tokens l and r are *compatible* if enc(l + r) = l, r; see *Pairs decide* in
docs/internals/text-bpe.md.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vocabularies.reference.bpe import BpeRules, Symbol, merge

NEVER = 1 << 40  # Stands for the rank at which a whole token is merged: it never is.
MAX_TRIED = 256  # The most tokens for which every pair is encoded.
Spine = tuple[tuple[int, int], ...]
"""(symbol, rank of the merge that consumes it), from a letter to the whole token."""
Waiting = tuple[tuple[int, int], ...]
"""(symbol, how many of the merges that consume it on one side, those of the lowest ranks)."""


@dataclass(frozen=True, slots=True)
class Derivation:
    """The merges that make a token from its letters, at its two ends.

    Attributes:
        left, right: the symbols at its left and at its right end, one after another.
    """

    left: Spine
    right: Spine


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


def derivation_of(symbols: Sequence[int], rules: BpeRules) -> Derivation | None:
    """Merge a token's letters and return the derivation; None if several symbols remain."""
    merges, slots = rules.merges, list(symbols)
    pairs = [merges.get(pair) for pair in pairwise(slots)]
    left: list[tuple[int, int]] = []
    right: list[tuple[int, int]] = []
    while pairs:
        known = [pair for pair in pairs if pair is not None]
        if not known:
            return None
        lowest = min(known)
        place, (rank, merged) = pairs.index(lowest), lowest
        if place == 0:
            left.append((slots[0], rank))
        if place == len(pairs) - 1:
            right.append((slots[-1], rank))
        slots[place : place + 2] = [merged]
        del pairs[place]
        if place > 0:
            pairs[place - 1] = merges.get((slots[place - 1], merged))
        if place < len(pairs):
            pairs[place] = merges.get((merged, slots[place + 1]))
    whole = (slots[0], NEVER)
    return Derivation((*left, whole), (*right, whole))


def in_order(rules: BpeRules) -> bool:
    """Whether every merge has a higher rank than all merges that make its parts."""
    latest: dict[int, int] = {}
    for rank, merged in rules.merges.values():
        latest[merged] = max(rank, latest.get(merged, -1))
    return all(
        rank > max(latest.get(left, -1), latest.get(right, -1))
        for (left, right), (rank, _) in rules.merges.items()
    )


def compatible_pairs(
    letters: Sequence[Sequence[int]], derivations: Sequence[Derivation], rules: BpeRules
) -> Pairs:
    """Compute the relation of tokens, given by the ids of their letters and their derivations.

    Raises:
        ValueError: the merges are out of order, and there are too many tokens to try every pair.
    """
    if in_order(rules):
        return _by_spines(derivations, rules)
    if len(letters) > MAX_TRIED:
        raise ValueError(f"merges out of order and more than {MAX_TRIED} tokens")
    return _by_trial(letters, rules)


def _by_spines(derivations: Sequence[Derivation], rules: BpeRules) -> Pairs:
    """Compute the relation for merges in order, from the spines of the tokens.

    A merge (x, y) of rank m crosses the border of l and r exactly if x is on the right spine of l,
    y is on the left spine of r, and neither was consumed by a merge before m. If x is consumed at
    rank m, too, that merge is further left and comes first, so m must be lower. If y is, that merge
    is further right and comes second, so m may be equal.
    """
    by_left: dict[int, list[int]] = defaultdict(list)
    by_right: dict[int, list[int]] = defaultdict(list)
    for rank, x, y in sorted((rank, *pair) for pair, (rank, _) in rules.merges.items()):
        by_left[x].append(rank)
        by_right[y].append(rank)
    left, left_sets = _classes(_waiting(each.right, by_left, 0) for each in derivations)
    right, right_sets = _classes(_waiting(each.left, by_right, 1) for each in derivations)
    num_words = -(-len(right_sets) // 32)
    crossed = np.zeros((1 + max(rank for rank, _ in rules.merges.values()), num_words), np.uint32)
    for number, waiting in enumerate(right_sets):
        ranks = [rank for symbol, count in waiting for rank in by_right[symbol][:count]]
        crossed[ranks, number // 32] |= np.uint32(1 << number % 32)
    bits = np.full((1 + len(left_sets), num_words), 0xFFFFFFFF, np.uint32)
    for number, waiting in enumerate(left_sets):
        ranks = [rank for symbol, count in waiting for rank in by_left[symbol][:count]]
        bits[1 + number] = ~np.bitwise_or.reduce(crossed[ranks], axis=0)
    return Pairs(left + np.uint16(1), right, bits)


def _waiting(spine: Spine, ranks_of: Mapping[int, list[int]], may_equal: int) -> Waiting:
    """Return the merges that could consume a symbol of a spine across the border."""
    return tuple(
        (symbol, count)
        for symbol, end in spine
        if symbol in ranks_of and (count := bisect_left(ranks_of[symbol], end + may_equal))
    )


def _classes(all_waiting: Iterable[Waiting]) -> tuple[NDArray[np.uint16], list[Waiting]]:
    """Return the class of each, and what waits in each class."""
    numbers: dict[Waiting, int] = {}
    classes = [numbers.setdefault(each, len(numbers)) for each in all_waiting]
    return np.array(classes, np.uint16), list(numbers)


def _by_trial(letters: Sequence[Sequence[int]], rules: BpeRules) -> Pairs:
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
    """Whether the letters of two tokens encode to these two tokens."""
    symbols = [Symbol(letter, place, place + 1) for place, letter in enumerate((*left, *right))]
    merged = merge(symbols, rules)
    return len(merged) == 2 and merged[0].end == len(left)
