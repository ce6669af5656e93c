"""The C++ encoder of characters and k-mers against the reference.

A part of these tests runs under sanitizers, too (`tests/service/engines/cpu/test_sanitizers.py`).
"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engines.cpu import selection
from service.engines.cpu.engine import CpuEngine
from service.engines.cpu.symbols import encoder as symbols
from service.engines.cpu.symbols.encoder import SymbolEncoder
from tests.support.data_files import records
from tests.support.each_engine import SYMBOLS
from tests.support.inputs.sequence_strategies import (
    OPTIONS,
    SEQUENCES,
    character_vocabularies,
    kmer_vocabularies,
)
from vocabularies.batch.batch import Batch, EncodeOptions, RowRefused
from vocabularies.batch.post_processing import AddedIds, post_process
from vocabularies.builtin import load
from vocabularies.model.tables import token_table
from vocabularies.model.types import Kmers
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference import tokenizer as reference

pytestmark = pytest.mark.skipif(symbols.native is None, reason="the C++ extension is not built")
LEAST_TASK = 256
PARTS = (
    "ACGT",
    "AC",
    "N",
    "acgtn",
    "A",
    "R",
    "-",
    " ",
    "\n",
    "NNNN",
    "ACGTACGTAC",
    "é",
    "[",
    "<mask>",
)


@st.composite
def long_texts(draw: st.DrawFn) -> str:
    """Draw texts of some parts, which the smallest tasks cut in several places."""
    parts = draw(st.lists(st.sampled_from(PARTS), min_size=1, max_size=6))
    seed, size = draw(st.integers(0, 1 << 30)), draw(st.integers(0, 1500))
    chance = random.Random(seed)
    return "".join(part * chance.randint(1, 200) for part in chance.choices(parts, k=8))[:size]


TEXTS = st.lists(SEQUENCES | long_texts(), max_size=4)


def check(vocabulary: Vocabulary, texts: list[str], options: EncodeOptions) -> None:
    """Compare ids, places, counts and refusals, with whole rows as tasks and with the smallest."""
    engine = CpuEngine()
    assert engine.load(vocabulary).encoder == SymbolEncoder.name
    encoder = engine._get_or_load(vocabulary).chosen.encoder
    for encoder.task_bytes, encoder.num_threads in ((symbols.TASK_BYTES, 1), (LEAST_TASK, 3)):
        encoded = engine.encode(vocabulary, Batch(texts, options=options))
        counted = engine.count(vocabulary, Batch(texts, options=options))
        assert counted.errors == encoded.errors
        assert counted.counts.tolist() == np.diff(encoded.offsets).tolist()
        for row, text in enumerate(texts):
            try:
                right = reference.encode(vocabulary, text, options)
            except RowRefused as refused:
                assert encoded.errors[row] == refused.error
                continue
            begin, end = encoded.offsets[row : row + 2]
            assert encoded.ids[begin:end].tolist() == right.ids
            if options.spans:
                assert list(map(tuple, encoded.spans[begin:end].tolist())) == right.spans


@settings(max_examples=150)
@given(kmer_vocabularies(), TEXTS, OPTIONS)
def test_any_kmers_have_the_ids_of_the_reference(vocabulary, texts, options):
    check(vocabulary, texts, options)


@settings(max_examples=80)
@given(character_vocabularies(), TEXTS, OPTIONS)
def test_any_characters_have_the_ids_of_the_reference(vocabulary, texts, options):
    check(vocabulary, texts, options)


@pytest.mark.parametrize("name", SYMBOLS)
@settings(max_examples=25)
@given(texts=TEXTS, options=OPTIONS)
def test_published_vocabularies_have_the_ids_of_the_reference(name, texts, options):
    check(load(name), texts, options)


@pytest.mark.parametrize("name", SYMBOLS)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32])
def test_begin_and_end_tokens_and_narrow_ids(name, dtype):
    vocabulary = load(name)
    if len(vocabulary) > np.iinfo(dtype).max:
        pytest.skip("its ids are wider")
    encoder, added = SymbolEncoder(vocabulary), AddedIds.of(vocabulary)
    encoder.task_bytes, encoder.num_threads = LEAST_TASK, 3
    texts = ["ACGTTAG" * 300, "", "GATTACAN" * 9, "ACGT" * 510, "A" * 515, "C" * 512, "acgtn" * 700]
    batch, options = Batch(texts, id_dtype=dtype), EncodeOptions(spans=True)
    written = encoder.encode_with_added(batch, options, added)
    expected = post_process(encoder.reference.encode(batch, options), added, options)
    assert written.ids.dtype == dtype
    assert written.ids.tolist() == expected.ids.tolist()
    assert written.offsets.tolist() == expected.offsets.tolist()
    assert written.spans.tolist() == expected.spans.tolist()


@pytest.mark.parametrize("name", SYMBOLS)
@pytest.mark.parametrize("other_strand", [False, True])
def test_rows_are_cut_at_every_place(name, other_strand):
    chance = random.Random(name)
    row = (
        "".join(chance.choices("ACGT", k=700))
        + "N" * 40
        + "ac"
        + "".join(chance.choices("ACGTN", k=500))
    )
    options, batch = EncodeOptions(reverse_complement=other_strand), Batch([row])
    encoder = SymbolEncoder(load(name))
    expected = reference.encode(load(name), row, replace(options, add_special_tokens=False)).ids
    for encoder.task_bytes in range(LEAST_TASK, 600):
        encoded = encoder.encode_with_added(batch, options, symbols.NO_ADDED_IDS)
        assert encoded.ids.tolist() == expected, encoder.task_bytes


@pytest.mark.parametrize("name", SYMBOLS)
def test_several_threads_give_what_one_gives(name):
    [row] = records("dna/yeast_chrI.fa")
    rows = [row * 5, "", *(row[i : i + 700] for i in range(0, len(row), 700)), "N" * 200_000]
    encoder = SymbolEncoder(load(name))
    contents = []
    for encoder.num_threads in (1, 4):
        contents.append(encoder.encode(Batch(rows), EncodeOptions(spans=True)))
    one, four = contents
    assert np.array_equal(one.ids, four.ids)
    assert np.array_equal(one.offsets, four.offsets)
    assert np.array_equal(one.spans, four.spans)


@pytest.mark.parametrize("k", [1, 5, 6, 7, 8, 9])
def test_kmers_across_the_borders_of_blocks_are_those_of_the_definition(k):
    letters, block = "ATCG", 2048
    words = [""]
    for _ in range(k):
        words = [word + letter for word in words for letter in letters]
    vocabulary = Vocabulary((b"<unk>", *map(str.encode, words)), Kmers(k, 1, 0, letters))
    text = "".join(np.random.default_rng(0).choice([*"ACGT"], 2 * block + 17))
    text = text[: block - 2] + "N" + text[block - 1 :]
    ids = SymbolEncoder(vocabulary).encode(Batch([text]), EncodeOptions()).ids
    number = {word: i + 1 for i, word in enumerate(words)}
    assert ids.tolist() == [number.get(text[i : i + k], 0) for i in range(len(text) - k + 1)]


def leaves_no_row(batch: Batch, options: EncodeOptions):
    """Stands in for the reference where no row may be left."""
    raise AssertionError(f"left: {batch.texts()[0]}")


def test_kmers_already_apart_and_signs_need_no_python_for_a_row():
    vocabulary = load("dnabert1_3mer")
    encoder = SymbolEncoder(vocabulary)
    encoder.reference.encode = leaves_no_row
    texts = ["ACG CGT GTN", "", "ACG", "ACG\nCGT", "AC-GTA--CC*", "A-" * 400, "ACG " * 300 + "ACG"]
    for encoder.task_bytes in (symbols.TASK_BYTES, LEAST_TASK):
        content = encoder.encode(Batch(texts), EncodeOptions(spans=True))
        for row, text in enumerate(texts):
            begin, end = content.offsets[row : row + 2]
            right = reference.encode(vocabulary, text, EncodeOptions(False))
            assert content.ids[begin:end].tolist() == right.ids
            assert list(map(tuple, content.spans[begin:end].tolist())) == right.spans


def test_rows_that_are_not_utf8_are_refused():
    batch = Batch.from_bytes([b"ACGT", b"AC\xff", "é".encode()])
    content = SymbolEncoder(load("hyenadna")).encode(batch, EncodeOptions())
    assert content.errors[1].code == "not_utf8"
    assert np.diff(content.offsets).tolist() == [4, 0, 1]


def test_without_the_extension_the_reference_answers_and_says_why(monkeypatch):
    monkeypatch.setattr(symbols, "native", None)
    for name in ("hyenadna", "mtdna6"):
        vocabulary = load(name)
        chosen = selection.choose_encoder(vocabulary, token_table(vocabulary))
        assert chosen.encoder.name == "reference"
        assert "extension is not built" in chosen.fallback_reason


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hyenadna", "mtdna6", "nt_v2", "gpn"])
def test_a_row_of_100_megabases_is_its_parts(name):
    unit = "".join(random.Random(name).choices("ACGT", k=60_000)) + "N" * 6
    times = 100_000_000 // len(unit)
    encoder, options = SymbolEncoder(load(name)), EncodeOptions()
    once, twice = (encoder.encode(Batch([unit * n]), options).ids for n in (1, 2))
    period = twice[: len(twice) - len(once)]
    ids = encoder.encode(Batch([unit * times]), options).ids
    assert len(ids) == len(period) * (times - 1) + len(once)
    assert (ids[: len(period) * (times - 1)].reshape(-1, len(period)) == period).all()
    assert ids[len(period) * (times - 1) :].tolist() == once.tolist()
