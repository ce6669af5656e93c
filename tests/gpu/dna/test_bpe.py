"""Byte-pair encoding of letters on the GPU engine, against the reference: emulated and on a GPU."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpu.dna import compatible_pairs as dna_pairs
from gpu.dna import tables
from gpu.engine import GpuEngine
from gpu.errors import DeviceFault, NotCovered
from gpu.streaming import encode_stream
from tests.gpu.kmers.test_letter_tables import check
from tests.support.data_files import expected, ids_digest, records
from tests.support.each_device import DEVICES, limit_fused, new_engine
from tests.support.inputs.letter_bpe import (
    NASTY,
    cases,
    merge_lists,
    unknown_as,
    vocabulary_of,
)
from tests.support.inputs.sequence_strategies import OPTIONS
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.builtin import load
from vocabularies.preprocessing.normalizers import Normalizer
from vocabularies.reference import tokenizer
from vocabularies.reference.bpe import BpeRules, Symbol, make_bpe_rules, merge

NAMES = ("dnabert2", "gena_lm_t2t_32k")
ANY = 1 << 40
CHUNKS = {"small": ANY, "large": 0, "parts": ANY}
"""Text up to which chunks are small, by how a batch is encoded."""


tables_of = functools.cache(tables.dna_tables)
"""The same for all engines, and made for seconds."""


@functools.cache
def engine_of(device: str, chunks: str) -> GpuEngine:
    engine = new_engine(device)
    if chunks != "parts":
        limit_fused(engine, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "SMALL_CHUNK_TEXT", CHUNKS[chunks])
        patch.setattr(tables, "dna_tables", tables_of)
        for name in NAMES:
            engine.load(load(name))
    return engine


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


@pytest.fixture(params=CHUNKS)
def engine(request, device):
    return engine_of(device, request.param)


@settings(max_examples=100)
@given(cases(), OPTIONS, st.sampled_from([*CHUNKS]))
def test_any_vocabulary_and_text_has_the_ids_of_the_reference(case, options, chunks):
    vocabulary, texts = case
    engine = engine_of("emulated", chunks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "SMALL_CHUNK_TEXT", CHUNKS[chunks])
        try:
            engine.load(vocabulary)
            check(engine, vocabulary, texts, options)
        except NotCovered:
            assume(False)
        finally:
            engine.unload(vocabulary.digest)


@settings(max_examples=60)
@given(merge_lists("ACG"), st.booleans())
def test_tokens_and_pairs_are_those_by_definition(merges, is_sorted):
    if is_sorted:
        merges = sorted(merges, key=lambda pair: len(pair[0] + pair[1]))
    rules = make_bpe_rules(vocabulary_of("ACG", merges))
    spelled = [token.decode() for token in rules.token_ids if set(token) <= set(b"ACG")]
    letter_ids = {letter: rules.token_ids[letter.encode()] for letter in "ACG"}
    tokens = dna_pairs.SpelledTokens.of([*spelled, "AxC"], letter_ids)
    reached = dna_pairs.find_reached(tokens, rules)
    assert reached.tolist() == [len(merged(token, rules)) == 1 for token in spelled] + [False]
    tokens = dna_pairs.SpelledTokens.of([*itertools.compress(spelled, reached)][:40], letter_ids)
    fast = dna_pairs.compatible_pairs(tokens, rules)
    slow = dna_pairs.pairs_by_trial(tokens.rows(), rules)
    for i in range(len(tokens.lengths)):
        for j in range(len(tokens.lengths)):
            assert bit(fast, i, j) == bit(slow, i, j), (i, j)


def merged(token: str, rules: BpeRules) -> list[Symbol]:
    ids = [rules.token_ids[letter.encode()] for letter in token]
    return merge([Symbol(each, place, place + 1) for place, each in enumerate(ids)], rules)


def test_merges_out_of_order_and_large_relations_are_not_covered(monkeypatch):
    letters = {"A": 0, "C": 1}
    tokens = dna_pairs.SpelledTokens.of(["A", "C"] * 200, letters)
    out_of_order = BpeRules({(2, 0): (0, 3), (0, 1): (1, 2)}, {})
    with pytest.raises(NotCovered, match="out of order and more than 256 tokens"):
        dna_pairs.compatible_pairs(tokens, out_of_order)
    monkeypatch.setattr(dna_pairs, "MAX_PAIR_BYTES", 4)
    with pytest.raises(NotCovered, match="8 bytes for pairs of tokens"):
        dna_pairs.compatible_pairs(tokens, BpeRules({}, {}))
    with pytest.raises(ValueError, match="the lengths do not add up"):
        dna_pairs.native.reached(tokens.letters, tokens.lengths[1:], np.zeros((0, 4), np.int32))


def bit(pairs: dna_pairs.Pairs, left: int, right: int) -> int:
    place = int(pairs.right[right])
    return int(pairs.bits[int(pairs.left[left]), place // 32]) >> place % 32 & 1


@pytest.mark.parametrize("name", NAMES)
def test_every_offset_of_a_text_to_the_chunks(engine, name):
    chance = random.Random(name)
    text = "".join(chance.choices("ACGT", k=290)) + "A" * 200 + "CA" * 90
    texts = [part for offset in range(65) for part in ("G" * offset, text)]
    check(engine, load(name), texts, EncodeOptions())


def test_a_long_token_that_ends_at_a_gap_behind_a_chunk(engine):
    """The border behind it ends no token, but both windows must have it."""
    texts = [before * "G" + "A" * 64 + "x" * 150 for before in range(0, 330, 3)]
    check(engine, load("gena_lm_t2t_32k"), texts, EncodeOptions())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("reverse_complement", [False, True])
@pytest.mark.slow
def test_runs_of_letters_have_the_ids_of_the_reference(engine, name, reverse_complement):
    options = EncodeOptions(spans=True, reverse_complement=reverse_complement)
    check(engine, load(name), [*NASTY, ""], options)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("letter", ["N", "a", "X", " ", "\t", "\0", "\x7f"])
def test_words_of_one_letter_that_is_no_base(engine, name, letter):
    """Words of 64 letters and more begin at any bit, behind bases and behind other letters."""
    rows = [
        before + letter * count for count in (63, 64, 127, 150) for before in ("", "ACG", "NAx")
    ]
    check(
        engine,
        load(name),
        [row + behind for row in rows for behind in ("", "ACGT")],
        EncodeOptions(),
    )


SIXES = [("A", "A"), ("AA", "AA"), ("A", "AA"), ("AA", "AAA"), ("AAAA", "AA"), ("AAAA", "A")]
"""AAAA and AAAAAA have more letters than `longest` is indexed by, and up to four more at most."""


def test_a_token_that_repeats_the_one_before_is_tried_behind_a_longer_one(engine):
    """The longer token is tried first and leads to no path, so the walk returns to its begin."""
    check(engine, vocabulary_of("A", SIXES), ["A" * n for n in range(1, 50)], EncodeOptions())
    check(engine, load("gena_lm_t2t_32k"), ["AAATATTTATTAAATATTTATTGGCCGC"], EncodeOptions())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("in_flight", [2, 5])
def test_a_stream_has_the_ids_of_its_rows(device, name, in_flight):
    """Chunks of a stream end between rows, or where a blank is dropped; GENA-LM strips blanks."""
    engine, chance = engine_of(device, "large"), random.Random(in_flight)
    rows = ["".join(chance.choices("ACGTN", [9, 9, 9, 9, 1], k=k)) for k in range(0, 3000, 90)]
    rows += ["ACGTTA GGATC " * 900, " ", "N" * 900]
    batch = Batch(rows)
    ids, offsets = engine.encode_ids(load(name), batch.data, batch.offsets)
    plain = EncodeOptions(add_special_tokens=False)
    for row, text in enumerate(rows):
        assert (
            ids[offsets[row] : offsets[row + 1]].tolist()
            == tokenizer.encode(load(name), text, plain).ids
        )
    for dtype in (np.int32, np.uint16):
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


def dna_entries() -> Iterator[tuple[str, str]]:
    for name in NAMES:
        for file in expected().get(name, {}):
            yield name, file


@pytest.mark.parametrize(("name", "file"), [*dna_entries()])
def test_published_sequences_have_the_expected_ids(device, name, file):
    known = expected()[name][file]
    encoded = engine_of(device, "large").encode(load(name), Batch(records(file)))
    assert encoded.errors == {}
    assert (len(encoded.ids), ids_digest(encoded.ids)) == (known["n_tokens"], known["sha256"])


@pytest.mark.parametrize(
    ("vocabulary", "why"),
    [
        (vocabulary_of("Aé", [("A", "é")]), "not ASCII"),
        (vocabulary_of("AC", [("A", "C")], normalizers=(Normalizer("nfc"),)), "nfc"),
        (vocabulary_of("AC-", [("A", "-")], pretokenizer="isolate:-"), "cuts letters that merge"),
        (vocabulary_of("A-", [("A", "-")], pretokenizer="whitespace"), "cuts between letters"),
        (vocabulary_of("A", [("A" * 2**n, "A" * 2**n) for n in range(7)]), "64 letters"),
        (
            vocabulary_of(
                "A",
                [("A", "A")],
                unknown=False,
                normalizers=(Normalizer("replace_regex", "N{10,}", "-"),),
            ),
            "no id",
        ),
        (vocabulary_of("A ", [("A", " ")], normalizers=(Normalizer("strip"),)), "is stripped"),
        (vocabulary_of("AC", [("<unk>", "A")]), "unknown letters are merged"),
        (unknown_as(vocabulary_of("AC", [("C", "A")]), b"A"), "unknown letters are merged"),
    ],
)
def test_what_is_not_covered_says_why(vocabulary, why):
    with pytest.raises(NotCovered, match=why):
        engine_of("emulated", "small").load(vocabulary)


@pytest.mark.parametrize("name", NAMES)
def test_every_ascii_character_is_a_letter_or_unknown(engine, name):
    """NUL is one, too; it must not count as a run if the vocabulary replaces no runs."""
    characters = [chr(code) for code in range(128)]
    texts = ["A" + "C".join(characters) + "A", *characters, "\0" * 70 + "ACGT", "\0\1\1\1" * 40]
    check(engine, load(name), texts, EncodeOptions())


def test_letters_that_are_left_out_are_not_covered():
    """Their neighbours would merge."""
    vocabulary = vocabulary_of("AC", [("A", "C")], unknown=False)
    engine = engine_of("emulated", "small")
    assert engine.encode(vocabulary, Batch(["ACA"])).ids.tolist() == [1, 4, 2, 0]
    with pytest.raises(NotCovered, match="no id"):
        engine.encode(vocabulary, Batch(["AxC"]))


def test_letters_without_a_path_are_a_fault_and_no_endless_search(monkeypatch):
    """Tables of which no token may follow another."""
    real = tables.compatible_pairs

    def none_follows(*args):
        pairs = real(*args)
        bits = pairs.bits.copy()
        bits[1:] = 0
        return dataclasses.replace(pairs, bits=bits)

    monkeypatch.setattr(tables, "compatible_pairs", none_follows)
    engine, vocabulary = (
        engine_of("emulated", "small"),
        vocabulary_of("ACG", [("C", "A"), ("C", "G")]),
    )
    with pytest.raises(DeviceFault, match="no path"):
        engine.encode(vocabulary, Batch(["ACGGCA" * 60]))
