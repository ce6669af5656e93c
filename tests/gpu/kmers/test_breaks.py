"""K-mers that begin anew in every run of letters, in batches with breaks, against the reference."""

from __future__ import annotations

import functools
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu.batch import transfer
from gpu.engine import GpuEngine
from gpu.kernels.job import constant
from gpu.memory.workspace_layout import SMALL_BYTES
from gpu.streaming import encode_stream
from tests.gpu.kmers.test_tiles import own_kmers
from tests.support.each_device import DEVICES, new_engine
from tests.support.emulation.device import EmulatedDevice, note_launches
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.batch.ragged import offsets_from_lengths
from vocabularies.builtin import load
from vocabularies.model.types import Kmers
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference import tokenizer

TILE = constant("KMER_TILE")
PLAIN = EncodeOptions(add_special_tokens=False)
SMALL = (0, 1, 5, 31, 32, 33, 64, 100, 1000, 1024)
SIZES = (*SMALL, TILE - 1, TILE, TILE + 1, 2 * TILE, 9000, 8 * TILE, 19 * TILE)
OTHERS = "NXx \n"


engine_of = functools.cache(new_engine)


def run_kmers(k: int, remainder: str, letters: str, whitespace: str, case: str) -> Vocabulary:
    """Make k-mers side by side in every run; N stands alone, others are unknown or white space."""
    vocabulary = own_kmers(k, k, remainder, "append", letters)
    model = vocabulary.model
    assert isinstance(model, Kmers)
    ids = (*model.letter_ids, ("N", len(vocabulary.tokens)))
    model = replace(model, circular=False, frame="run", letter_ids=ids)
    model = replace(model, whitespace=whitespace, case=case)
    return replace(vocabulary, tokens=(*vocabulary.tokens, b"N"), model=model)


VOCABULARIES = st.just(load("nt_v2")) | st.builds(
    run_kmers,
    st.integers(1, 6),
    st.sampled_from(["drop", "letters"]),
    st.permutations("ACGT").map("".join),
    st.sampled_from(["letter", "skip"]),
    st.sampled_from(["keep", "upper"]),
)


@st.composite
def texts(draw) -> str:
    """Bases in which stretches of any length are others, at the borders of tiles and words, too."""
    size = draw(st.sampled_from(SIZES))
    chance = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    letters = chance.choice([*"ACGT"], size)
    for _ in range(draw(st.integers(0, 6))):
        begin, length = chance.integers(0, size + 1), chance.choice(SIZES[1:])
        near = int(chance.choice([32, 1024, TILE]))
        if chance.random() < 0.5:
            begin = begin // near * near + int(chance.integers(-13, 14))
        letters[max(0, begin) : max(0, begin) + length] = chance.choice([*OTHERS, "ACGTN", "acgt"])[
            0
        ]
    some = draw(st.sampled_from([0, 0, 3, size // 10]))
    letters[chance.integers(0, max(1, size), some)[: size or 0]] = "N"
    return "".join(letters)


@st.composite
def rows_of(draw, size: int) -> list[int]:
    """Where rows begin and the end: none, few or many, several of them together."""
    places = draw(st.lists(st.integers(0, size), max_size=8))
    repeated = places * draw(st.sampled_from([1, 1, 2, 40]))
    many = draw(st.sampled_from([(), (), range(0, size, 7), range(0, size, 150)]))
    return sorted([0, *repeated, *many, *([size] * draw(st.sampled_from([1, 1, 35])))])


def check(engine: GpuEngine, vocabulary: Vocabulary, text: str, places: list[int]) -> None:
    """The ids of all widths are those of the reference, and nothing is written behind them."""
    rows = [text[begin:end] for begin, end in pairwise(places)]
    wanted = [tokenizer.encode(vocabulary, row, PLAIN).ids for row in rows]
    ids = [token_id for row in wanted for token_id in row]
    data, offsets = np.frombuffer(text.encode(), np.uint8), np.array(places, np.int64)
    for dtype in (np.int32, np.uint16, np.uint8):
        if len(vocabulary) > np.iinfo(dtype).max + 1:
            continue
        out = np.zeros(len(ids) + 17, dtype)
        ends = encode_stream(engine, vocabulary, data, offsets, out)
        assert (
            ends.tolist() == offsets_from_lengths(np.array([*map(len, wanted)], np.int64)).tolist()
        )
        assert out[: len(ids)].tolist() == ids
        assert not out[len(ids) :].any()


@settings(max_examples=100, deadline=None)
@given(VOCABULARIES, texts(), st.data())
def test_any_runs_have_the_ids_of_the_reference(vocabulary, text, data):
    engine = engine_of("emulated")
    try:
        check(engine, vocabulary, text, data.draw(rows_of(len(text))))
    finally:
        if vocabulary is not load("nt_v2"):
            engine.unload(vocabulary.digest)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("row", [0, 150, 512, TILE])
@pytest.mark.parametrize("letters", ["ACGT" * 700 + "N", "ACGTN", "ACGT" * 50 + "acgt N", "N"])
def test_runs_of_a_known_vocabulary(device, row, letters):
    chance = np.random.default_rng(row)
    text = "".join(chance.choice([*letters], 5 * TILE + 99))
    places = [*range(0, len(text), row or len(text)), len(text)]
    check(engine_of(device), load("nt_v2"), text, places)


@pytest.mark.parametrize("place", [0, 1, 5, TILE - 1, TILE, TILE + 3, 2 * TILE - 7, 4 * TILE])
@pytest.mark.parametrize(("k", "remainder"), [(6, "letters"), (5, "drop"), (2, "letters")])
@pytest.mark.slow
def test_tiles_of_one_run_follow_a_break(place, k, remainder):
    """Their first k-mers begin anywhere in them, and their ids anywhere in 16 bytes."""
    chance = np.random.default_rng([place, k])
    letters = chance.choice([*"ACGT"], 4 * TILE + 50)
    letters[place] = "N"
    vocabulary = run_kmers(k, remainder, "ACGT", "letter", "keep")
    for begin in (0, 3):
        check(engine_of("emulated"), vocabulary, "".join(letters), [0, begin, len(letters)])


@pytest.mark.parametrize("letter", [*"Nnx "])
@pytest.mark.parametrize(
    ("begin", "end"), [(0, 3 * TILE), (TILE - 1, 3 * TILE + 70), (TILE + 7, 5 * TILE)]
)
@pytest.mark.slow
def test_gaps_of_whole_tiles(letter, begin, end):
    """Rows begin in them, too; letters of N are an id each."""
    chance = np.random.default_rng([begin, end])
    letters = chance.choice([*"ACGT"], 5 * TILE + 50)
    letters[begin:end] = letter
    vocabulary = run_kmers(6, "letters", "ACGT", "skip", "keep")
    rows = [0, 2 * TILE, 2 * TILE, 2 * TILE + 13, 3 * TILE - 1, len(letters)]
    for places in ([0, len(letters)], rows):
        check(engine_of("emulated"), vocabulary, "".join(letters), places)


@pytest.mark.parametrize(
    "letters",
    ["acgttgca", "a" * 36 + "ccgt", "N" * 70 + "X" * 50, "n" * 33 + "acgt" * 9, " N" * 17],
)
@pytest.mark.parametrize("begin", [0, 15, 16, TILE - 200, TILE - 7])
@pytest.mark.slow
def test_stretches_of_several_letters(letters, begin):
    """Sixteen letters may go on with a run, or with a letter, of their tile or the one before."""
    chance = np.random.default_rng(begin)
    vocabulary = run_kmers(6, "letters", "ACGT", "skip", "keep")
    for length in (70, TILE + 9, 3 * TILE):
        text = "".join(chance.choice([*"ACGT"], 4 * TILE + 50))
        stretch = (letters * (length // len(letters) + 1))[:length]
        text = text[:begin] + stretch + text[begin + length :]
        check(engine_of("emulated"), vocabulary, text, [0, 2 * TILE - 11, len(text)])


@pytest.mark.slow
def test_no_row_is_at_fault_where_plain_kernels_were_not_tried():
    """Behind a large batch with breaks, in memory that held other rows, or none."""
    engine, vocabulary = GpuEngine(EmulatedDevice(), 1 << 30), load("nt_v2")
    for rows in (2, 900):
        text = "ACGTN" * (SMALL_BYTES // rows // 5 + 1)
        encoded = engine.encode(vocabulary, Batch([text] * rows, options=PLAIN))
        assert encoded.errors == {}
        assert encoded.ids.tolist() == rows * tokenizer.encode(vocabulary, text, PLAIN).ids


@pytest.mark.parametrize("places", [[0, 120], [0, 60, 120], [0, 54, 120]])
def test_a_letter_in_another_case_ends_a_run(places):
    """In k-mers, of rows that the plain kernels try first: of one, of one length, of others."""
    letters = [*"ACGTTG" * 20]
    letters[7] = "g"
    check(GpuEngine(EmulatedDevice(), 1 << 28), load("nt_v2"), "".join(letters), places)


@pytest.mark.parametrize("text", ["ACGTNACGTACGTAC" * 20, "ACGTéACGTACNGTAC" * 20])
def test_a_text_of_bytes_that_are_letters_is_not_rewritten(monkeypatch, text):
    """If only breaks were the reason; a letter beyond ASCII is no byte."""
    monkeypatch.setattr(transfer, "RECORD_AFTER", 1 << 30)
    seen = note_launches(monkeypatch)
    data, out = np.frombuffer(text.encode(), np.uint8), np.zeros(400, np.int32)
    engine, offsets = GpuEngine(EmulatedDevice(), 1 << 28), np.array([0, len(data)])
    encode_stream(engine, load("nt_v2"), data, offsets, out)
    assert ("expand_letters" in seen) != text.isascii()
    assert seen.count("find_breaks") == 1
