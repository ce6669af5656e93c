"""Byte-pair encoding of texts that repeat a few letters: windows that do not meet, side by side."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpu.batch.kernel_choice import launch_content
from gpu.batch.transfer import fetch, pack_rows, status_of
from gpu.dna import tables
from gpu.engine import GpuEngine
from gpu.errors import NotCovered
from gpu.kernels.job import constant
from service.engines.cpu.engine import CpuEngine
from tests.gpu.dna.test_bpe import CHUNKS, NAMES, engine_of
from tests.gpu.kmers.test_letter_tables import check
from tests.support.inputs.letter_bpe import merge_lists, vocabulary_of
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.builtin import load
from vocabularies.model.vocabulary import Vocabulary

CPU = CpuEngine()
PLAIN = EncodeOptions(add_special_tokens=False)
REPAIRED = constant("REPAIR_ROUNDS")
ONE_THREAD = REPAIRED + constant("FINISH_ROUNDS")
"""Of the counts of `unmet`: windows that are left to one thread, through all of the batch."""
MANY = REPAIRED + 4
"""The same: to threads that may walk through 512 windows each."""
SHORT = (75, 130, 150, 200, 256, 300, 400)
GENA = NAMES[1]


def unmet(engine: GpuEngine, vocabulary: Vocabulary, rows: list[str]) -> list[int]:
    """Count unmet windows, at first and after each round, and check the ids."""
    batch = Batch(rows)
    with (
        engine.resources.residents.using(vocabulary) as resident,
        engine.resources.workspaces.lend(len(batch.data), len(rows), "dna") as workspace,
    ):
        pack_rows(workspace, resident, batch.data, batch.offsets, engine.resources.processors)
        launch_content(workspace, resident, engine.resources.processors)
        ids = fetch(workspace, "ids", np.int32, int(status_of(workspace)[0]))
        counts = fetch(workspace, "unmet_counts", np.uint32, ONE_THREAD + 1)
    expected = CPU.encode(vocabulary, Batch(rows, options=PLAIN)).ids
    assert ids.tolist() == expected.tolist()
    return counts.tolist()


def units_of(length: int) -> list[str]:
    """Yield units of so many letters that repeat no shorter unit, each in one rotation."""
    found = []
    for letters in itertools.product("ACGT", repeat=length):
        unit = "".join(letters)
        rotations = [unit[i:] + unit[:i] for i in range(length)]
        if unit == min(rotations) and rotations.count(unit) == 1:
            found.append(unit)
    return found


def cut(text: str, length: int) -> list[str]:
    return [text[begin : begin + length] for begin in range(0, len(text), length)]


def rows_of(unit: str, lengths: tuple[int, ...], chance: random.Random) -> list[str]:
    """Make rows that repeat a unit from any letter on, some with a few letters in front."""
    rows = []
    for length in lengths:
        head = "".join(chance.choices("ACGT", k=chance.choice((0, 0, 1, 5, 40))))
        begin = chance.randrange(len(unit))
        rows.append((head + unit[begin:] + unit * (length // len(unit) + 1))[:length])
    return rows


def vary(unit: str, chance: random.Random) -> str:
    """Make a unit of one letter, except for one place."""
    place = chance.randrange(len(unit))
    return unit[0] * place + chance.choice("ACGT") + unit[0] * (len(unit) - 1 - place)


@pytest.mark.parametrize("engine", ["small", "large"])
@pytest.mark.parametrize(("name", "most"), [(NAMES[0], 6), (GENA, 5)])
@pytest.mark.slow
def test_repeats_of_any_unit_are_repaired_side_by_side(engine, name, most):
    """In rows of any length, in two rounds; once, a single thread walked through most of them."""
    chance, vocabulary, running = random.Random(most), load(name), engine_of("emulated", engine)
    for unit in itertools.chain.from_iterable(units_of(n + 1) for n in range(most)):
        for length in (512, 500, 1000):
            rows = cut(unit * (4000 // len(unit)), length)
            assert unmet(running, vocabulary, rows)[2] == 0, (unit, length)
        counts = unmet(running, vocabulary, rows_of(unit, SHORT, chance))
        assert counts[2] <= (engine == "small"), unit
        assert counts[REPAIRED + 2] == 0, unit


@pytest.mark.parametrize("engine", ["small", "large"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_no_thread_walks_through_long_units_alone(engine, name):
    """Units of 33 letters and more are not detected; nearly all their letters may be equal."""
    chance, vocabulary = random.Random(name), load(name)
    for length in (7, 8, 9, 10, 11, 12, 15, 31, 32, 33, 44, 53, 64, 66, 100, 171):
        unit = "".join(chance.choices("ACGT", k=length))
        for repeated in (unit, vary(unit, chance), vary(unit, chance)):
            rows = rows_of(repeated, (512, 150, 3000), chance)
            assert unmet(engine_of("emulated", engine), vocabulary, rows)[MANY] == 0, repeated


@pytest.mark.parametrize("engine", ["small", "large"])
@pytest.mark.parametrize("unit", ["A", "T", "AT", "CA", "AAAG"])
@pytest.mark.slow
def test_short_rows_of_a_unit_with_other_letters_in_front(engine, unit):
    """A path may end behind its window, so that the window before has to be walked again."""
    chance, rows = random.Random(unit), []
    for length in (130, 150, 250):
        for _ in range(60):
            head = "".join(chance.choices("ACGT", k=chance.choice((0, 1, 5, 40))))
            rows.append((head + unit * length)[: length - chance.randrange(9)])
    assert unmet(engine_of("emulated", engine), load(GENA), rows)[MANY] == 0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("unit", ["A", "CA", "TTAGGG"])
@pytest.mark.slow
def test_a_run_is_repaired_side_by_side(name, unit):
    """The run may begin at any place."""
    for first in range(1, 40, 6):
        text = ("GATTACAGATC" * 4)[:first] + unit * (9000 // len(unit)) + "GC"
        for engine in ("small", "large"):
            assert unmet(engine_of("emulated", engine), load(name), [text])[2] == 0, first


def in_turn(units: list[str]) -> Vocabulary:
    """Make tokens of one to three units; the rest of a run joins the begin of the next run."""
    merges = []
    for before, unit in itertools.pairwise(["", *units]):
        merges += [(unit[0], unit[1])] if len(unit) == 2 else []
        merges += [(before, unit), (before + before, unit)] if before else []
        merges += [(unit, unit), (unit + unit, unit)]
    return replace(vocabulary_of("ACGT", merges), prefix=(), suffix=())


@pytest.mark.parametrize(("run", "most"), [(301, 2), (6001, MANY), (40001, ONE_THREAD)])
def test_runs_that_shift_the_next_one(run, most):
    """No two paths meet in long runs, so that the sequential repair runs; its ids are right."""
    units = ["A", "C", "G", "T", "AG", "CT", "GC", "TA"]
    text = "".join(unit * (run // len(unit) | 1) for unit in units)
    engine, vocabulary = engine_of("emulated", "small"), in_turn(units)
    engine.load(vocabulary)
    for first in range(3):
        assert unmet(engine, vocabulary, ["A" * first + text])[most] > 0
    engine.unload(vocabulary.digest)


@pytest.mark.parametrize("engine", [*CHUNKS])
def test_a_letter_of_another_kind_in_a_run_ends_what_repeats(engine):
    """N merges but is no base; its code here is that of A."""
    doubled = [("A" * 2**n, "A" * 2**n) for n in range(4)]
    others = [("A", "C"), ("C", "C"), ("G", "T"), ("G", "G"), ("GT", "GT"), ("T", "T")]
    merges = [*doubled, *others, ("A", "N"), ("AN", "A" * 8)]
    vocabulary, running = vocabulary_of("ACGTN", merges), engine_of("emulated", engine)
    assert tables.dna_tables(vocabulary).letters.bases == b"ACGT"
    running.load(vocabulary)
    rows = ["A" * n + "N" + "A" * 40 for n in range(30, 70)]
    check(running, vocabulary, rows, PLAIN)
    running.unload(vocabulary.digest)


@st.composite
def repeated(draw: st.DrawFn) -> tuple[Vocabulary, list[str]]:
    """Make rows that repeat units of up to twelve letters, some with errors."""
    letters = draw(st.sampled_from(["AC", "ACG", "ACGT", "ACGTN"]))
    vocabulary = vocabulary_of(letters, draw(merge_lists(letters)))
    rows = []
    for _ in range(draw(st.integers(1, 5))):
        unit = draw(st.text(letters, min_size=1, max_size=12))
        row = [*unit * (draw(st.integers(1, 900)) // len(unit) + 1)]
        for _ in range(draw(st.integers(0, 3))):
            row[draw(st.integers(0, len(row) - 1))] = draw(st.sampled_from([*"ACGTN", "", "AC"]))
        rows.append(draw(st.text(letters, max_size=9)) + "".join(row))
    return vocabulary, rows


@settings(max_examples=80)
@given(repeated(), st.sampled_from([*CHUNKS]))
def test_any_vocabulary_and_unit_has_the_ids_of_the_reference(case, chunks):
    vocabulary, rows = case
    engine = engine_of("emulated", chunks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "SMALL_CHUNK_TEXT", CHUNKS[chunks])
        try:
            engine.load(vocabulary)
            check(engine, vocabulary, rows, PLAIN)
        except NotCovered:
            assume(False)
        finally:
            engine.unload(vocabulary.digest)
