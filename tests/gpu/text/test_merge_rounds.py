"""Pieces that are merged in rounds on the emulated device, against the reference."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gpu.text.test_merge import SEEDS, vocabulary_of
from tests.gpu.text.test_split import check, doubled, random_merges


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, in_order=st.booleans(), few=st.booleans(), number=st.sampled_from([3, 100, 300]))
def test_few_long_pieces_are_merged_in_rounds_and_many_are_not(seed, in_order, few, number):
    """Of more than 32 bytes, of more than 64 where they are more than the 64 warps, or none."""
    chance, letters = random.Random(seed), "abcd"
    merges = random_merges(chance, letters, chance.randint(4, 50)) + doubled(b"a", 5)
    if not in_order:
        chance.shuffle(merges)
    texts = []
    for _ in range(number):
        runs = (chance.choice(letters) * chance.choice([1, 1, 2, 5, 40]) for _ in range(128))
        texts.append("".join(runs)[: chance.randint(33, 128)])
    assert check(vocabulary_of([*dict.fromkeys(merges)]), texts, few=few).pieces == 0
