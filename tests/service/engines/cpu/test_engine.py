"""The CPU engine's own duties: its choice of encoder, its self-test, any model's arithmetic."""

from __future__ import annotations

import logging
import string

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from service.engines.cpu import selection
from service.engines.cpu.bpe.tokenizers_encoder import TokenizersEncoder
from service.engines.cpu.dna.encoder import DnaEncoder
from service.engines.cpu.engine import CpuEngine
from service.engines.cpu.symbols.encoder import SymbolEncoder
from service.engines.cpu.text.encoder import TextEncoder
from service.engines.encoder import ReferenceEncoder
from service.engines.selftest import TEXTS, compare, make_test_texts
from tests.support.inputs.motif_strategies import NORMALIZERS, motif_cases
from tests.support.inputs.sequence_strategies import (
    OPTIONS,
    SEQUENCES,
    character_vocabularies,
    kmer_vocabularies,
)
from tests.support.inputs.tokenizer_documents import added, document, encoded
from vocabularies.batch.batch import Batch, EncodeOptions, RowError, RowRefused
from vocabularies.builtin import load
from vocabularies.errors import VocabularyError
from vocabularies.formats import read_vocabulary
from vocabularies.model.tables import token_table
from vocabularies.model.types import Bpe, Kmers, SpecialToken, Upstream
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.normalizers import Normalizer
from vocabularies.reference import tokenizer as reference


class Wrong:
    """An encoder that adds one to every id of a long text."""

    name = "wrong 1.0"

    def __init__(self, vocabulary, table):
        self.right = ReferenceEncoder(vocabulary)

    def encode(self, batch, options):
        content = self.right.encode(batch, options)
        content.ids[np.repeat(np.diff(content.offsets) > 10, np.diff(content.offsets))] += 1
        return content


class Failing(Wrong):
    name = "failing 1.0"

    def encode(self, batch, options):
        raise RuntimeError("no memory")


@pytest.mark.parametrize("make", [Wrong, Failing])
def test_a_wrong_encoder_never_answers(monkeypatch, caplog, make):
    monkeypatch.setattr(selection, "_candidates", lambda *_: [make])
    engine, vocabulary = CpuEngine(), load("nt_v2")
    with caplog.at_level(logging.WARNING):
        residency = engine.load(vocabulary)
    assert (residency.engine, residency.encoder) == ("reference", "reference")
    assert residency.self_test.num_different > 0
    assert make.name in residency.fallback_reason
    assert residency.fallback_reason in caplog.text
    encoded = engine.encode(vocabulary, Batch(["ACGTAC" * 20]))
    assert encoded.engine == "reference"
    assert encoded.ids.tolist() == reference.encode(vocabulary, "ACGTAC" * 20).ids


def test_the_next_encoder_answers_when_the_fastest_is_wrong(monkeypatch):
    monkeypatch.setattr(selection, "_candidates", lambda *_: [Wrong, TextEncoder])
    residency = CpuEngine().load(load("gpt2"))
    assert (residency.engine, residency.encoder) == ("cpu", TextEncoder.name)
    assert residency.self_test.num_different == 0
    assert "wrong 1.0 differs on" in residency.fallback_reason


@pytest.mark.parametrize(
    ("name", "encoder"),
    [
        ("gpt2", TextEncoder.name),
        ("dnabert2", DnaEncoder.name),
        ("gpn", SymbolEncoder.name),
        ("nt_v2", SymbolEncoder.name),
    ],
)
def test_each_family_has_its_encoder(name, encoder):
    assert CpuEngine().load(load(name)).encoder == encoder


@pytest.mark.parametrize("name", ["gpt2", "cl100k_base", "dnabert2", "gena_lm_t2t_32k", "gpn"])
def test_tokenizers_agrees_with_the_reference_on_the_self_test(name):
    vocabulary = load(name)
    encoder = TokenizersEncoder(vocabulary, token_table(vocabulary))
    result = compare(encoder, ReferenceEncoder(vocabulary), make_test_texts(vocabulary))
    assert result.num_different == 0, result.first_difference
    assert result.num_texts > len(TEXTS)


@st.composite
def bpe_vocabularies(draw):
    byte_level = draw(st.booleans())
    alphabet = [bytes([i]) for i in range(256)]
    if not byte_level:
        alphabet = [character.encode() for character in draw(st.sampled_from(["ACGT", "ACGTN é"]))]
    tokens: list[bytes] = list(alphabet)
    merges: list[tuple[int, int]] = []
    for _ in range(draw(st.integers(0, 14))):
        candidates = [i for i, token in enumerate(tokens) if token in PIECES]
        pair = draw(st.sampled_from(candidates)), draw(st.sampled_from(candidates))
        joined = tokens[pair[0]] + tokens[pair[1]]
        if pair not in merges and joined not in tokens:
            merges.append(pair)
            tokens.append(joined)
    unknown_id = None
    if not byte_level and draw(st.booleans()):
        unknown_id = len(tokens)
        tokens.append(b"<unk>")
    mask = SpecialToken("<mask>", len(tokens), special=draw(st.booleans()))
    tokens.append(b"<mask>")
    pretokenizer = draw(
        st.sampled_from(
            ["gpt2", "cl100k", "none"] if byte_level else ["none", "whitespace", "whitespace_split"]
        )
    )
    normalizers = draw(st.sampled_from([(), (Normalizer("lowercase"),), (Normalizer("nfc"),)]))
    model = Bpe(tuple(merges), byte_level, unknown_id=unknown_id)
    return Vocabulary(tuple(tokens), model, (mask,), normalizers, pretokenizer, prefix=(mask.id,))


PIECES = {bytes(p, "ascii") for a in "ACGTN " for p in (a, *(a + b for b in "ACGTN"))} | {
    "é".encode()
}


def check(
    vocabulary: Vocabulary,
    texts: list[str],
    options: EncodeOptions,
    dtype: type[np.integer] = np.int32,
) -> None:
    engine = CpuEngine()
    residency = engine.load(vocabulary)
    assert residency.engine == "cpu", residency
    encoded = engine.encode(vocabulary, Batch(texts, options=options, id_dtype=dtype))
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
        assert encoded.ids[begin:end].tolist() == right.ids, text
        if options.spans:
            assert list(map(tuple, encoded.spans[begin:end].tolist())) == right.spans, text
        if encoded.num_tokens is not None:
            assert encoded.num_tokens[row] == right.num_tokens
    ids, offsets = encoded.ids.astype(np.int64), encoded.offsets
    for skip in (False, True):
        decoded = engine.decode(vocabulary, ids, offsets, skip)
        for row in range(len(texts)):
            row_ids = ids[offsets[row] : offsets[row + 1]].tolist()
            data = decoded.data[decoded.offsets[row] : decoded.offsets[row + 1]].tobytes()
            assert data == reference.decode(vocabulary, row_ids, skip), row_ids


@settings(max_examples=150)
@given(kmer_vocabularies(), st.lists(SEQUENCES, max_size=5), OPTIONS)
def test_any_kmers_have_the_ids_of_the_reference(vocabulary, texts, options):
    check(vocabulary, texts, options)


@settings(max_examples=80)
@given(character_vocabularies(), st.lists(SEQUENCES | st.text(max_size=8), max_size=5), OPTIONS)
def test_any_characters_have_the_ids_of_the_reference(vocabulary, texts, options):
    check(vocabulary, texts, options)


@settings(max_examples=80)
@given(bpe_vocabularies(), st.lists(SEQUENCES | st.text(max_size=8), max_size=5), OPTIONS)
def test_any_bpe_has_the_ids_of_the_reference(vocabulary, texts, options):
    check(vocabulary, texts, options)


@settings(max_examples=60)
@given(motif_cases(normalizers=tuple(NORMALIZERS)), OPTIONS)
def test_any_motifs_have_the_ids_of_the_reference(case, options):
    check(*case, options)


WORD_PIECE = """{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [
    {"id": 0, "content": "[UNK]", "single_word": false, "lstrip": false, "rstrip": false,
     "normalized": false, "special": true}],
    "normalizer": null, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null,
    "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": false},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
    "max_input_chars_per_word": 100, "vocab": {"[UNK]": 0, "un": 1, "##able": 2, "a": 3}}}"""


def upstream(tokenizer_json: str) -> Vocabulary:
    tokens = (b"[UNK]", b"un", b"##able", b"a")
    special = (SpecialToken("[UNK]", 0),)
    return Vocabulary(tokens, Upstream(tokenizer_json, "WordPiece"), special)


def test_an_upstream_model_is_computed_by_its_library():
    engine, vocabulary = CpuEngine(), upstream(WORD_PIECE)
    residency = engine.load(vocabulary)
    assert (residency.engine, residency.encoder) == ("cpu", TokenizersEncoder.name)
    texts = ["unable a", "é un", "x [UNK]"]
    encoded = engine.encode(vocabulary, Batch(texts, options=EncodeOptions(spans=True)))
    assert [encoded.row(row).tolist() for row in range(3)] == [[1, 2, 3], [0, 1], [0, 0]]
    assert encoded.spans.tolist()[3:5] == [[0, 2], [3, 5]]
    refused = engine.encode(vocabulary, Batch(texts, options=EncodeOptions(special="refuse")))
    assert {row: (e.code, e.where) for row, e in refused.errors.items()} == {
        2: ("special_token_refused", "byte 2")
    }
    decoded = engine.decode(vocabulary, np.array([1, 2, 3, 9]), np.array([0, 3, 4]), False)
    assert decoded.data[: decoded.offsets[1]].tobytes() == b"unable a"
    assert decoded.errors[1].where == "ids[0]"


REPEATED = [["<unk>", 0.0], ["▁a", -1.0], ["b", -2.0], ["▁ab", -3.5], ["b", -0.1], ["▁a", -9.0]]


@pytest.mark.parametrize("content", ["<x>", "b"])
def test_of_a_token_that_unigram_lists_twice_the_last_counts_and_both_ids_are_decoded(content):
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    own = document({}, [], pre_tokenizer=metaspace, decoder=metaspace)
    own["added_tokens"] = [added(content, 6 if content == "<x>" else 4)]
    own["model"] = {"type": "Unigram", "unk_id": 0, "vocab": REPEATED, "byte_fallback": False}
    library = Tokenizer.from_str(encoded(own).decode())
    engine, vocabulary = CpuEngine(), read_vocabulary({"tokenizer.json": encoded(own)})
    engine.load(vocabulary)
    texts = ["ab", "a b bb", "aa<x>ab", "c", ""]
    answered = engine.encode(vocabulary, Batch(texts))
    assert [answered.row(i).tolist() for i in range(5)] == [library.encode(t).ids for t in texts]
    ids = [*range(len(vocabulary))]
    assert len(ids) == library.get_vocab_size()
    decoded = engine.decode(vocabulary, np.array(ids), np.array([0, len(ids)]), False)
    assert decoded.data.tobytes().decode() == library.decode(ids, skip_special_tokens=False)


def test_an_upstream_template_that_is_more_than_ids_around_the_text_is_refused():
    template = """{"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "[UNK]", "type_id": 0}}], "pair": [{"Sequence": {"id": "A",
        "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}], "special_tokens":
        {"[UNK]": {"id": "[UNK]", "ids": [0], "tokens": ["[UNK]"]}}}"""
    json = WORD_PIECE.replace('"post_processor": null', f'"post_processor": {template}')
    with pytest.raises(VocabularyError, match="post_processor"):
        CpuEngine().load(upstream(json))


def test_tokens_that_strip_white_space_have_spans_and_refusals_of_the_reference():
    tokens = (*(bytes([i]) for i in range(256)), b"<m>")
    strip = SpecialToken("<m>", 256, lstrip=True, rstrip=True)
    vocabulary = Vocabulary(tokens, Bpe(()), (strip,), pretokenizer="gpt2")
    texts = ["a  <m>  b", "a<m>b", "no", " <m> <m>", "é <m>"]
    for mode in ("match", "plain", "refuse"):
        options = EncodeOptions(special=mode, spans=True)
        check(vocabulary, texts, options)


def test_a_million_rows_of_nothing_are_no_work_for_python():
    texts = ["", *string.ascii_uppercase] * 2000
    encoded = CpuEngine().encode(load("hyenadna"), Batch(texts))
    assert len(encoded.ids) == sum(map(len, texts)) + len(texts)
    assert isinstance(encoded.errors, dict)
    assert RowError("a", "b") not in encoded.errors.values()


@pytest.mark.parametrize("junction", ["append", "prepend"])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_circular_sequences_wrap_as_the_reference_says(junction, k):
    words = [""]
    for _ in range(k):
        words = [word + letter for word in words for letter in "ACGT"]
    model = Kmers(k, 1, 0, circular=True, junction=junction)
    vocabulary = Vocabulary((b"<u>", *map(str.encode, words)), model, prefix=(0,))
    texts = ["ACGGT", "", "A", "ACG", "TTNAC", "CAT" * 9, "é", "AC"]
    for options in (
        EncodeOptions(spans=True),
        EncodeOptions(spans=True, reverse_complement=True),
        EncodeOptions(max_length=4, truncation_side="left", spans=True),
        EncodeOptions(circular=False, spans=True),
    ):
        check(vocabulary, texts, options)
