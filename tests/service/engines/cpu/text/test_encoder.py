"""The C++ encoder of byte-level BPE against the reference, the libraries and its own automaton.

A part of these tests runs under sanitizers, too (`tests/service/engines/cpu/test_sanitizers.py`).
"""

from __future__ import annotations

import functools
import random
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gpu.errors import NotCovered
from gpu.text.pretokenizer_rules import RULES as MACHINES
from service.engines.cpu.bpe.tokenizers_encoder import TokenizersEncoder
from service.engines.cpu.engine import CpuEngine
from service.engines.cpu.text import encoder as text_encoder
from service.engines.cpu.text import tables
from service.engines.cpu.text.encoder import TextEncoder
from service.engines.encoder import ReferenceEncoder
from tests.support.inputs.motif_strategies import motif_cases
from tests.support.inputs.nasty_texts import RUNS, TEXTS
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.builtin import load
from vocabularies.model.tables import token_table
from vocabularies.model.types import Bpe, SpecialToken
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.normalizers import Normalizer
from vocabularies.preprocessing.unicode_classes import NUM_CODE_POINTS
from vocabularies.reference import tokenizer as reference

pytestmark = pytest.mark.skipif(text_encoder.native is None, reason="the extension is not built")
NAMES = [*tables.RULES]
MODES = st.sampled_from(["match", "plain", "refuse"])
LETTERS = "abAsSrRvVeElLdDmMtT'  \n\r\t/1239!.é中\u0301\u3000\u017f\xa0٣"
PLAIN = EncodeOptions(False, "plain")
MATCHED = EncodeOptions(False, "match")


@functools.cache
def representatives(name: str) -> str:
    """Return characters of all classes of a rule, more of those that its masks look at."""
    masks = MACHINES[name].classes().values()
    wide = np.arange(NUM_CODE_POINTS) > 0x7F
    surrogates = (np.arange(NUM_CODE_POINTS) >> 11) == 0xD800 >> 11
    firsts = [np.flatnonzero(mask & wide & ~surrogates)[:1] for mask in masks]
    return LETTERS + "".join(chr(place) for first in firsts for place in first)


def telling_vocabulary(name: str, **fields) -> Vocabulary:
    """Make a vocabulary whose ids show where pretokens begin: any two of some tokens merge."""
    characters = [character.encode() for character in dict.fromkeys(representatives(name))]
    tokens = [bytes([byte]) for byte in range(256)]
    number = {token: i for i, token in enumerate(tokens)}
    merges: list[tuple[int, int]] = []

    def add(left: bytes, right: bytes) -> None:
        if left + right not in number:
            merges.append((number[left], number[right]))
            number[left + right] = len(tokens)
            tokens.append(left + right)

    for character in characters:
        for end in range(1, len(character)):
            add(character[:end], character[end : end + 1])
    chance = random.Random(name)
    joined = characters
    for count in (len(characters), 40):
        chosen = chance.sample(joined, count)
        pairs = [(left, right) for left in chosen for right in chosen]
        chance.shuffle(pairs)
        for left, right in pairs:
            add(left, right)
        joined = [left + right for left, right in pairs]
    special = fields.pop("special_tokens", ())
    own = tuple(replace(token, id=len(tokens) + i) for i, token in enumerate(special))
    tokens += [token.content.encode() for token in own]
    return Vocabulary(
        tuple(tokens), Bpe(tuple(merges)), pretokenizer=name, special_tokens=own, **fields
    )


@functools.cache
def encoder_of(name: str) -> TextEncoder:
    vocabulary = telling_vocabulary(name)
    return TextEncoder(vocabulary, token_table(vocabulary))


@functools.cache
def automaton_of(name: str) -> TextEncoder:
    """Make an encoder that uses no masks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(tables.RULES, name, tables.Rule(tables.AUTOMATON))
        return TextEncoder(telling_vocabulary(name), token_table(telling_vocabulary(name)))


def check(encoder: TextEncoder, texts: Sequence[str], options: EncodeOptions = PLAIN) -> None:
    """Compare with the reference, with whole rows as tasks and with the smallest ones."""
    expected = ReferenceEncoder(encoder.vocabulary).encode(Batch(texts), options)
    for task_bytes, num_threads in ((text_encoder.TASK_BYTES, 1), (64, 3)):
        encoder.task_bytes, encoder.num_threads = task_bytes, num_threads
        actual = encoder.encode(Batch(texts), options)
        assert actual.errors == expected.errors
        assert actual.offsets.tolist() == expected.offsets.tolist()
        assert actual.ids.tolist() == expected.ids.tolist()
        if options.spans:
            assert actual.spans.tolist() == expected.spans.tolist()
    if options.special == "match" or not encoder.vocabulary.special_tokens:
        check_short(encoder, texts, np.split(expected.ids, expected.offsets[1:-1]))


def check_short(
    encoder: TextEncoder, texts: Sequence[str], rows: Sequence[NDArray[np.integer[Any]]]
) -> None:
    """Compare the ids of single strings, of which the extension may leave some."""
    for text, row in zip(texts, rows, strict=False):
        ids = encoder.encode_short(text)
        if ids is not None:
            assert ids.tolist() == encoder.list_short(text) == row.tolist()
            assert encoder.encode_short(text.encode()).tolist() == row.tolist()


def random_text(name: str, chance: random.Random, num_runs: int) -> str:
    characters = representatives(name)
    runs = (chance.choice(characters) * chance.choice((1, 1, 1, 2, 3)) for _ in range(num_runs))
    return "".join(runs)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=150)
@given(data=st.data(), spans=st.booleans())
def test_any_text_has_the_ids_of_the_reference(name, data, spans):
    texts = data.draw(st.lists(st.text(representatives(name), max_size=200), max_size=3))
    check(encoder_of(name), texts, replace(PLAIN, spans=spans))


def test_a_short_string_takes_the_short_way_alone():
    encoder, engine = encoder_of("gpt2"), CpuEngine()
    assert encoder.encode_short("").tolist() == encoder.list_short("") == []
    for text in ("a" * 8193, "é" * 5000, "\ud800", b"a" * 8193, b"\xff"):
        assert encoder.encode_short(text) is encoder.list_short(text) is None
    with pytest.raises(TypeError, match="3 arguments"):
        text_encoder.native.encode_short(encoder.native)
    vocabulary = telling_vocabulary("gpt2", special_tokens=(SpecialToken("<s>", 0),))
    framed = replace(vocabulary, prefix=(1, 2), suffix=(3,))
    for text in ("It's a <s> short text", "", "é" * 5000):
        expected = reference.encode(framed, text).ids
        assert engine.encode(framed, Batch([text])).ids.tolist() == expected
        content = engine.encode(framed, Batch.from_bytes([text.encode()], MATCHED))
        assert content.ids.tolist() == expected[2:-1]
        assert engine.list_short(framed, text) in (expected, None)
    assert engine.list_short(framed, "abc") is not None
    assert engine.list_short(load("dnabert2"), "ACGT") is None


@pytest.mark.parametrize("name", NAMES)
def test_masks_and_automaton_find_the_same_pretokens(name):
    chance = random.Random(name)
    texts = [random_text(name, chance, chance.choice((5, 30, 60, 300))) for _ in range(4000)]
    masks, automaton = encoder_of(name), automaton_of(name)
    one, other = (each.encode(Batch(texts), PLAIN) for each in (masks, automaton))
    different = np.flatnonzero(np.diff(one.offsets) != np.diff(other.offsets))
    assert [texts[row] for row in different[:1]] == []
    assert one.ids.tolist() == other.ids.tolist()


@pytest.mark.parametrize("name", NAMES)
def test_every_place_of_a_window(name):
    chance = random.Random(name)
    parts = ["'s", "'ll ", "'Ve", "\n  \n", "  a", "!\n\n", "1234", "aB", "\u3000", "中A", "'", " "]
    texts = [before * "a" + part + after for before in range(58, 67) for part in parts
             for after in ("", "x", " ", random_text(name, chance, 40))]  # fmt: skip
    check(encoder_of(name), texts)


@pytest.mark.parametrize("name", NAMES)
def test_nasty_texts(name):
    check(encoder_of(name), [*TEXTS, *RUNS])


@settings(max_examples=200)
@given(
    st.lists(st.text("ab", max_size=300), max_size=3), st.integers(0, 1 << 30), st.booleans(), MODES
)
def test_any_merges_have_the_ids_of_the_reference(texts, seed, ignore_merges, mode):
    chance = random.Random(seed)
    tokens = [bytes([byte]) for byte in range(256)]
    merges: list[tuple[int, int]] = []
    while len(merges) < 30:
        known = [97, 98, *range(256, len(tokens))]
        left, right = chance.choice(known), chance.choice(known)
        if tokens[left] + tokens[right] not in tokens:
            merges.append((left, right))
            tokens.append(tokens[left] + tokens[right])
    chance.shuffle(merges)
    model = Bpe(tuple(merges), ignore_merges=ignore_merges)
    vocabulary = Vocabulary(tuple(tokens), model)
    encoder = TextEncoder(vocabulary, token_table(vocabulary))
    check(encoder, texts, EncodeOptions(False, mode, spans=True))
    check(encoder, texts)  # Now from the caches.


def merge_pairs_of(sample: bytes, count: int, chance: random.Random) -> Vocabulary:
    """Make a vocabulary by merging pairs of a sample, within characters and across them."""
    tokens = [bytes([byte]) for byte in range(256)]
    merges: list[tuple[int, int]] = []
    ids = [*sample]
    while len(merges) < count and len(ids) > 1:
        place = chance.randrange(len(ids) - 1)
        pair = ids[place], ids[place + 1]
        token = tokens[pair[0]] + tokens[pair[1]]
        if token not in tokens:
            merges.append(pair)
            tokens.append(token)
        ids[place : place + 2] = [tokens.index(token)]
    return Vocabulary(tuple(tokens), Bpe(tuple(merges)))


@settings(max_examples=200)
@given(st.integers(0, 1 << 30), st.booleans())
def test_merges_across_characters_have_the_ids_of_the_reference(seed, is_shuffled):
    chance = random.Random(seed)
    characters = chance.sample("abあいち、。éèÃ中\u0800\uffff😀", 3)
    sample, *texts = ("".join(chance.choices(characters, k=12)) for _ in range(10))
    vocabulary = merge_pairs_of(sample.encode(), 30, chance)
    if is_shuffled:
        merges = chance.sample(vocabulary.model.merges, len(vocabulary.model.merges))
        vocabulary = replace(vocabulary, model=Bpe(tuple(merges)))
    check(TextEncoder(vocabulary, token_table(vocabulary)), [sample, *texts])


VALID = ["a", "é", "\u0800", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff"]
INVALID = [
    b"\x80", b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xf0\x8f\xbf\xbf",
    b"\xf5\x80\x80\x80", b"\xf4\x90\x80\x80", b"\xff", b"\xc3", b"\xe3\x81",
    b"\xf0\x9f\x98", b"\xc3\xa9\xa9", b"\xe3\x81\x82\x82",
]  # fmt: skip


def test_a_row_that_is_not_utf8_is_left_wherever_its_fault_is():
    encoder = encoder_of("gpt2")
    rows, is_valid = [], []
    for before in range(70):
        for after in (b"", b"a", "é".encode(), b"a" * 40):
            for part in [*map(str.encode, VALID), *INVALID]:
                rows += [b"a" * before + part + after, "é".encode() * before + part + after]
                is_valid += 2 * [part not in INVALID]
    batch = Batch.from_bytes(rows)
    _, left = encoder._encode_most(batch, plain=True, is_composed=False)
    assert left.tolist() == np.flatnonzero(~np.array(is_valid)).tolist()


@settings(max_examples=60)
@given(motif_cases(byte_level=True), st.booleans())
def test_motifs_and_literals_are_pretokens(case, spans):
    vocabulary, texts = case
    for pretokenizer in (vocabulary.pretokenizer, "isolate:a", "isolate:ca"):
        motifs = vocabulary.motifs if pretokenizer == vocabulary.pretokenizer else ()
        changed = replace(vocabulary, pretokenizer=pretokenizer, motifs=motifs)
        try:
            encoder = TextEncoder(changed, token_table(changed))
        except NotCovered:
            continue
        check(encoder, texts, replace(PLAIN, spans=spans))


SPECIAL = (
    SpecialToken("<a>", 0),
    SpecialToken("<a><b>", 0),
    SpecialToken("!!", 0, special=False),
    SpecialToken("ab", 0, matched=False),
)


@functools.cache
def special_encoder_of(kind: str) -> TextEncoder:
    more = {
        "plain": (),
        "strips": (SpecialToken("<s>", 0, lstrip=True, rstrip=True),),
        "word": (SpecialToken("<w>", 0, single_word=True),),
        "normalized": (SpecialToken("<n>", 0, normalized=True),),
        "many first bytes": tuple(SpecialToken(f"{c}<x>", 0) for c in "0456789"),
    }[kind]
    vocabulary = telling_vocabulary("cl100k", special_tokens=SPECIAL + more)
    return TextEncoder(vocabulary, token_table(vocabulary))


@pytest.mark.parametrize("kind", ["plain", "strips", "word", "normalized", "many first bytes"])
@settings(max_examples=150)
@given(
    texts=st.lists(
        st.lists(st.sampled_from(["<a>", "<b>", "<s>", "<w>", "<n>", "4<x>", "!", "ab", " ", "\n"]))
        .map("".join), max_size=4),
    mode=MODES,
    spans=st.booleans(),
)  # fmt: skip
def test_special_tokens_split_texts(kind, texts, mode, spans):
    check(special_encoder_of(kind), texts, EncodeOptions(False, mode, spans=spans))


@functools.cache
def composing_encoder(is_normalized: bool) -> TextEncoder:
    tokens = (
        SpecialToken("<a>", 0),
        SpecialToken("<!>", 0, special=False),
        SpecialToken("<n>", 0, normalized=is_normalized, lstrip=True),
    )
    vocabulary = telling_vocabulary(
        "qwen2", normalizers=(Normalizer("nfc"),), special_tokens=tokens
    )
    return TextEncoder(vocabulary, token_table(vocabulary))


@pytest.mark.parametrize("is_normalized", [False, True])
@settings(max_examples=150)
@given(
    texts=st.lists(
        st.lists(
            st.sampled_from(
                [*"ae\u0301\u0327\u0338 é中\u0921\u093c<>!K\u212a", "<a>", "<n>", "<!>"]
            )
        ).map("".join),
        max_size=4,
    ),
    mode=MODES,
    spans=st.booleans(),
)
def test_rows_that_nfc_changes_have_the_references_ids(is_normalized, texts, mode, spans):
    check(composing_encoder(is_normalized), texts, EncodeOptions(False, mode, spans=spans))


@pytest.mark.parametrize("text", ["cafe\u0301", "e\u0301<a>\u0338a<n> e\u0301", "b\u0301"])
def test_rows_that_nfc_changes_are_encoded_by_the_extension(monkeypatch, text):
    encoder = composing_encoder(False)
    expected = ReferenceEncoder(encoder.vocabulary).encode(Batch(["a", text]), MATCHED)
    monkeypatch.setattr(encoder, "_encode_by_another", None)
    assert encoder.encode(Batch(["a", text]), MATCHED).ids.tolist() == expected.ids.tolist()


@settings(max_examples=150)
@given(
    st.lists(st.binary(max_size=9) | st.text("e\u0301中 a", max_size=9).map(str.encode), max_size=4)
)
def test_spans_of_bytes_with_nfc_are_the_references(rows):
    encoder = composing_encoder(False)
    options = replace(MATCHED, spans=True)
    expected = ReferenceEncoder(encoder.vocabulary).encode(Batch.from_bytes(rows), options)
    actual = encoder.encode(Batch.from_bytes(rows), options)
    assert actual.errors == expected.errors
    assert actual.ids.tolist() == expected.ids.tolist()
    assert actual.spans.tolist() == expected.spans.tolist()


def test_only_many_rows_that_nfc_changes_need_the_library_for_their_spans():
    vocabulary = composing_encoder(False).vocabulary
    encoder = TextEncoder(vocabulary, token_table(vocabulary))
    options = replace(MATCHED, spans=True)
    reference = ReferenceEncoder(vocabulary)
    for texts in (["中 é a"] * 9_000 + ["e\u0301"], ["中e\u0301 a"] * 9_000):
        assert not encoder.tokenizers
        actual, expected = (e.encode(Batch(texts), options) for e in (encoder, reference))
        assert actual.ids.tolist() == expected.ids.tolist()
        assert actual.spans.tolist() == expected.spans.tolist()
    assert encoder.tokenizers


def test_a_token_that_nfc_takes_apart_is_left_to_another_encoder(monkeypatch):
    encoder = composing_encoder(True)
    text = "<n>\u0338"  # U+226F, which has > and U+0338, stands for both in NFC.
    expected = ReferenceEncoder(encoder.vocabulary).encode(Batch([text]), MATCHED)
    assert encoder.encode(Batch([text]), MATCHED).ids.tolist() == expected.ids.tolist()
    monkeypatch.setattr(encoder, "_encode_by_another", None)
    with pytest.raises(TypeError, match="NoneType"):
        encoder.encode(Batch([text]), MATCHED)


@settings(max_examples=300)
@given(st.lists(st.binary(max_size=12) | st.text(max_size=12).map(str.encode), max_size=4))
def test_rows_that_are_no_utf8_are_refused(rows):
    encoder = encoder_of("gpt2")
    batch = Batch.from_bytes(rows)
    expected = ReferenceEncoder(encoder.vocabulary).encode(batch, PLAIN)
    actual = encoder.encode(batch, PLAIN)
    assert actual.errors == expected.errors
    assert actual.ids.tolist() == expected.ids.tolist()
    assert actual.offsets.tolist() == expected.offsets.tolist()


@pytest.mark.parametrize("name", ["gpt2", "o200k"])
def test_a_long_row_is_cut_at_any_place(name):
    chance = random.Random(7)
    text = " ".join(random_text(name, chance, 20) + "a" for _ in range(60))
    encoder = encoder_of(name)
    encoder.num_threads, encoder.task_bytes = 1, 1 << 20
    expected = encoder.encode(Batch([text]), PLAIN).ids.tolist()
    encoder.num_threads = 3
    for task_bytes in range(64, 200):
        encoder.task_bytes = task_bytes
        assert encoder.encode(Batch([text]), PLAIN).ids.tolist() == expected


@functools.cache
def library_of(name: str) -> TokenizersEncoder:
    return TokenizersEncoder(load(name), token_table(load(name)))


@pytest.mark.parametrize("unit", ["a", "ab", " ", "\n", "1", "中", "!?", "a1"])
def test_one_long_pretoken(unit):
    text = unit * (200_000 // len(unit.encode()))
    ids = CpuEngine().encode(load("gpt2"), Batch([text])).ids
    assert ids.tolist() == library_of("gpt2").encode(Batch([text]), PLAIN).ids.tolist()


@pytest.mark.parametrize("name", ["gpt2", "o200k"])
def test_pretokens_at_the_limits_of_caches_and_merges(name):
    """Pretokens that differ in one byte, around 15, 16, 128 and 1,024 bytes, new and again."""
    chance = random.Random(name)
    words = []
    for size in (
        1,
        2,
        3,
        7,
        8,
        9,
        14,
        15,
        16,
        17,
        18,
        31,
        32,
        33,
        64,
        65,
        126,
        127,
        128,
        129,
        1024,
        1025,
    ):
        word = "".join(chance.choices("ab", k=size))
        places = {0, size // 2, size - 1}
        words += [word] + [word[:place] + "s" + word[place + 1 :] for place in places]
    text = " ".join(word for _ in range(3) for word in chance.sample(words, len(words)))
    check(encoder_of(name), [text, text.replace(" ", ""), text])


def test_more_pretokens_than_a_cache_holds():
    encoder = TextEncoder(load("gpt2"), token_table(load("gpt2")))
    chance = random.Random(3)
    sizes = [chance.choice((chance.randint(3, 15), chance.randint(12, 40))) for _ in range(300_000)]
    words = ["".join(chance.choices("etaoinshr", k=size)) for size in sizes]
    rows = [" ".join(words[i : i + 100]) for i in range(0, len(words), 100)]
    first, again = (encoder.encode(Batch(rows), PLAIN).ids.tolist() for _ in range(2))
    assert first == again
    sample = Batch(rows[::10])
    expected = library_of("gpt2").encode(sample, PLAIN).ids.tolist()
    assert encoder.encode(sample, PLAIN).ids.tolist() == expected


def test_several_threads_share_a_vocabulary():
    encoder = TextEncoder(telling_vocabulary("o200k"), token_table(telling_vocabulary("o200k")))
    encoder.num_threads, encoder.task_bytes = 3, 256
    chance = random.Random(5)
    texts = [random_text("o200k", chance, 2000) for _ in range(80)]
    expected = encoder.encode(Batch(texts), PLAIN).ids.tolist()
    results: list[list[int]] = []
    threads = [
        threading.Thread(
            target=lambda: results.append(encoder.encode(Batch(texts), PLAIN).ids.tolist())
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 4


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"pretokenizer": "whitespace"}, "whitespace"),
        ({"normalizers": (Normalizer("lowercase"),)}, "normalizers"),
    ],
)
def test_what_it_does_not_support_is_not_covered(fields, reason):
    vocabulary = replace(telling_vocabulary("gpt2"), **fields)
    with pytest.raises(NotCovered, match=reason):
        TextEncoder(vocabulary, token_table(vocabulary))
