"""Which two tokens may stand side by side in a byte-pair encoding, by classes of tokens.

Tokens l and r are *compatible* where enc(l + r) = l, r; see *Pairs decide* in
docs/internals/text-bpe.md. Knows no text and no device.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise

import numpy as np
from numpy.typing import NDArray

from vocabularies.reference.bpe import BpeRules, Symbol, merge

NEVER = 1 << 40  # The rank at which a whole token is merged any further.
MAX_TRIED = 256  # Tokens of a list out of order, of which every pair is tried.
Spine = tuple[tuple[int, int], ...]
"""(symbol, rank of the merge that it goes into), from the letter to the whole token."""


@dataclass(frozen=True, slots=True)
class Run:
    """How the merges make a token from its letters.

    Attributes:
        left, right: the symbols that stood at its left and at its right end.
    """

    left: Spine
    right: Spine


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """The relation.

    Attributes:
        left, right: uint16[T], the class of each token as the left and as the right one; left
            classes begin with 1, for class 0 is "nothing stands there".
        bits: uint32[left classes + 1, ceil(right classes / 32)], 1 where compatible.
    """

    left: NDArray[np.uint16]
    right: NDArray[np.uint16]
    bits: NDArray[np.uint32]


def run_of(symbols: Sequence[int], rules: BpeRules) -> Run | None:
    """The run over a token's letters; None where it does not end in one symbol."""
    merges, slots = rules.merges, list(symbols)
    left: list[tuple[int, int]] = []
    right: list[tuple[int, int]] = []
    while len(slots) > 1:
        found = [
            (merges[pair][0], place) for place, pair in enumerate(pairwise(slots)) if pair in merges
        ]
        if not found:
            return None
        rank, place = min(found)
        if place == 0:
            left.append((slots[0], rank))
        if place == len(slots) - 2:
            right.append((slots[-1], rank))
        slots[place : place + 2] = [merges[slots[place], slots[place + 1]][1]]
    whole = (slots[0], NEVER)
    return Run((*left, whole), (*right, whole))


def in_order(rules: BpeRules) -> bool:
    """Whether every pair's rank is above those of all merges that give its parts."""
    latest: dict[int, int] = {}
    for rank, merged in rules.merges.values():
        latest[merged] = max(rank, latest.get(merged, -1))
    return all(
        rank > max(latest.get(left, -1), latest.get(right, -1))
        for (left, right), (rank, _) in rules.merges.items()
    )


def compatible_pairs(
    letters: Sequence[Sequence[int]], runs: Sequence[Run], rules: BpeRules
) -> Pairs:
    """The relation of tokens, given by the ids of their letters and their runs.

    Raises:
        ValueError: the merges are out of order and the tokens too many to try every pair.
    """
    if in_order(rules):
        return _by_spines(runs, rules)
    if len(letters) > MAX_TRIED:
        raise ValueError(f"merges out of order and more than {MAX_TRIED} tokens")
    return _by_trial(letters, rules)


def _by_spines(runs: Sequence[Run], rules: BpeRules) -> Pairs:
    """Of merges in order: by what stood at the border while the two tokens were made.

    A merge (x, y) of rank m crosses the border of l and r exactly where x stood at the right end of
    l, y at the left end of r, and neither had gone into something else before m's turn. x goes at
    rank m only into what is left of the border, which comes first: m must be lower. y at rank m
    goes into what is right of it, which comes second: m may be equal.
    """
    by_left: dict[int, list[int]] = defaultdict(list)
    by_right: dict[int, list[int]] = defaultdict(list)
    for rank, x, y in sorted((rank, *pair) for pair, (rank, _) in rules.merges.items()):
        by_left[x].append(rank)
        by_right[y].append(rank)
    waiting_left = [_waiting(run.right, by_left, 0) for run in runs]
    waiting_right = [_waiting(run.left, by_right, 1) for run in runs]
    left, left_sets = _classes(waiting_left)
    right, right_sets = _classes(waiting_right)
    num_words = -(-len(right_sets) // 32)
    crossed = np.zeros((1 + max(rank for rank, _ in rules.merges.values()), num_words), np.uint32)
    for number, ranks in enumerate(right_sets):
        crossed[list(ranks), number // 32] |= np.uint32(1 << number % 32)
    bits = np.full((1 + len(left_sets), num_words), 0xFFFFFFFF, np.uint32)
    for number, ranks in enumerate(left_sets):
        bits[1 + number] = ~np.bitwise_or.reduce(crossed[list(ranks)], axis=0)
    return Pairs(left + np.uint16(1), right, bits)


def _waiting(spine: Spine, ranks_of: Mapping[int, list[int]], may_equal: int) -> frozenset[int]:
    """The merges that some symbol of a spine would go into across the border."""
    waiting = [ranks_of[symbol] for symbol, _ in spine]
    ends = [
        bisect_left(ranks, end + may_equal) for ranks, (_, end) in zip(waiting, spine, strict=True)
    ]
    return frozenset(chain.from_iterable(map(islice, waiting, ends)))


def _classes(sets: Iterable[frozenset[int]]) -> tuple[NDArray[np.uint16], list[frozenset[int]]]:
    """The class of each and the sets of the classes."""
    numbers: dict[frozenset[int], int] = {}
    classes = [numbers.setdefault(each, len(numbers)) for each in sets]
    return np.array(classes, np.uint16), list(numbers)


def _by_trial(letters: Sequence[Sequence[int]], rules: BpeRules) -> Pairs:
    """The definition for every pair: a class for each token."""
    count = len(letters)
    compatible = np.ones((count + 1, -(-count // 32) * 32), np.bool_)
    for i, left in enumerate(letters):
        for j, right in enumerate(letters):
            compatible[i + 1, j] = _stays_apart(left, right, rules)
    bits = np.packbits(compatible, axis=1, bitorder="little").view(np.uint32)
    numbers = np.arange(count, dtype=np.uint16)
    return Pairs(numbers + np.uint16(1), numbers, bits)


def _stays_apart(left: Sequence[int], right: Sequence[int], rules: BpeRules) -> bool:
    """Whether the letters of two tokens become these two tokens."""
    symbols = [Symbol(letter, place, place + 1) for place, letter in enumerate((*left, *right))]
    merged = merge(symbols, rules)
    return len(merged) == 2 and merged[0].end == len(left)
