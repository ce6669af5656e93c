"""Parts with a letter that merges and is no base, such as GENA-LM's N."""

from __future__ import annotations

import functools
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpu.dna import tables as dna_tables
from gpu.errors import NotCovered
from gpu.kernels.job import constant
from service.engines.cpu.engine import CpuEngine
from tests.gpu.dna.test_parts import bases, check, engine_of, outcomes
from tests.support.inputs.letter_bpe import merge_lists, repeats, vocabulary_of
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.builtin import load
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.normalizers import Normalizer

ROUND, LEAD = constant("ROUND"), constant("LEAD")
GENA = "gena_lm_t2t_32k"
__all__ = ["outcomes"]


@pytest.mark.parametrize("at", [0, LEAD, ROUND - LEAD, ROUND, 2 * ROUND])
@pytest.mark.parametrize("run", [1, 2, 9])
@pytest.mark.slow
def test_a_mixed_letter_anywhere(outcomes, at, run):
    """At the ends of rounds and at the begins of parts; the ids are those of `tokenizers`."""
    for place in range(max(0, at - 12), at + 3):
        text = bases(place, place) + "N" * run + bases(2, 6 * ROUND - place)
        batch = Batch([text], options=EncodeOptions(add_special_tokens=False))
        found, want = (each.encode(load(GENA), batch) for each in (engine_of("emulated"), cpu()))
        assert np.array_equal(found.ids, want.ids)
        assert np.array_equal(found.offsets, want.offsets)
    assert all(outcomes)


@functools.cache
def cpu() -> CpuEngine:
    engine = CpuEngine()
    engine.load(load(GENA))
    return engine


@pytest.mark.parametrize("share", [0.001, 0.03, 0.3])
@pytest.mark.slow
def test_many_mixed_letters_with_runs_between(outcomes, share):
    chance = random.Random(1)
    rows = []
    for length in (0, 1, 30, 500, 4000, ROUND):
        text = ["N" if chance.random() < share else each for each in bases(length, length)]
        for place in range(100, length, 3000):
            text[place : place + 40] = "N" * chance.randint(1, 40)
        rows.append("".join(text))
    check(engine_of("emulated"), load(GENA), rows)
    check(engine_of("emulated"), load(GENA), rows, EncodeOptions())
    assert all(outcomes)


@pytest.mark.slow
def test_rows_end_near_mixed_letters(outcomes):
    rows = [f"{bases(n, n)}{'N' * (n % 4)}{bases(n + 1, n % 13)}" for n in range(150)]
    check(engine_of("emulated"), load(GENA), rows)
    assert outcomes == [True]


def with_runs(vocabulary: Vocabulary, length: int) -> Vocabulary:
    step = Normalizer("replace_regex", f"N{{{length},}}", "-")
    return replace(vocabulary, normalizers=(step,))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Vocabulary, list[str]]:
    letters = draw(st.sampled_from(["ACGTN", "ACN", "ACGTNR"]))
    vocabulary = vocabulary_of(letters + "-", draw(merge_lists(letters)))
    if draw(st.booleans()):
        vocabulary = with_runs(vocabulary, draw(st.integers(2, 12)))
    chance = st.tuples(st.integers(0, 1 << 30), st.integers(2, 200)).map(
        lambda drawn: "".join(
            random.Random(drawn[0]).choices("ACGT" * drawn[1] + "NN", k=drawn[0] % 3000)
        )
    )
    text = repeats(letters) | chance | st.text(letters * 4 + "xN- \n", max_size=300)
    return vocabulary, draw(st.lists(text, max_size=4))


@settings(max_examples=80, deadline=None)
@given(cases())
def test_any_vocabulary_and_text_has_the_ids_of_the_reference(case):
    vocabulary, texts = case
    engine = engine_of("emulated")
    try:
        check(engine, vocabulary, texts)
    except NotCovered:
        assume(False)
    finally:
        engine.unload(vocabulary.digest)


def mixed_of(vocabulary: Vocabulary) -> int:
    tables = dna_tables.dna_tables(vocabulary)
    assert tables.parts is not None
    return len(tables.parts.mixed)


@pytest.mark.slow
def test_which_vocabularies_have_a_mixed_letter():
    """At most one letter, with few bases behind it in a token; only its runs are replaced."""
    merges = [(a, b) for a in "ACGT" for b in "ACGT"] + [("C", "N"), ("N", "A")]
    plain = vocabulary_of("ACGTN-", merges)
    assert mixed_of(plain) == mixed_of(with_runs(plain, 3)) == 3
    assert mixed_of(load(GENA)) == 20
    assert mixed_of(load("dnabert2")) == 0
    assert mixed_of(vocabulary_of("ACGTNR", [*merges, ("C", "R")])) == 0
    many_behind = [("AA", "AA"), ("AAAA", "AAAA"), ("N", "A" * 8)]
    assert mixed_of(vocabulary_of("ACGTN", [*merges, *many_behind])) == 0


@pytest.mark.parametrize(
    ("merges", "text"),
    [
        ([("G", "T"), ("GT", "C"), ("C", "C"), ("C", "T")], "NAGTC"),
        ([("G", "T"), ("C", "C"), ("GT", "CC"), ("GTCC", "T")], "NAGTCCT"),
    ],
)
def test_letters_soon_behind_a_mixed_one_leave_more(outcomes, merges, text):
    """A token may follow NA although it may follow no token of bases, as AG would merge."""
    vocabulary = vocabulary_of("ACGTN", [("N", "A"), ("A", "G"), *merges])
    assert mixed_of(vocabulary) == 2
    rows = [before + text + behind for before in ("", "C", "TTA") for behind in ("", "A", "N")]
    check(engine_of("emulated"), vocabulary, rows)
    assert outcomes == [True]
