"""Rows that repeat one to four letters: parts leave many of them, other kernels have their ids."""

from __future__ import annotations

import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpu.errors import NotCovered
from tests.gpu.dna.test_bpe import merge_lists, vocabulary_of
from tests.gpu.dna.test_parts import NAMES, bases, check, engine_of, outcomes
from vocabularies.batch.batch import EncodeOptions
from vocabularies.builtin import load
from vocabularies.model.vocabulary import Vocabulary

__all__ = ["outcomes"]

UNITS = ("A", "T", "CA", "TG", "CAA", "TTC", "AGAT", "GGGC")


def repeated(unit: str, length: int, begin: int = 0) -> str:
    return (unit * (length // len(unit) + 2))[begin : begin + length]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_rows_of_any_length_have_the_ids_of_the_reference(engine, name):
    """Shorter than a part's lead, longer, from anywhere in a unit on."""
    chance = random.Random(1)
    for unit in UNITS:
        lengths = [*range(1, 30), 100, 150, 255, 256, 257, 300, 500, 512, 1000, 2048, 4092]
        check(engine, load(name), [repeated(unit, n, chance.randrange(4)) for n in lengths])
        check(engine, load(name), [repeated(unit, 500)] * 60, EncodeOptions())


@pytest.mark.parametrize("name", NAMES)
def test_a_row_may_be_in_front_of_a_part(engine, name):
    """Whatever its begin is aligned to."""
    for unit in ("A", "CA", "CAA"):
        for begin in (1, 2, 3, 4):
            check(engine, load(name), [bases(1, begin), repeated(unit, 4092)])
        check(engine, load(name), [repeated(unit, 25_000)])


@pytest.mark.parametrize("name", NAMES)
def test_repeats_end_and_begin_anywhere(engine, name):
    """At a letter in between, at a gap, in another case; another unit may follow."""
    chance = random.Random(2)
    for _case in range(12):
        rows = []
        for _ in range(40):
            unit = "".join(chance.choices("ACGT", k=chance.randint(1, 5)))
            row = [*repeated(unit, chance.randint(1, 900))]
            for _ in range(chance.choice((0, 0, 0, 1, 3))):
                row[chance.randrange(len(row))] = chance.choice("ACGTNacx")
            rows.append("".join(row) + chance.choice(("", "", repeated(unit[:1], 90), "ACGTT")))
        check(engine, load(name), rows)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("unit", ["A", "CA"])
def test_texts_that_repeat_all_over_are_left(outcomes, name, unit):
    """Most of 32 neighbours are listed in all of a round."""
    engine = engine_of("emulated")  # Of two blocks, so that parts are long.
    check(engine, load(name), [repeated(unit, 500)] * 20)
    assert outcomes == [False]


@pytest.mark.parametrize("name", NAMES)
def test_many_listed_pairs_are_left(outcomes, name):
    """Where few places of a round are listed, too, as each waits for its neighbour."""
    engine = engine_of("emulated")  # Of two blocks, so that parts are long.
    for count in (2, 40):
        rows = [row for n in range(count) for row in (bases(n, 900), "G" + repeated("A", 250))]
        check(engine, load(name), rows)
    assert outcomes == [True, False]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Vocabulary, list[str]]:
    letters = draw(st.sampled_from(["AC", "ACG", "ACGT", "ACGTN"]))
    vocabulary = vocabulary_of(letters, draw(merge_lists(letters)))
    chance = random.Random(draw(st.integers(0, 1 << 30)))
    rows = []
    for _ in range(draw(st.integers(1, 12))):
        unit = "".join(chance.choices(letters, k=chance.randint(1, 4)))
        row = repeated(unit, chance.choice((30, 100, 300, 600, 2000)) + chance.randrange(40))
        if chance.random() < 0.2:
            row += "".join(chance.choices(letters, k=9)) + repeated(unit, 70)
        rows += [row] * chance.choice((1, 1, 5))
    return vocabulary, rows


@settings(max_examples=60, deadline=None)
@given(cases())
def test_any_vocabulary_has_the_ids_of_the_reference(case):
    vocabulary, rows = case
    engine = engine_of("emulated")
    try:
        check(engine, vocabulary, rows)
    except NotCovered:
        assume(False)
    finally:
        engine.unload(vocabulary.digest)
