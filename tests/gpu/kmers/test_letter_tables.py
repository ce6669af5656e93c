"""Characters and k-mers on the GPU engine, against the reference: emulated and on a device."""

from __future__ import annotations

import functools
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpu.batch import transfer
from gpu.engine import GpuEngine
from gpu.errors import NotCovered
from gpu.kmers import letter_tables
from gpu.streaming import encode_stream
from tests.engines.test_expected_hashes import vocabulary_of
from tests.support.data_files import expected, ids_digest, records
from tests.support.each_device import new_engine
from tests.support.emulation.device import EmulatedDevice, note_launches
from tests.support.inputs.sequence_strategies import (
    OPTIONS,
    SEQUENCES,
    character_vocabularies,
    kmer_vocabularies,
)
from vocabularies.batch.batch import Batch, EncodeOptions, RowError, RowRefused
from vocabularies.builtin import load
from vocabularies.model.tables import may_split_kmers
from vocabularies.model.types import Characters, Kmers, SpecialToken
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference import tokenizer

NAMES = (
    *("evo_bytes", "hyenadna", "caduceus", "gpn", "ntv3", "mtdna6", "nt_v1", "nt_v2"),
    *("dnabert1_3mer", "dnabert1_6mer"),
)
MEGABYTE = 1 << 20


engine_of = functools.cache(new_engine)


@pytest.fixture(autouse=True)
def _short_pieces(monkeypatch):
    """Texts here are short, so that the workspaces have room for pieces of any length."""
    monkeypatch.setattr(letter_tables, "MIN_PIECE", 1)


def right_row(
    vocabulary: Vocabulary, text: str, options: EncodeOptions
) -> tokenizer.ReferenceRow | RowError:
    """Return the reference's row of a text, or why it refuses the text."""
    try:
        return tokenizer.encode(vocabulary, text, options)
    except RowRefused as refused:
        return refused.error


def check(
    engine: GpuEngine, vocabulary: Vocabulary, texts: list[str], options: EncodeOptions
) -> None:
    """Ids, spans, counts, refusals and decoded bytes are the reference's, as text and as bytes.

    What may take a k-mer apart leaves its batch to the CPU engine.
    """
    left = [may_split_kmers(vocabulary, text) for text in texts]
    if any(left):
        with pytest.raises(NotCovered, match="splits k-mers"):
            engine.encode(vocabulary, Batch(texts, options=options))
    texts = [text for is_left, text in zip(left, texts, strict=True) if not is_left]
    rows = [text.encode() for text in texts]
    rights = [right_row(vocabulary, text, options) for text in texts]
    for batch in (Batch(texts, options=options), Batch.from_bytes(rows, options)):
        encoded = engine.encode(vocabulary, batch)
        counts, errors = engine.count(vocabulary, batch)
        assert errors == encoded.errors
        assert counts.tolist() == np.diff(encoded.offsets).tolist()
        for row, text in enumerate(texts):
            right = rights[row]
            if isinstance(right, RowError):
                assert encoded.errors[row] == right
                continue
            assert row not in encoded.errors, encoded.errors
            begin, end = encoded.offsets[row : row + 2]
            assert encoded.ids[begin:end].tolist() == right.ids, text
            if options.spans:
                assert list(map(tuple, encoded.spans[begin:end].tolist())) == right.spans, text
            if encoded.num_tokens is not None:
                assert encoded.num_tokens[row] == right.num_tokens
    ids, offsets = encoded.ids.astype(np.int64), encoded.offsets
    for skip in (False, True):
        data, places, errors = engine.decode(vocabulary, ids, offsets, skip)
        assert errors == {}
        for (begin, end), (first, last) in zip(pairwise(offsets), pairwise(places), strict=True):
            row_ids = ids[begin:end].tolist()
            assert data[first:last].tobytes() == tokenizer.decode(vocabulary, row_ids, skip)


def check_any(vocabulary: Vocabulary, texts: list[str], options: EncodeOptions) -> None:
    engine = engine_of("emulated")
    try:
        engine.load(vocabulary)
    except NotCovered:
        assume(False)
    try:
        check(engine, vocabulary, texts, options)
    finally:
        engine.unload(vocabulary.digest)


@settings(max_examples=100)
@given(kmer_vocabularies(), st.lists(SEQUENCES, max_size=5), OPTIONS)
def test_any_kmers_have_the_ids_of_the_reference(vocabulary, texts, options):
    check_any(vocabulary, texts, options)


WIDE = st.text("ACGTacgtſßıŉﬁK\xa0\x85\u3000\x1c é中🙂<mask>", max_size=30)


@settings(max_examples=100)
@given(kmer_vocabularies(), st.lists(WIDE, max_size=5), OPTIONS)
def test_any_kmers_of_any_text_have_the_ids_of_the_reference(vocabulary, texts, options):
    check_any(vocabulary, texts, options)


@settings(max_examples=100)
@given(character_vocabularies(), st.lists(SEQUENCES | WIDE, max_size=5), OPTIONS)
def test_any_characters_have_the_ids_of_the_reference(vocabulary, texts, options):
    check_any(vocabulary, texts, options)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_rows_of_every_length_around_the_borders_of_tiles(engine, name):
    chance = np.random.default_rng(len(name))
    sizes = [*range(40), *(border + i for border in (64, 2048) for i in range(-14, 15))]
    sizes += [4096 + i for i in (-14, -7, -3, -1, 0, 1, 6, 14)]
    plain = ["".join(chance.choice([*"ACGT"], size)) for size in chance.permutation(sizes)]
    odds = [0.2] * 4 + [0.05] * 4
    mixed = ["".join(chance.choice([*"ACGTNnR "], size, p=odds)) for size in sizes[:80]]
    check(engine, load(name), plain, EncodeOptions())
    check(engine, load(name), [*plain[:50], *mixed], EncodeOptions(spans=True))
    check(engine, load(name), mixed, EncodeOptions())
    wraps = EncodeOptions(circular=True, reverse_complement=True, spans=True)
    if isinstance(load(name).model, Kmers):
        check(engine, load(name), plain[::3], wraps)


def kmers_of_other_letters() -> Vocabulary:
    """A vocabulary of letters that are not bases, for the kernels for letters of any kind."""
    pairs = [bytes([left, right]) for left in b"XYZ" for right in b"XYZ"]
    return Vocabulary((b"<unk>", b"<mask>", *pairs), Kmers(2, 2, 0, "XYZ"))


@pytest.mark.parametrize("name", ["dnabert1_3mer", "mtdna6", "nt_v2", "hyenadna", "other letters"])
def test_many_empty_rows_between_others(engine, name):
    """A thread's letters or ids are of several rows, with few or many empty ones between them."""
    is_other = name == "other letters"
    vocabulary = kmers_of_other_letters() if is_other else load(name)
    chance, letters = np.random.default_rng(3), [*"XYZ"] if is_other else [*"ACGT"]
    texts: list[str] = []
    for size in chance.choice([1, 2, 3, 7, 8, 13, 40], 120):
        empty = [""] * int(chance.choice([0, 1, 3, 4, 5, 40]))
        texts += ["".join(chance.choice(letters, size)), *empty]
    check(engine, vocabulary, texts, EncodeOptions())
    if not is_other:
        check(engine, vocabulary, texts, EncodeOptions(reverse_complement=True))


@pytest.mark.parametrize("name", ["nt_v1", "nt_v2"])
@pytest.mark.slow
def test_runs_that_end_around_the_borders_of_words_and_tiles(engine, name):
    """One batch of all, whose rows begin anywhere in a tile and which ends with no k-mer."""
    chance = np.random.default_rng(0)
    bases = "".join(chance.choice([*"ACGT"], 4300))
    places = [border + i for border in (64, 128, 2048, 4096) for i in range(-14, 15)]
    ends = [chance.choice(["N", "NN", "r", "-", "N-aN", ""]) for _ in places]
    texts = [
        bases[:place] + end + bases[place : place + int(chance.integers(0, 4300))]
        for place, end in zip(places, ends, strict=True)
    ]
    check(engine, load(name), [*texts, bases[:16]], EncodeOptions())


@pytest.mark.parametrize("name", ["nt_v2", "dnabert1_6mer", "caduceus"])
@pytest.mark.slow
def test_one_unusual_letter_anywhere_changes_only_what_it_should(engine, name):
    chance = np.random.default_rng(7)
    text = "".join(chance.choice([*"ACGT"], 9000))
    for letter in ("N", "é", "<", "["):
        for place in (0, 1, 63, 2047, 4095, 8999):
            changed = text[:place] + letter + text[place + 1 :]
            check(engine, load(name), [text[:50], changed, text[:70]], EncodeOptions(spans=True))


def test_a_letter_that_becomes_more_letters_than_it_has_bytes_is_refused_with_a_reason(engine):
    with pytest.raises(NotCovered, match="upper case"):
        engine.encode(load("caduceus"), Batch(["ACGT\u0390"]))
    assert engine.encode(load("caduceus"), Batch(["ACGT"])).ids.tolist() == [7, 8, 9, 10, 1]


def test_what_the_kernels_cannot_do_they_say():
    letters = (("A", 0), ("\u4e2d", 1))
    wide = Vocabulary((b"A", "\u4e2d".encode(), b"?"), Characters(letters, 2))
    upper = Vocabulary((b"A", b"?"), Characters((("A", 0),), 1, "byte", "upper"))
    special = (SpecialToken("<m>", 0),)
    marked = Vocabulary((b"<m>", b"?"), Characters((("A", 1),), 1, "byte"), special)
    words = tuple(bytes([a, b]) for a in b"ACGT" for b in b"ACGT")
    swapped = Vocabulary((*words[::-1], b"?"), Kmers(2, 0, 16))
    runs = Kmers(2, 0, 16, stride=2, frame="run", whitespace="words")
    for vocabulary, why in (
        (wide, "not ASCII"),
        (Vocabulary((*words, b"?"), runs), "words of a vocabulary"),
        (upper, "upper case"),
        (marked, "special tokens"),
        (swapped, "something else"),
    ):
        with pytest.raises(NotCovered, match=why):
            letter_tables.letter_tables_of(vocabulary)


@pytest.mark.parametrize("name", ["hyenadna", "nt_v2", "mtdna6"])
@pytest.mark.parametrize("in_flight", [1, 3, 8])
def test_streams_have_the_ids_of_batches(engine, name, in_flight):
    chance = np.random.default_rng(in_flight)
    letters = "ACGT" if in_flight == 3 else "ACGTN"
    rows = ["".join(chance.choice([*letters], size)).encode() for size in (0, 9000, 5, 70, 4100, 0)]
    batch = Batch.from_bytes(rows)
    ids, offsets = engine.encode_ids(load(name), batch.data, batch.offsets)
    for dtype in (np.int32, np.uint16, np.uint8)[: 3 if name == "hyenadna" else 2]:
        out = np.zeros(len(batch.data) + 9, dtype)
        got = encode_stream(
            engine,
            load(name),
            batch.data,
            batch.offsets,
            out,
            chunk_bytes=4000,
            in_flight=in_flight,
        )
        assert got.tolist() == offsets.tolist()
        assert out[: len(ids)].tolist() == ids.tolist()
    wanted = [
        token_id
        for row in rows
        for token_id in tokenizer.encode(
            load(name), row.decode(), EncodeOptions(add_special_tokens=False)
        ).ids
    ]
    assert ids.tolist() == wanted


@pytest.mark.parametrize("is_small", [True, False])
def test_bulk_ids_leave_out_the_rows_that_encode_refuses(engine, monkeypatch, is_small):
    """A circle of fewer letters than a k-mer has no ids, in one small batch and in chunks."""
    monkeypatch.setattr(engine.resources.workspaces, "is_small", lambda *size: is_small)
    monkeypatch.setattr(engine.pipeline, "chunk_bytes", 16)
    linear = load("mtdna6")
    assert isinstance(linear.model, Kmers)
    circular = replace(linear, model=replace(linear.model, circular=True))
    batch = Batch.from_bytes([b"ACGTACGTAC", b"ACG", b"", b"TTGACAGT", b"CAGTC", b"GATTACA"])
    encoded = engine.encode(circular, batch)
    assert [*encoded.errors] == [1, 2, 4]
    assert np.diff(encoded.offsets).tolist() == [10, 0, 0, 8, 0, 7]
    ids, offsets = engine.encode_ids(circular, batch.data, batch.offsets)
    assert (ids.tolist(), offsets.tolist()) == (encoded.ids.tolist(), encoded.offsets.tolist())


NAMED = ("mtdna6_linear", "mtdna6_circular", *NAMES)
FILES = [(name, file) for name in NAMED for file in expected().get(name, {})]


@pytest.mark.parametrize(("name", "file"), FILES)
def test_the_data_files_have_the_hashes_of_the_reference(engine, name, file):
    known = expected()[name][file]
    sequences = records(file)
    if isinstance(engine.device, EmulatedDevice) and sum(map(len, sequences)) > MEGABYTE // 4:
        pytest.skip("long in emulation")
    options = EncodeOptions(circular=True if name == "mtdna6_circular" else None)
    encoded = engine.encode(vocabulary_of(name), Batch(sequences, options=options))
    assert encoded.errors == {}
    assert len(encoded.ids) == known["n_tokens"]
    assert ids_digest(encoded.ids) == known["sha256"]


def test_plain_kernels_are_not_tried_behind_a_batch_with_breaks(monkeypatch):
    """Until a batch has none; what is not ASCII, or special, is met in either way."""
    engine, vocabulary = GpuEngine(EmulatedDevice(1 << 32), 1 << 28), load("nt_v2")
    plain, broken = ["ACGTACGTAC" * 30, "CAGT"], ["ACGTNACGTACGTAC" * 20, "aCGTACG"]
    others = ["ACGéTACGTACGTN", "<mask>ACGTACGN<pad>"]
    monkeypatch.setattr(transfer, "RECORD_AFTER", 1 << 30)
    seen = note_launches(monkeypatch)
    for rows, is_tried in (
        *((plain, True), (broken, True), (broken, False), (others, False), (broken, True)),
        *((others + broken, False), (plain, True), (broken, True), (plain, False), (plain, True)),
    ):
        seen.clear()
        batch, out = Batch(rows), np.zeros(4000, np.int32)
        ends = encode_stream(engine, vocabulary, batch.data, batch.offsets, out)
        options = EncodeOptions(add_special_tokens=False)
        for row, text in enumerate(rows):
            right = tokenizer.encode(vocabulary, text, options).ids
            assert out[ends[row] : ends[row + 1]].tolist() == right, text
        tried = {"place_rows", "write_even_strided"} & {*seen}
        assert bool(tried) == is_tried
        if rows is broken:
            assert seen.count("find_breaks") == 1
