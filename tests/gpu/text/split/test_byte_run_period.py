"""Where the tokens of long runs begin, against the reference."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.text.byte_run_period import MAX_STEP, RUN, run_steps
from tests.gpu.text.random_vocabularies import vocabulary_of
from vocabularies.builtin import load
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference.bpe import Symbol, make_bpe_rules, merge


def borders(vocabulary: Vocabulary, byte: int, size: int) -> set[int]:
    """Where the tokens of a run begin, by the definition."""
    rules = make_bpe_rules(vocabulary)
    symbols = [Symbol(rules.token_ids[bytes([byte])], at, at + 1) for at in range(size)]
    return {symbol.begin for symbol in merge(symbols, rules)}


@given(seed=st.integers(0, 2**32))
def test_borders_in_the_front_half_of_a_run_repeat_after_a_step(seed):
    """Merges in order: rounds are the definition then."""
    chance, lengths, merges = random.Random(seed), [1], []
    for _ in range(chance.randint(1, 8)):
        left, right = chance.choice(lengths), chance.choice(lengths)
        if left + right <= MAX_STEP and (left, right) not in merges:
            merges.append((left, right))
            lengths.append(left + right)
    vocabulary = vocabulary_of([(b"a" * left, b"a" * right) for left, right in merges])
    step, found = int(run_steps(make_bpe_rules(vocabulary))[ord("a")]), borders(vocabulary, 97, RUN)
    steps = [
        wanted
        for wanted in range(1, MAX_STEP + 1)
        if all((at in found) == (at - wanted in found) for at in range(wanted, RUN // 2))
        and wanted in found
    ]
    assert step == (steps[0] if steps and (1, 1) in merges else 0)


@pytest.mark.parametrize(
    ("name", "byte", "step"),
    [("gpt2", "-", 64), ("gpt2", " ", 0), ("cl100k_base", "\n", 32), ("o200k_base", " ", 128)],
)
def test_steps_of_published_vocabularies(name, byte, step):
    vocabulary = load(name)
    assert run_steps(make_bpe_rules(vocabulary))[ord(byte)] == step
    found = sorted(borders(vocabulary, ord(byte), RUN))
    assert not step or all(b - a == step for a, b in itertools.pairwise(found[:3]))
