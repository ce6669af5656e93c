"""Rows that repeat one to four letters: a table has their last tokens, in one launch."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpu.dna import part_tables
from gpu.dna.tables import dna_tables
from gpu.errors import NotCovered
from gpu.kernels.job import constant
from tests.gpu.dna.test_parts import NAMES, bases, check, engine_of, outcomes
from tests.support.inputs.letter_bpe import merge_lists, vocabulary_of
from vocabularies.batch.batch import EncodeOptions
from vocabularies.builtin import load
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference import tokenizer

__all__ = ["outcomes"]

REPEAT_LENGTHS, REPEAT_FRONT = constant("REPEAT_LENGTHS"), constant("REPEAT_FRONT")
LEAD, ROUND = constant("LEAD"), constant("ROUND")
UNITS = ("A", "T", "CA", "TG", "CAA", "TTC", "AGAT", "GGGC")


def repeated(unit: str, length: int, begin: int = 0) -> str:
    return (unit * (length // len(unit) + 2))[begin : begin + length]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_rows_of_any_length_are_one_launch(engine, outcomes, name):
    """Rows shorter than a part's lead and longer than the table, from any letter of a unit on."""
    chance = random.Random(1)
    for unit in UNITS:
        lengths = [*range(1, 30), 100, 150, 255, 256, 257, 300, 500, 512, 1000, 2048, 4000]
        check(engine, load(name), [repeated(unit, n, chance.randrange(4)) for n in lengths])
        check(engine, load(name), [repeated(unit, 500)] * 60, EncodeOptions())
    assert all(outcomes)


@pytest.mark.parametrize("name", NAMES)
def test_a_row_may_begin_in_front_of_a_part(engine, outcomes, name):
    """Its begin may have any alignment."""
    for unit in ("A", "CA", "CAA"):
        for begin in (1, 2, 3, 4):
            check(engine, load(name), [bases(1, begin), repeated(unit, 4092)])
    assert all(outcomes)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("unit", ["A", "CA"])
def test_a_row_that_begins_far_in_front_of_a_part_falls_back(outcomes, name, unit):
    """The kernel does not read its first letters."""
    engine = engine_of("emulated")  # Of two blocks: the second part begins in the middle.
    for part in (REPEAT_FRONT + LEAD - 128, REPEAT_FRONT + LEAD):
        check(engine, load(name), [repeated(unit, 2 * part)])
    assert outcomes == [True, False]


@pytest.mark.parametrize("name", NAMES)
def test_repeats_end_and_begin_anywhere(engine, name):
    """A repeat ends at another letter, a gap or another case; another unit may follow."""
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


def filled(rows: dict[int, str], length: int) -> list[str]:
    """Make rows that begin at given places, with random rows of some 500 letters between."""
    made: list[str] = []
    for begin, row in [*sorted(rows.items()), (length, "")]:
        while missing := begin - sum(map(len, made)):
            made.append(bases(len(made), min(missing, 500)))
        made.append(row)
    return made


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_all_letters_in_front_of_a_part_count(engine, outcomes, name):
    """Another letter or a gap stands just behind the row's begin, or just before the view."""
    size = 2048
    for unit, front in itertools.product(("A", "CA", "CAA"), (3, 5, 7, 60, 150)):
        begin = size - LEAD - front  # The emulated device has two blocks.
        for place, other in itertools.product((0, 2, front - 1), "GxN"):
            row = [*repeated(unit, front + LEAD + 60)]
            row[place] = other
            check(engine, load(name), filled({begin: "".join(row)}, 2 * size))
    assert all(outcomes)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("place", [LEAD, ROUND, 2 * ROUND])
@pytest.mark.slow
def test_a_row_may_begin_anywhere_in_a_round(outcomes, name, place):
    """This includes the last letters of a round, where the repeat is still short in the round."""
    engine, size = engine_of("emulated"), 2 * ROUND + 2500
    for front in (0, 1, 2, 4, 5, 15, 16, 17, 20, 60):
        row = repeated("A", 2000)  # So many that wait would be left.
        check(engine, load(name), filled({place - front: row}, 2 * size))
    assert all(outcomes)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_rows_that_end_in_the_next_round_are_not_mixed_up(outcomes, name):
    """The state between two rounds belongs to one part of the text only."""
    engine = engine_of("emulated")
    for unit, length in itertools.product(("A", "CA", "CAA"), (20, 150, 300)):
        rows = {n * ROUND - 15: repeated(unit, length) for n in range(1, 12)}
        check(engine, load(name), filled(rows, 12 * ROUND))
        rows = {n * ROUND - 15: "GT" + repeated(unit, length) for n in range(1, 12)}
        check(engine, load(name), filled(rows, 12 * ROUND))
    assert all(outcomes[::2])  # Of the others too many may wait.


def test_rows_with_letters_that_merge_and_are_no_bases(outcomes):
    """GENA-LM's N ends a repeat; rows without one are in the table."""
    chance, rows = random.Random(3), []
    for n in range(40):
        row = [*repeated("A" if n % 2 else "CAA", 500)]
        for _ in range(n % 4):
            row[chance.choice((0, 1, 2, 3, 8, 300, 499))] = "N"
        rows += ["".join(row), bases(n, 300)]
    check(engine_of("emulated"), load("gena_lm_t2t_32k"), rows)
    check(engine_of("emulated"), load("gena_lm_t2t_32k"), rows[2:])
    assert all(outcomes)


@pytest.mark.parametrize("name", NAMES)
def test_many_repeats_behind_other_letters_fall_back(outcomes, name):
    """This includes rounds that list few places, because each waits for its neighbour."""
    engine = engine_of("emulated")  # Of two blocks, so that parts are long.
    for count in (2, 40):
        rows = [row for n in range(count) for row in (bases(n, 900), "G" + repeated("A", 250))]
        check(engine, load(name), rows)
    assert outcomes == [True, False]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_the_table_has_the_last_tokens_of_the_reference(name):
    """For each unit, and also beyond the table's last column."""
    vocabulary = load(name)
    tables = dna_tables(vocabulary)
    table, letters = tables.parts.repeats, "".join(map(chr, tables.letters.bases))
    for unit in ("A", "CA", "AGAT", "CAA", "TTC"):
        period = 3 if len(unit) == 3 else 4
        for length in (4, 9, 33, 64, 65, 130, 255, 256, 257, 300, 411):
            text = repeated(unit, length)
            latest = sum(letters.index(x) << 2 * i for i, x in enumerate(text[-period:]))
            row = table[(256 if period == 3 else 0) + latest]
            column, step = length, int(row[0])
            if length >= REPEAT_LENGTHS:
                column = REPEAT_LENGTHS - step + (length - REPEAT_LENGTHS) % step
            options = EncodeOptions(add_special_tokens=False)
            last = tokenizer.encode(vocabulary, text, options).ids[-1]
            left = int(tables.tokens[last]) >> constant("LEFT_SHIFT") & 0xFFFF
            assert row[column] == left | len(vocabulary.tokens[last]) << 16


@pytest.mark.slow
def test_last_tokens_have_a_period_behind_the_table():
    for name in NAMES:
        assert dna_tables(load(name)).parts.repeats[:, 0].all()


@pytest.mark.slow
def test_a_period_counts_if_all_rotations_of_a_unit_have_it():
    """Here last tokens of period 3 repeat after 189 places, those of one rotation after 64."""
    unit = "GAC"
    merges = [("AC" + unit * 20, "GA"), (unit * 21, "G"), ("C", unit), ("A", "C" + unit)]
    merges += [("GA", "C"), *((unit * n, unit) for n in range(1, 21))]
    merges += [(front + unit * n, unit) for front in ("C", "AC") for n in range(1, 20)]
    vocabulary = vocabulary_of("ACG", [*merges, ("G", "A")])
    check(engine_of("emulated"), vocabulary, [repeated(unit, 600, begin) for begin in range(3)])
    assert not dna_tables(vocabulary).parts.repeats[256:, 0].all()


def test_long_rows_without_a_period_are_left_to_the_letters(engine, monkeypatch, outcomes):
    """If column 0 is 0, the table does not cover texts that are longer than it."""
    real = part_tables.repeat_table

    def without_periods(*args):
        table = real(*args)
        table[:, 0] = 0
        return table

    monkeypatch.setattr(part_tables, "repeat_table", without_periods)
    vocabulary = vocabulary_of("ACGT", [("A", "C"), ("AC", "AC"), ("G", "T"), ("A", "A")])
    check(engine, vocabulary, [repeated(unit, n) for unit in UNITS for n in (200, 256, 257, 700)])
    engine.unload(vocabulary.digest)
    assert outcomes == [True]


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


@settings(max_examples=40, deadline=None)
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
