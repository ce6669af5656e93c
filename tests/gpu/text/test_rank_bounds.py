"""The distance from each rank to the lowest rank of a pair with the merged symbol."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gpu.text.bpe_tables import NO_BOUND, bpe_tables
from tests.gpu.text.random_vocabularies import random_merges, vocabulary_of
from vocabularies.builtin import load
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference.bpe import make_bpe_rules


def distances(vocabulary: Vocabulary) -> dict[int, int]:
    """By rank, from the rules: 0 where a pair of lower rank has the token; none without a pair."""
    merges = make_bpe_rules(vocabulary).merges
    first: dict[int, int] = {}
    for (left, right), (rank, _) in merges.items():
        for part in (left, right):
            first[part] = min(rank, first.get(part, rank))
    return {rank: max(0, first[token] - rank) for rank, token in merges.values() if token in first}


def decoded(code: int) -> int:
    """Decode an entry as cuda/text/split/window_rounds.cuh does."""
    return code % 32 << code // 32


@pytest.mark.parametrize("name", ["gpt2", "cl100k_base", "in any order"])
def test_a_bound_is_never_too_far_and_seldom_much_too_near(name):
    if name == "in any order":
        merges = random_merges(random.Random(5), "abcd", 200)
        random.Random(6).shuffle(merges)
        vocabulary = vocabulary_of(merges)
    else:
        vocabulary = load(name)
    wanted = distances(vocabulary)
    bounds = bpe_tables(vocabulary, 1).rank_bounds
    assert set(np.flatnonzero(bounds != NO_BOUND).tolist()) == set(wanted)
    for rank, distance in wanted.items():
        found = decoded(int(bounds[rank]))
        assert distance * 15 // 16 <= found <= distance
        assert (found == 0) == (distance == 0)
    assert any(distance > 32 for distance in wanted.values())
