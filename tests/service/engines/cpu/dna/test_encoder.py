"""The C++ encoder of DNA letters against the reference and the library tokenizers.

A part of these tests runs under sanitizers, too (`tests/service/engines/cpu/test_sanitizers.py`).
"""

from __future__ import annotations

import copy
import functools
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpu.errors import NotCovered
from service.engines.cpu import selection
from service.engines.cpu.bpe.tokenizers_encoder import TokenizersEncoder
from service.engines.cpu.dna import encoder as dna
from service.engines.cpu.dna.encoder import DnaEncoder
from service.engines.cpu.engine import CpuEngine
from service.engines.encoder import Encoder, ReferenceEncoder
from tests.service.engines.test_eviction import used_bytes
from tests.support.data_files import records
from tests.support.inputs.letter_bpe import NASTY, cases, repeats, vocabulary_of
from tests.support.inputs.motif_strategies import NORMALIZERS, motif_cases, motif_vocabulary
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.batch.post_processing import NO_ADDED_IDS, AddedIds, post_process
from vocabularies.builtin import load
from vocabularies.model.tables import token_table
from vocabularies.model.types import SpecialToken
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.normalizers import Normalizer

pytestmark = pytest.mark.skipif(dna.native is None, reason="the C++ extension is not built")
GENA = pytest.param("gena_lm_t2t_32k", marks=pytest.mark.slow)  # It takes seconds to load.
NAMES = ("dnabert2", GENA)
LEAST_TASK = 256
MODES = st.sampled_from(["match", "plain", "refuse"])


@functools.cache
def encoder_of(name: str) -> DnaEncoder:
    return DnaEncoder(load(name), library_of(name))


@functools.cache
def library_of(name: str) -> TokenizersEncoder:
    return TokenizersEncoder(load(name), token_table(load(name)))


def leaves_no_row(batch: Batch, options: EncodeOptions):
    """Stands in for the encoder of left rows where none may be left."""
    raise AssertionError(f"left: {batch.texts()[0]}")


def strict_encoder_of(name: str) -> DnaEncoder:
    encoder = copy.copy(encoder_of(name))
    encoder.encode_left = leaves_no_row
    return encoder


def check(encoder: DnaEncoder, witness: Encoder, texts: list[str], options: EncodeOptions) -> None:
    """Compare ids, places and refusals, with whole rows as tasks and with the smallest ones."""
    expected = witness.encode(Batch(texts), options)
    for task_bytes, num_threads in ((dna.TASK_BYTES, 1), (LEAST_TASK, 3)):
        encoder.task_bytes, encoder.num_threads = task_bytes, num_threads
        actual = encoder.encode(Batch(texts), options)
        assert actual.errors == expected.errors
        assert actual.offsets.tolist() == expected.offsets.tolist()
        assert actual.ids.tolist() == expected.ids.tolist()
        if options.spans:
            assert actual.spans.tolist() == expected.spans.tolist()


def check_reference(vocabulary: Vocabulary, texts: list[str], options: EncodeOptions) -> None:
    try:
        encoder = DnaEncoder(vocabulary, ReferenceEncoder(vocabulary))
    except NotCovered:
        assume(False)
    check(encoder, ReferenceEncoder(vocabulary), texts, options)


@settings(max_examples=250)
@given(cases(), MODES, st.booleans())
def test_any_vocabulary_and_text_has_the_ids_of_the_reference(case, mode, spans):
    vocabulary, texts = case
    check_reference(vocabulary, texts, EncodeOptions(special=mode, spans=spans))


@settings(max_examples=100)
@given(motif_cases(byte_level=False, normalizers=tuple(NORMALIZERS)), MODES, st.booleans())
def test_any_motifs_have_the_ids_of_the_reference(case, mode, spans):
    vocabulary, texts = case
    check_reference(vocabulary, texts, EncodeOptions(special=mode, spans=spans))


def test_motifs_are_found_in_normalized_text():
    lowercase = (Normalizer("lowercase"),)
    vocabulary = motif_vocabulary("acgt", [], ["aa", "ac"], unknown=False, normalizers=lowercase)
    check_reference(vocabulary, ["Aaa", "aA", "ACAa"], EncodeOptions(spans=True))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60)
@given(
    texts=st.lists(
        repeats("ACGT") | repeats("ACGTN") | st.text("ACGTNacgtRY -[]\n", max_size=400), max_size=4
    ),
    mode=MODES,
)
def test_texts_of_published_vocabularies_have_the_ids_of_the_library(name, texts, mode):
    check(encoder_of(name), library_of(name), texts, EncodeOptions(special=mode, spans=True))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mode", ["match", "plain"])
def test_runs_and_other_letters_have_the_ids_of_the_library(name, mode):
    units = ("A", "T", "CA", "CAA", "AGAT", "TTAGGG", "ACGTTGCAAC")
    texts = [*NASTY, "", *(unit * (n // len(unit)) for unit in units for n in (14, 40, 300, 2000))]
    texts += [before + text for before in ("G", "ACGTTGCA" * 9, "N") for text in texts[-8:]]
    check(encoder_of(name), library_of(name), texts, EncodeOptions(special=mode, spans=True))


@pytest.mark.parametrize("name", NAMES)
def test_every_ascii_character_in_and_around_letters(name):
    characters = [chr(code) for code in range(128)]
    texts = ["A" + "C".join(characters) + "A", *(f"{c}AC{c}{c}GT{c}" for c in characters)]
    check(encoder_of(name), library_of(name), texts, EncodeOptions(special="plain", spans=True))


@pytest.mark.parametrize("name", NAMES)
def test_special_tokens_split_texts(name):
    texts = ["[CLS]AC[SEP][SEP]GT", "[CLS", " A [MASK] C-- G", "[UNK][PAD]", "AC[CLS]" * 200]
    encoder = strict_encoder_of(name)
    check(encoder, library_of(name), texts, EncodeOptions(spans=True))


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_cut_at_every_place(name):
    chance = random.Random(name)
    row = "".join(chance.choices("ACGT", k=900)) + "A" * 90 + "".join(chance.choices("ACGT", k=700))
    encoder = encoder_of(name)
    expected = library_of(name).encode(Batch([row]), EncodeOptions()).ids.tolist()
    encoder.num_threads = 1
    for task_bytes in range(LEAST_TASK, 600):
        encoder.task_bytes = task_bytes
        assert encoder.encode(Batch([row]), EncodeOptions()).ids.tolist() == expected, task_bytes


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("unit", ["A", "CA", "AAAT", "GATTACA", "ACGTTGCAACGGT"])
def test_parts_of_repeats_that_share_no_boundary(name, unit):
    texts = ["G" * shift + unit * (3000 // len(unit)) + "C" for shift in range(0, 64, 9)]
    check(encoder_of(name), library_of(name), texts, EncodeOptions())


@pytest.mark.parametrize("name", NAMES)
def test_several_threads_give_what_one_gives(name):
    [row] = records("dna/yeast_chrI.fa")
    rows = [row * 3, *(row[i : i + 700] for i in range(0, len(row), 700))]
    encoder = strict_encoder_of(name)
    contents = []
    for encoder.num_threads in (1, 4):
        contents.append(encoder.encode(Batch(rows), EncodeOptions(spans=True)))
    one, four = contents
    assert np.array_equal(one.ids, four.ids)
    assert np.array_equal(one.offsets, four.offsets)
    assert np.array_equal(one.spans, four.spans)


@pytest.mark.parametrize("id_dtype", [np.int32, np.uint16])
@pytest.mark.parametrize("added", [True, False])
def test_begin_and_end_tokens_are_written_around_rows(id_dtype, added):
    vocabulary, encoder = load("dnabert2"), encoder_of("dnabert2")
    encoder.task_bytes = LEAST_TASK
    batch = Batch(["ACGTTAG", "", "GATTACA" * 400, "-"], id_dtype=id_dtype)
    options = EncodeOptions(add_special_tokens=added, spans=True)
    around = AddedIds.of(vocabulary) if added else NO_ADDED_IDS
    written = encoder.encode_with_added(batch, options, around)
    expected = post_process(library_of("dnabert2").encode(batch, options), around, options)
    assert written.ids.dtype == id_dtype
    assert written.ids.tolist() == expected.ids.tolist()
    assert written.offsets.tolist() == expected.offsets.tolist()
    assert written.spans.tolist() == expected.spans.tolist()


def test_counts_are_those_of_the_ids():
    engine, vocabulary = CpuEngine(), load("dnabert2")
    for texts in (["ACGT" * 30, "", "N", "GATTACA"], ["ACé", "A[SEP]C", "ACGTACGTTAG"]):
        for options in (EncodeOptions(), EncodeOptions(False), EncodeOptions(max_length=4)):
            batch = Batch(texts, options=options)
            expected = np.diff(engine.encode(vocabulary, batch).offsets)
            assert engine.count(vocabulary, batch).counts.tolist() == expected.tolist()


def test_left_rows_are_counted_by_reason():
    engine, vocabulary = CpuEngine(), load("dnabert2")
    engine.load(vocabulary)
    assert engine.status().fallbacks == {}
    engine.encode(vocabulary, Batch(["ACGT[SEP]", "N", " "]))
    assert engine.status().fallbacks == {}
    engine.encode(vocabulary, Batch(["ACGT", "ACGé", "é"]))
    refused = engine.encode(
        vocabulary, Batch(["A[SEP]", "C"], options=EncodeOptions(special="refuse"))
    )
    assert refused.errors.keys() == {0}
    assert engine.status().fallbacks == {"dna_not_ascii": 1, "dna_special_token": 1}


def test_rows_that_are_not_utf8_are_refused():
    batch = Batch.from_bytes([b"ACGT", b"AC\xff", b"GT"])
    content = encoder_of("dnabert2").encode(batch, EncodeOptions())
    assert content.errors[1].code == "not_utf8"
    assert np.diff(content.offsets).tolist()[1] == 0


def test_published_vocabularies_are_encoded_in_cpp():
    residency = CpuEngine().load(load("dnabert2"))
    assert (residency.encoder, residency.fallback_reason) == (dna.NAME, "")


@pytest.mark.parametrize(
    ("vocabulary", "why"),
    [
        (load("gpt2"), "not BPE over letters"),
        (vocabulary_of("Aé", [("A", "é")]), "not ASCII"),
        (
            replace(
                vocabulary_of("ACG", [("A", "C")]),
                special_tokens=(SpecialToken("A<", 1),),
                tokens=(b"<unk>", b"A<", b"A", b"C", b"G", b"AC"),
            ),
            "begins with a letter that merges",
        ),
        (
            vocabulary_of(
                "AC-", [("A", "C")], normalizers=(Normalizer("replace_regex", "A{3,}", "-"),)
            ),
            "runs of a base",
        ),
    ],
)
def test_what_is_not_covered_says_why(vocabulary, why):
    with pytest.raises(NotCovered, match=why):
        DnaEncoder(vocabulary, ReferenceEncoder(vocabulary))


def test_without_the_extension_the_library_answers_and_says_why(monkeypatch):
    monkeypatch.setattr(dna, "native", None)
    vocabulary = load("dnabert2")
    chosen = selection.choose_encoder(vocabulary, token_table(vocabulary))
    assert chosen.encoder.name.startswith("tokenizers")
    assert "extension is not built" in chosen.fallback_reason


@pytest.mark.slow
def test_memory_for_the_ids_of_a_long_row_is_not_kept():
    encoder, options = encoder_of("dnabert2"), EncodeOptions(add_special_tokens=False)
    short, long = Batch(["ACN"]), Batch(["ACN" * 4_000_000])  # It cannot be cut.
    assert len(long.data)
    encoder.encode(short, options)
    before = used_bytes()
    assert encoder.encode(long, options).offsets[-1] > 8_000_000
    assert used_bytes() - before < 8 << 20
