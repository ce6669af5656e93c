"""Parts with runs of a letter that are replaced, and with texts that repeat a few letters."""

from __future__ import annotations

import random

import pytest

from gpu.kernels.job import constant
from tests.gpu.dna.test_parts import bases, check, engine_of, outcomes
from tests.support.inputs.letter_bpe import vocabulary_of
from vocabularies.batch.batch import EncodeOptions
from vocabularies.builtin import load
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.normalizers import Normalizer

ROUND, LEAD = constant("ROUND"), constant("LEAD")
GENA = "gena_lm_t2t_32k"
RUN = 10
"""The shortest run of N that GENA-LM replaces."""
__all__ = ["outcomes"]


def runs_of(letter: str, length: int, content: str) -> Vocabulary:
    """Make a vocabulary of ACGT, N and a hyphen that replaces runs of a letter by `content`."""
    step = Normalizer("replace_regex", f"{letter}{{{length},}}", content)
    return vocabulary_of("ACGTN-", [("A", "C"), ("N", "N"), ("AC", "N")], normalizers=(step,))


@pytest.mark.parametrize("at", [0, 1, LEAD, ROUND - LEAD, ROUND])
@pytest.mark.slow
def test_long_runs_are_replaced_wherever_they_lie(outcomes, at):
    """This includes runs across the end of a round or the begin of a part."""
    engine = engine_of("emulated")
    for place in range(max(0, at - 14), at + 3):
        text = bases(1, place) + "N" * RUN + bases(2, 6 * ROUND - place)
        check(engine, load(GENA), [text])
    assert all(outcomes)


@pytest.mark.parametrize("length", [RUN - 1, RUN, RUN + 1, 100, ROUND, 3 * ROUND])
@pytest.mark.slow
def test_only_long_runs_are_replaced(outcomes, length):
    """Short runs merge; if the letter does not merge, they stay."""
    text = bases(3, 3 * ROUND - 5) + "N" * length + bases(4, 3 * ROUND)
    check(engine_of("emulated"), load(GENA), [text])
    check(engine_of("emulated"), runs_of("G", RUN, "-"), [text.replace("G", "A").replace("N", "G")])
    assert outcomes == [True, length >= RUN]


@pytest.mark.parametrize("place", [ROUND, ROUND - LEAD, 4 * ROUND])
@pytest.mark.slow
def test_short_runs_that_cross_a_border_merge(outcomes, place):
    for before in range(1, RUN - 1):
        at = place - before
        text = bases(5, at) + "N" * (RUN - 1) + bases(6, 6 * ROUND - at)
        check(engine_of("emulated"), load(GENA), [text])
    assert all(outcomes)


@pytest.mark.slow
def test_rows_cut_runs(outcomes):
    """Each row's part of a run has its own id; a part that is short merges."""
    engine, vocabulary = engine_of("emulated"), load(GENA)
    for first in (RUN, RUN + 3, *range(ROUND - 66, ROUND - 62), 2 * ROUND + 7):
        head = bases(9, 64)
        check(engine, vocabulary, [head, "N" * first, "N" * RUN, "", "N" * 300 + "A", "N" * 12])
    for first in (4, ROUND + 4):
        check(engine, vocabulary, [head, "N" * first, "N" * (RUN - 1)])
        check(engine, vocabulary, [bases(7, ROUND - 4) + "N" * 4, "N" * (ROUND + first)])
    assert all(outcomes)


def test_runs_stand_side_by_side_with_gaps(outcomes):
    """The letter that replaces a run may occur in the text as well, or may have no id."""
    engine = engine_of("emulated")
    for content, letters in (("-", "ACGT-"), ("x", "ACGTx")):
        vocabulary = runs_of("N", 3, content)
        for seed in range(20):
            chance = random.Random(seed)
            parts = [*letters, "NNN", "NNNN", "N" * 90]
            check(engine, vocabulary, ["".join(chance.choices(parts, k=400)) for _ in range(3)])
    assert all(outcomes)


def test_bases_may_be_what_runs_are_of(outcomes):
    """Then each such base outside of a run stays."""
    engine, vocabulary = engine_of("emulated"), runs_of("G", 5, "-")
    check(engine, vocabulary, ["ACACT" + "G" * 5 + "ACA", "G" * 9000, "TTTT"])
    check(engine, vocabulary, ["ACACT" + "G" * 4 + "ACA"])
    assert outcomes == [True, False]


@pytest.mark.parametrize("name", ["dnabert2", GENA])
@pytest.mark.parametrize("unit", ["A", "T", "CA", "ACG", "AAC", "ACGT"])
def test_rows_that_repeat_a_few_letters_among_others(outcomes, name, unit):
    """There every place has a list of tokens and waits for the places before it."""
    rows = [bases(n, 512) for n in range(20)]
    rows[3] = rows[4] = rows[11] = (unit * 300)[:300]
    rows[15] = bases(30, 200) + (unit * 300)[:300]
    check(engine_of("emulated"), load(name), rows)
    check(engine_of("emulated"), load(name), rows, EncodeOptions())
    assert outcomes == [True] * 2


@pytest.mark.parametrize(("name", "unit"), [("dnabert2", "AGAT"), (GENA, "TTAGGG"), (GENA, "A")])
def test_many_places_that_wait_for_each_other_fall_back(outcomes, name, unit):
    """They fall back at once to lose little time, and the next batches skip the kernel."""
    for length, is_done in ((600, True), (3 * ROUND, False)):
        head = bases(3, 2 * ROUND)
        check(engine_of("emulated"), load(name), [head, unit * (length // len(unit)), head])
        assert outcomes == [is_done]
        outcomes.clear()


def test_a_place_of_a_list_at_the_end_of_a_row(outcomes):
    """The next row does not depend on it."""
    rows = []
    for n in range(1, 70):
        rows += [*("A" * n + end for end in ("", "C", "GT")), bases(n, 20 * n)]
    check(engine_of("emulated"), load("dnabert2"), rows)
    check(engine_of("emulated"), load(GENA), rows)
    assert all(outcomes)
