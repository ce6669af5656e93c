"""Vocabularies that compose (NFC): texts in NFC by the kernels, all others left to the CPU."""

from __future__ import annotations

import functools
import itertools
import random
import unicodedata
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu.engine import GpuEngine
from gpu.errors import NotCovered
from gpu.kernels.job import STATUS, constant
from gpu.kernels.launch_shape import CLASSES
from gpu.streaming import encode_stream
from gpu.text.nfc_check import composed_leads, composed_tables, is_in_nfc, only_composes
from gpu.vocabulary.device_tables import prepare
from tests.engines.test_contract import OPTIONS
from tests.support.data_files import data_bytes
from tests.support.each_device import new_engine
from tests.support.emulation.device import EmulatedDevice
from tests.support.emulation.kernels import launch, make_job
from tests.support.inputs.nasty_texts import TEXTS
from tests.support.inputs.tokenizer_documents import BYTE_LEVEL, BYTES, added, document
from tests.support.inputs.tokenizer_documents import encoded as encoded_document
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.builtin import load
from vocabularies.formats import read_vocabulary
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.normalizers import Normalizer, nfc
from vocabularies.preprocessing.unicode_classes import NUM_CODE_POINTS, normalizer_code_points
from vocabularies.reference import tokenizer

BLOCK = constant("BLOCK")
NFC = (Normalizer("nfc"),)
TEXT_OPTIONS = [
    option
    for option in OPTIONS
    if not (option.reverse_complement or option.circular is not None or option.spans)
    and option.special != "refuse"
]
STAY = [
    *(
        "",
        "abc",
        "größe",
        "Việt Nam",
        "中文字符",
        "한국어",
        "ไทยน้ำ",
        "ড়".replace("\u09dc", "\u09a1\u09bc"),
    ),
    *("\u0921\u093c", "\u05d0\u05b8\u05d1", "مُحَمَّد", "🙂🙃", "a\u0334 b", "\u0301 alone", "ẹ\u0334"),
]
CHANGED = [
    *("e\u0301", "\u212b", "\u0928\u093c", "\u1100\u1161", "a\u0301\u0323", "\uf900", "\u0958"),
    *("가\u11a8", "x\u0315\u0300", "\U0001d15e", "\u0344", "ộ".replace("ộ", "o\u0323\u0302")),
]

engine_of = functools.cache(new_engine)


@functools.cache
def composing(name: str = "gpt2") -> Vocabulary:
    """A built-in vocabulary behind NFC."""
    return replace(load(name), normalizers=NFC)


def identity(text: str) -> list[tuple[int, int]]:
    return [(i, i + 1) for i in range(len(text))]


# The rule.


@pytest.mark.parametrize("text", STAY)
def test_texts_that_are_seen_to_stay(text):
    assert is_in_nfc(text)
    assert nfc(text) == (text, identity(text))


@pytest.mark.parametrize("text", CHANGED)
def test_texts_that_are_composed_are_seen(text):
    assert nfc(text)[0] != text
    assert not is_in_nfc(text)


def test_characters_of_most_leads_are_not_looked_at():
    """Chinese characters and most of Hangul: these begin with E4 to E9, EB and EC."""
    leads = {0xC0 + i for i in range(64) if composed_leads() >> i & 1}
    assert leads.isdisjoint(
        [*range(0xC0, 0xCC), *range(0xE4, 0xEA), 0xEB, 0xEC, *range(0xF5, 0x100)]
    )
    assert {0xCC, 0xE0, 0xEF, 0xF0} <= leads


@functools.cache
def interesting() -> tuple[list[str], list[str]]:
    """Return marks, and characters that join others, are joined, or are decomposed."""
    decomposing, marks = (normalizer_code_points(n) for n in ("decomposing", "combining"))
    parts = {p for c in decomposing for p in unicodedata.normalize("NFD", c)}
    hangul = {chr(c) for c in range(0xAC00, 0xD7A4)}
    joining = sorted((parts | marks) - {chr(c) for c in range(0x300)})
    return joining, sorted((parts | decomposing) - hangul | {"각", "가", "힣"})


def test_what_is_seen_to_stay_stays_with_every_character_where_it_was():
    chance, kept = random.Random(5), 0
    joining, taking = interesting()
    for _ in range(30_000):
        groups = (joining, taking, "ae \u0915\u0921\u1100")
        text = "".join(chance.choice(chance.choice(groups)) for _ in range(chance.randint(1, 6)))
        if is_in_nfc(text):
            kept += 1
            assert nfc(text) == (text, identity(text)), text.encode("unicode_escape")
    assert kept > 5_000


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_most_of_what_is_in_nfc_is_seen_to_be(form):
    """Every line of 17 languages without separate marks; no line of decomposed text."""
    lines = data_bytes("text/udhr_17_languages.txt").decode().splitlines()
    lines = [unicodedata.normalize(form, line) for line in lines]
    stays = [nfc(line)[0] == line for line in lines]
    seen = [is_in_nfc(line) for line in lines]
    assert all(stay for stay, is_seen in zip(stays, seen, strict=True) if is_seen)
    assert sum(seen) >= 0.99 * sum(stays)


# The kernel.


def flagged(text: bytes) -> bool:
    """Return whether the emulated kernel leaves a text to the CPU."""
    pages, rows = composed_tables()
    padded = np.frombuffer(text + b"\xcc\x81" * 32, np.uint8)
    status = np.zeros(8, np.uint64)
    job = make_job(
        text=padded,
        row_begins=np.array([0, len(text)]),
        composed_pages=pages,
        composed_rows=rows,
        composed_leads=composed_leads(),
        status=status,
        num_bytes=len(text),
        num_rows=1,
    )
    launch("check_composed", 1 + (len(text) > 1 << 13), BLOCK, job)
    return bool(status[STATUS["NOT_COVERED"]])


@pytest.mark.slow
def test_every_character_that_is_none_of_those_stays_by_the_kernel_and_by_the_host():
    text = "\n".join(
        chr(c)
        for c in range(NUM_CODE_POINTS)
        if not 0xD800 <= c < 0xE000 and nfc(chr(c))[0] == chr(c)
    )
    assert is_in_nfc(text)
    assert not flagged(text.encode())


@pytest.mark.parametrize("front", ["\n", "e", "\u0928", "가", "\u0301", "\u093c"])
def test_every_mark_behind_another_character_by_the_kernel_as_by_the_host(front):
    """Those that stay in one text, far apart; a part of the others one by one."""
    pairs = [front + mark for mark in interesting()[0]]
    stay = [is_in_nfc(pair) for pair in pairs]
    kept = "\n".join(pair for pair, stays in zip(pairs, stay, strict=True) if stays)
    assert not flagged(kept.encode())
    left = [pair for pair, stays in zip(pairs, stay, strict=True) if not stays]
    assert left or front == "\n"
    for pair in left[:: 1 + len(left) // 12]:
        assert flagged(pair.encode()), pair.encode("unicode_escape")


@pytest.mark.parametrize("text", CHANGED)
def test_the_kernel_sees_a_text_wherever_it_stands(text):
    for before, behind in itertools.product((0, 13, 15, 4095), (0, 20)):
        assert flagged(b"." * before + text.encode() + b"." * behind)


@settings(max_examples=25)
@given(
    text=st.text(
        st.one_of(
            st.characters(codec="utf-8"), st.sampled_from("e\u0301\u0323\u0334\u0928\u093c가\u11a8")
        )
    )
)
def test_any_text_by_the_kernel_as_by_the_host(text):
    assert flagged(text.encode()) == (not is_in_nfc(text))


@settings(max_examples=25)
@given(data=st.binary(max_size=40))
def test_bytes_that_are_no_text_do_no_harm(data):
    flagged(data)


def test_a_mark_that_begins_a_row_joins_nothing(engine):
    texts = ["e", "\u0301 alone", "", "\u0301"]
    encoded = engine.encode(composing(), Batch(texts))
    for row, text in enumerate(texts):
        assert encoded.row(row).tolist() == tokenizer.encode(composing(), text).ids
    assert refused(engine, composing(), ["e", "\u212b"])
    assert refused(engine, composing(), ["e", "\u0301e\u0301"])


# The engine.


def refused(engine: GpuEngine, vocabulary: Vocabulary, texts: list[str]) -> bool:
    try:
        engine.encode(vocabulary, Batch(texts))
    except NotCovered as error:
        assert "NFC" in str(error)
        return True
    return False


@pytest.mark.parametrize("seed", range(6))
def test_texts_in_nfc_have_the_ids_of_the_reference(engine, seed):
    chance = np.random.default_rng(seed)
    known = [text for text in [*TEXTS, *STAY] if len(text) < 200 and is_in_nfc(text)]
    texts = ["".join(chance.choice(known, 1 + row % 9)) for row in range(40)]
    texts = [text for text in texts if is_in_nfc(text)]
    name = ("gpt2", "cl100k_base")[seed % 2]
    options = [TEXT_OPTIONS[i] for i in chance.integers(0, len(TEXT_OPTIONS), len(texts))]
    vocabulary = composing(name)
    encoded = engine.encode(vocabulary, Batch(texts, options=options))
    for row, text in enumerate(texts):
        wanted = tokenizer.encode(vocabulary, text, options[row])
        assert encoded.row(row).tolist() == wanted.ids
    counts, _ = engine.count(vocabulary, Batch(texts, options=options))
    assert counts.tolist() == np.diff(encoded.offsets).tolist()


def test_spans_are_those_of_the_reference(engine):
    texts, options = [text for text in STAY if text], EncodeOptions(spans=True)
    vocabulary = composing()
    encoded = engine.encode(vocabulary, Batch(texts, options=options))
    for row, text in enumerate(texts):
        wanted = tokenizer.encode(vocabulary, text, options)
        begin, end = encoded.offsets[row : row + 2]
        assert encoded.spans[begin:end].tolist() == [list(span) for span in wanted.spans]


@pytest.mark.parametrize("limits", CLASSES.values(), ids=str)
def test_spans_are_those_of_the_reference_on_cards_of_each_class(limits):
    test_spans_are_those_of_the_reference(GpuEngine(EmulatedDevice(limits=limits), 1 << 28))


@pytest.mark.parametrize("text", CHANGED)
def test_a_batch_with_a_text_that_nfc_changes_is_not_covered(engine, text):
    vocabulary, usual = composing(), "It's größe, " * 40
    assert refused(engine, vocabulary, [usual, usual + text, usual])
    assert not refused(engine, vocabulary, [usual, usual])
    # Without NFC nobody minds.
    assert not refused(engine, load("gpt2"), [usual, usual + text])


@pytest.mark.parametrize("size", [30_000, 6_000_000])
@pytest.mark.slow
def test_long_texts_are_not_covered_where_nfc_changes_a_part(engine, size):
    vocabulary, plain = composing(), load("gpt2")
    text = ("Some words, größe und 中文, " * (size // 30)).encode()
    offsets = np.array([0, len(text)])
    data, out = np.frombuffer(text, np.uint8), np.zeros(len(text), np.int32)
    wanted, _ = engine.encode_ids(plain, data, offsets)
    ids, _ = engine.encode_ids(vocabulary, data, offsets)
    assert np.array_equal(ids, wanted)
    begins = encode_stream(engine, vocabulary, data, offsets, out)
    assert np.array_equal(out[: begins[-1]], wanted)
    for place in (0, len(text) // 2, len(text) - 40):
        changed = data.copy()
        place += text[place:].index(b" ")
        changed[place - 1 : place + 2] = np.frombuffer(b"e\xcc\x81", np.uint8)
        with pytest.raises(NotCovered, match="NFC"):
            engine.encode_ids(vocabulary, changed, offsets)
        with pytest.raises(NotCovered, match="NFC"):
            encode_stream(engine, vocabulary, changed, offsets, out)


def test_tokens_that_are_looked_for_behind_nfc_are_found(engine):
    """GPT-NeoX has such tokens, runs of blanks; a token whose blank is composed is not found."""
    tokens = [added("  ", 256, special=False, normalized=True), added("<a>", 257, normalized=True)]
    written = document(
        {string: i for i, string in enumerate(BYTES)},
        [],
        byte_level=True,
        decoder=BYTE_LEVEL,
        normalizer={"type": "NFC"},
        added_tokens=tokens,
    )
    vocabulary = read_vocabulary({"tokenizer.json": encoded_document(written)})
    assert only_composes(vocabulary)
    assert vocabulary.special_tokens[0].normalized
    texts = ["a   b", "gr\u00f6\u00dfe    <a>   x", "   ", "<a>", "<a\u0334>", ""]
    encoded = engine.encode(vocabulary, Batch(texts))
    for row, text in enumerate(texts):
        assert encoded.row(row).tolist() == tokenizer.encode(vocabulary, text).ids
    assert refused(engine, vocabulary, ["<a>\u0338"])


def test_only_byte_level_bpe_with_nfc_alone_is_covered():
    assert only_composes(composing())
    lower = replace(composing(), normalizers=(*NFC, Normalizer("lowercase")))
    assert not only_composes(lower)
    with pytest.raises(NotCovered, match="rewrites the text"):
        prepare(lower, 1)
    assert not only_composes(load("gpt2"))
