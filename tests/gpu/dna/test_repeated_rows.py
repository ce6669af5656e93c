"""Rows that repeat up to four letters: a table tells their last tokens, in one launch."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpu.dna import one_launch_tables
from gpu.dna.tables import dna_tables
from gpu.errors import NotCovered
from gpu.kernels.job import constant
from gpu.small import call
from tests.gpu.dna.test_bpe import merge_lists, vocabulary_of
from tests.gpu.dna.test_parts import NAMES, bases, check, engine_of, outcomes
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.builtin import load
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference import tokenizer

__all__ = ["outcomes"]

PLACES, MOST_FRONT = constant("REPEAT_PLACES"), constant("MOST_FRONT")
LEAD, MOST_PART, ROUND = constant("LEAD"), constant("MOST_PART"), constant("ROUND")
UNITS = ("A", "T", "CA", "TG", "CAA", "TTC", "AGAT", "GGGC")


def repeated(unit: str, length: int, begin: int = 0) -> str:
    return (unit * (length // len(unit) + 2))[begin : begin + length]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_rows_of_any_length_are_one_launch(engine, outcomes, name):
    """Shorter than a part's lead, longer than the table, from anywhere in a unit on."""
    chance = random.Random(1)
    for unit in UNITS:
        lengths = [*range(1, 30), 100, 150, 255, 256, 257, 300, 500, 512, 1000, 2048, 4000]
        check(engine, load(name), [repeated(unit, n, chance.randrange(4)) for n in lengths])
        check(engine, load(name), [repeated(unit, 500)] * 60, EncodeOptions())
    assert all(outcomes)


@pytest.mark.parametrize("name", NAMES)
def test_rows_may_be_in_front_of_a_part_as_far_as_is_looked(engine, outcomes, name):
    """Whatever a row's begin is aligned to; what is further off has its ids from other kernels."""
    for unit in ("A", "CA", "CAA"):
        for begin in (1, 2, 3, 4):
            check(engine, load(name), [bases(1, begin), repeated(unit, MOST_FRONT)])
    assert all(outcomes)
    check(engine, load(name), [repeated("CA", 6 * MOST_FRONT)])
    assert not outcomes[-1]


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


def filled(rows: dict[int, str], length: int) -> list[str]:
    """Rows that begin at places, with random ones of some 500 letters between them."""
    made: list[str] = []
    for begin, row in [*sorted(rows.items()), (length, "")]:
        while missing := begin - sum(map(len, made)):
            made.append(bases(len(made), min(missing, 500)))
        made.append(row)
    return made


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_all_of_a_row_counts_that_is_in_front_of_a_part(engine, outcomes, name):
    """Another letter, or a gap, just behind the row's begin or just in front of the part's view."""
    size = 2048
    for unit, front in itertools.product(("A", "CA", "CAA"), (3, 5, 7, 60, 150)):
        begin = size - LEAD - front  # The emulated device has two blocks.
        for place, other in itertools.product((0, 2, front - 1), "GxN"):
            row = [*repeated(unit, front + LEAD + 60)]
            row[place] = other
            check(engine, load(name), filled({begin: "".join(row)}, 2 * size))
    assert all(outcomes)


@pytest.mark.parametrize("name", NAMES)
def test_a_row_that_began_in_a_round_of_others_is_not_known(engine, outcomes, name):
    """Nor is one of which a round of another part, which the same block had, knows the letters."""
    for unit, begun in itertools.product(("A", "CA", "CAA"), (5, 30)):
        other_part = 2 * MOST_PART - LEAD + ROUND
        for round_begin, rows in ((ROUND, {}), (other_part, {ROUND - 150: repeated(unit, 150)})):
            rows = rows | {round_begin - begun: repeated(unit, 300)}
            check(engine, load(name), filled(rows, round_begin + 1000))
    assert all(outcomes)


@pytest.mark.parametrize("name", NAMES)
def test_many_repeats_behind_other_letters_are_left(outcomes, name):
    """Where few places of a round are listed, too, as each waits for its neighbour."""
    engine = engine_of("emulated")  # Of two blocks, so that parts are long.
    for count in (2, 40):
        rows = [row for n in range(count) for row in (bases(n, 900), "G" + repeated("A", 250))]
        check(engine, load(name), rows)
    assert outcomes == [True, False]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_the_table_has_the_last_tokens_of_the_reference(name):
    """Of each unit, behind the table's last column, too."""
    vocabulary = load(name)
    tables = dna_tables(vocabulary)
    table, letters = tables.bases.repeats, "".join(map(chr, tables.letters.bases))
    for unit in ("A", "CA", "AGAT", "CAA", "TTC"):
        size = 3 if len(unit) == 3 else 4
        for length in (4, 9, 33, 64, 65, 130, 255, 256, 257, 300, 411):
            text = repeated(unit, length)
            latest = sum(letters.index(x) << 2 * i for i, x in enumerate(text[-size:]))
            row = table[(256 if size == 3 else 0) + latest]
            period, column = int(row[0]), length
            if length >= PLACES:
                column = PLACES - period + (length - PLACES) % period
            last = tokenizer.encode(vocabulary, text, EncodeOptions(add_special_tokens=False)).ids[
                -1
            ]
            assert row[column] >> 16 == len(vocabulary.tokens[last])
            assert (
                row[column] & 0xFFFF == int(tables.tokens[last]) >> constant("LEFT_SHIFT") & 0xFFFF
            )


@pytest.mark.slow
def test_every_unit_repeats_behind_the_table():
    for name in NAMES:
        assert dna_tables(load(name)).bases.repeats[:, 0].all()


@pytest.mark.slow
def test_all_rotations_of_a_unit_repeat_before_one_is_said_to():
    """Behind three letters last tokens repeat after 189 places here, of one rotation after 64."""
    unit = "GAC"
    merges = [("AC" + unit * 20, "GA"), (unit * 21, "G"), ("C", unit), ("A", "C" + unit)]
    merges += [("GA", "C"), *((unit * n, unit) for n in range(1, 21))]
    merges += [(front + unit * n, unit) for front in ("C", "AC") for n in range(1, 20)]
    vocabulary = vocabulary_of("ACG", [*merges, ("G", "A")])
    check(engine_of("emulated"), vocabulary, [repeated(unit, 600, begin) for begin in range(3)])
    assert not dna_tables(vocabulary).bases.repeats[256:, 0].all()


def test_a_unit_without_a_period_is_left_to_the_letters(engine, monkeypatch, outcomes):
    """A column of zeros: nothing is known of longer texts."""
    real = one_launch_tables.repeats_of

    def without_periods(*args):
        table = real(*args)
        table[:, 0] = 0
        return table

    monkeypatch.setattr(one_launch_tables, "repeats_of", without_periods)
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


def test_texts_that_repeat_are_tried_if_their_rows_do():
    """Those that are looked at, from their begins on, if they are short enough."""
    for unit, length in itertools.product(("A", "CA", "ACG"), (500, 1000, MOST_FRONT, 5000)):
        rows = [repeated(unit, length)] * (40_000 // length)
        whole, odd = Batch(rows), Batch([row[:-9] + "GTT" + row[-6:] for row in rows])
        assert call.repeats(whole.data, whole.offsets) == (length > MOST_FRONT)
        assert call.repeats(odd.data, odd.offsets)
        part = whole.offsets[
            :-1
        ]  # Rows may end before the data does; malformed ones are not looked at.
        for offsets in (part, whole.offsets[1:], whole.offsets[:1], whole.offsets.reshape(1, -1)):
            assert call.repeats(whole.data, offsets)
        mixed = Batch([*rows, "", bases(1, len(whole.data))])
        assert not call.repeats(mixed.data, mixed.offsets)
