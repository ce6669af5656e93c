"""Long rows in pieces have the ids, spans and refusals of the whole, wherever they are cut."""

from __future__ import annotations

import random

import numpy as np
import pytest

from service.engines.base import Abandoned
from service.engines.cpu.bpe.cut_points import CutPoints
from service.engines.cpu.bpe.long_text import LongTextEncoder
from service.engines.cpu.bpe.tokenizers_encoder import TokenizersEncoder
from service.engines.cpu.engine import CpuEngine
from service.engines.cpu.selection import choose_encoder
from service.engines.encoder import ReferenceEncoder
from service.runtime.memory_pool import MemoryPool
from tests.support.fake_engine import byte_vocabulary
from tests.support.inputs.motif_strategies import motif_vocabulary
from vocabularies import builtin
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.batch.post_processing import Content
from vocabularies.model.tables import token_table
from vocabularies.model.types import Bpe, SpecialToken
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.normalizers import Normalizer
from vocabularies.preprocessing.pretokenizers import PRETOKENIZERS

PIECE = 1200
WORDS = (
    "the",
    "Hello",
    "isn't",
    "WE'LL",
    "x86",
    "3.14",
    "<|endoftext|>",
    "e\u0301",
    "naïve",
    "中文",
    "y",
)
BETWEEN = (" ", " ", " ", "  ", "\n", ".\n\n", ", ", "。", "，", "\t", "'", "-", "")
RUNS = (
    "A",
    "a",
    "ab",
    "=",
    "!?",
    " ",
    "\n",
    "0",
    "12",
    "中",
    "语言",
    "é",
    "яЯ",
    "aB",
    "ACGT",
    "'",
    "\u3000",
    "👍",
    "_",
)


def text_of(chance: random.Random) -> str:
    """Words, and runs of a few characters, some of them longer than a piece."""
    parts = []
    while sum(map(len, parts)) < 4 * PIECE:
        if chance.random() < 0.3:
            letters = chance.choice(RUNS)
            size = chance.choice((3, 40, 700, 3000))
            parts.append("".join(chance.choices(letters, k=size)))
        else:
            count = chance.randrange(60)
            parts += [chance.choice(WORDS) + chance.choice(BETWEEN) for _ in range(count)]
    return "".join(parts)


def random_vocabulary(pretokenizer: str, chance: random.Random, **fields) -> Vocabulary:
    """Bytes and merges of pairs that stand side by side in such texts."""
    tokens = [bytes([i]) for i in range(256)]
    known, merges = set(tokens), []
    text = "".join(text_of(chance) for _ in range(4)).encode()
    for _ in range(4000):
        sizes = chance.choices((1, 1, 2, 3, 4, 8), k=2)
        place = chance.randrange(len(text) - 20)
        left, right = text[place : place + sizes[0]], text[place + sizes[0] : place + sum(sizes)]
        if left in known and right in known and left + right not in known:
            merges.append((tokens.index(left), tokens.index(right)))
            tokens.append(left + right)
            known.add(left + right)
    special = SpecialToken("<|endoftext|>", len(tokens))
    tokens.append(b"<|endoftext|>")
    bpe = Bpe(tuple(merges), ignore_merges=chance.random() < 0.5)
    return Vocabulary(
        tuple(tokens), bpe, pretokenizer=pretokenizer, special_tokens=(special,), **fields
    )


def check(vocabulary: Vocabulary, encoder, texts: list[str], num_least_pieces: int) -> None:
    seen: list[int] = []

    class Counting:
        def encode(self, batch, options):
            seen.append(len(batch.data))
            return encoder.encode(batch, options)

    rows = LongTextEncoder(vocabulary, Counting(), MemoryPool().take, PIECE)
    for options in (
        EncodeOptions(False, spans=True),
        EncodeOptions(False, "plain"),
        EncodeOptions(False, "refuse", spans=True),
    ):
        whole = encoder.encode(Batch(texts), options)
        for batch in (Batch(texts), Batch.from_bytes([text.encode() for text in texts])):
            got = rows.encode(batch.with_options(options), options)
            assert got.errors == whole.errors
            assert got.offsets.tolist() == whole.offsets.tolist()
            assert got.ids.tolist() == whole.ids.tolist()
            assert (got.spans is None) == (whole.spans is None)
            assert got.spans is None or got.spans.tolist() == whole.spans.tolist()
    assert len(seen) >= num_least_pieces


@pytest.mark.parametrize("name", ["gpt2", "cl100k_base", "o200k_base"])
@pytest.mark.slow
def test_pieces_of_real_vocabularies_have_the_ids_of_the_whole(name):
    vocabulary, chance = builtin.load(name), random.Random(name)
    encoder = choose_encoder(vocabulary, token_table(vocabulary)).encoder
    check(vocabulary, encoder, ["short", *(text_of(chance) for _ in range(5)), ""], 40)


def test_dna_without_a_blank_is_cut_between_tokens():
    vocabulary, chance = builtin.load("dnabert2"), random.Random(1)
    encoder = choose_encoder(vocabulary, token_table(vocabulary)).encoder
    random_bases = "".join(chance.choices("ACGT", k=9000))
    texts = [random_bases, "A" * 9001, "CA" * 4500, random_bases[:4000] + "N" * 5000 + "ACGT" * 900]
    check(vocabulary, encoder, texts, 60)


@pytest.mark.parametrize("name", [name for name in PRETOKENIZERS if name != "motifs"])
def test_pieces_of_random_vocabularies_have_the_ids_of_the_whole(name):
    chance = random.Random(name)
    vocabulary = random_vocabulary(name, chance)
    texts = [text_of(chance) for _ in range(2)]
    encoder = choose_encoder(vocabulary, token_table(vocabulary)).encoder
    assert not isinstance(encoder, ReferenceEncoder)
    check(vocabulary, encoder, texts, 1 if name == "none" else 20)


RULES = [name for name in PRETOKENIZERS if name not in ("none", "motifs")]


@pytest.mark.parametrize("name", RULES)
@pytest.mark.slow
def test_white_space_has_the_pretokens_of_the_whole(name):
    """Tokens join blanks and line breaks, which rules separate by characters far away."""
    tokens = [bytes([i]) for i in range(256)] + [b"\n\t", b"\t\t", b"\n ", b" \n", b"!\n", b"\n\n"]
    merges = ((10, 9), (9, 9), (10, 32), (32, 10), (33, 10), (10, 10))
    vocabulary = Vocabulary(tuple(tokens), Bpe(merges), pretokenizer=name)
    encoder = choose_encoder(vocabulary, token_table(vocabulary)).encoder
    assert not isinstance(encoder, ReferenceEncoder)
    fronts = ("x", "x\n", "\r", "\n\u3000 \t", "\nx", "\n" * 9, "!", "! ", "!\n", "!\r", "。", "7")
    for space, size in (("\t", 2500), (" ", 2501), ("\n", 2502), ("\u3000", 900)):
        for number, front in enumerate(fronts):
            ends = ("x", "\nx", "", " x", " \nx", "\t\r\n!")
            texts = [front + space * size + ends[(number + n) % 6] for n in range(2)]
            options = EncodeOptions(False)
            rows = LongTextEncoder(vocabulary, encoder, MemoryPool().take, PIECE)
            got, want = (each.encode(Batch(texts), options) for each in (rows, encoder))
            assert got.ids.tolist() == want.ids.tolist(), (front, space)


@pytest.mark.parametrize("name", ["cl100k", "o200k", "llama3"])
def test_a_run_that_a_cut_goes_back_to_is_checked_too(name):
    """The signs are too few to be cut, and a run of line breaks comes before them."""
    tokens = [bytes([i]) for i in range(256)] + [b"==", b"====", b"\n\n", b"\n ", b"\n \n"]
    merges = ((61, 61), (256, 256), (10, 10), (10, 32), (259, 10))
    vocabulary = Vocabulary(tuple(tokens), Bpe(merges), pretokenizer=name)
    encoder = choose_encoder(vocabulary, token_table(vocabulary)).encoder
    assert not isinstance(encoder, ReferenceEncoder)
    rows = LongTextEncoder(vocabulary, encoder, MemoryPool().take, PIECE)
    for num in range(930, 950):
        batch = Batch(["!" + "\n" * num + " \n" + "=" * 2000])
        want = encoder.encode(batch, EncodeOptions(False)).ids.tolist()
        assert rows.encode(batch, EncodeOptions(False)).ids.tolist() == want


@pytest.mark.parametrize("name", ["gpt2", "cl100k_base", "o200k_base"])
@pytest.mark.parametrize("parts", [("!", "\n", " \nx"), ("//", "\u0301", "'s-")])
@pytest.mark.slow
def test_published_vocabularies_know_what_is_in_front_of_a_long_run(name, parts):
    """Line breaks and marks are the sign's, and the last ones go not with what is behind them."""
    vocabulary, text = builtin.load(name), parts[0] + parts[1] * 3_001 + parts[2]
    encoder = choose_encoder(vocabulary, token_table(vocabulary)).encoder
    options = EncodeOptions(False)
    whole = encoder.encode(Batch([text]), options)
    rows = LongTextEncoder(vocabulary, encoder, MemoryPool().take, PIECE)
    assert rows.encode(Batch([text]), options).ids.tolist() == whole.ids.tolist()


@pytest.mark.parametrize(
    "fields",
    [
        {"pretokenizer": "none"},
        {"pretokenizer": "isolate:-"},
        {"pretokenizer": "gpt2", "normalizers": (Normalizer("lowercase"),)},
    ],
)
def test_what_may_depend_on_the_rest_is_not_cut(fields):
    tokens = tuple(bytes([i]) for i in range(256))
    assert CutPoints.of(Vocabulary(tokens, Bpe(()), **fields)) is None
    assert CutPoints.of(byte_vocabulary()) is None
    assert CutPoints.of(motif_vocabulary("AC", [], ["CA"], byte_level=True)) is None


@pytest.mark.parametrize("byte_level", [False, True], ids=["letters", "bytes"])
def test_texts_with_motifs_are_cut_behind_motifs(byte_level):
    for seed in range(3):
        chance = random.Random(seed)
        long = "".join(chance.choices("ACGT", k=200))
        motifs = [long, "GGATC", "AAAAAAA", "ACA"]
        vocabulary = motif_vocabulary(
            "ACGT",
            [("A", "A"), ("C", "A"), ("CA", "CA"), ("AA", "C")],
            motifs,
            byte_level=byte_level,
            specials=("<mask>", long[100:] + "<"),
        )
        pieces = [long, long[:150], "GGATCC", "A" * 50, "é中", "<mask>", "<unk>", "ACGT" * 20]
        text = "".join(chance.choices(pieces, k=120))
        encoder = TokenizersEncoder(vocabulary, token_table(vocabulary))
        check(vocabulary, encoder, [text, "C" * 3000, text[7:] + "A" * 5000], 40)


def test_a_row_in_which_no_two_pieces_fit_is_encoded_as_a_whole(monkeypatch):
    monkeypatch.setattr(LongTextEncoder, "_joins", lambda self, data, place, tail, ids: not tail)
    vocabulary, text = builtin.load("dnabert2"), "".join(random.Random(2).choices("ACGT", k=9000))
    encoder = choose_encoder(vocabulary, token_table(vocabulary)).encoder
    check(vocabulary, encoder, [text], 4)


def test_a_fault_is_named_by_its_place_in_the_whole_row():
    engine, vocabulary = CpuEngine(), builtin.load("gpt2")
    text = b"a word " * 100_000
    broken = Batch.from_bytes([text + b"\xff" + text, text])
    encoded = engine.encode(vocabulary, broken)
    assert {row: (e.code, e.where) for row, e in encoded.errors.items()} == {
        0: ("not_utf8", "byte 700000")
    }
    assert len(encoded.row(0)) == 0
    assert len(encoded.row(1)) == 200_001
    refusing = EncodeOptions(special="refuse")
    found = Batch.from_bytes([text + b"<|endoftext|>"], refusing)
    assert engine.encode(vocabulary, found).errors[0].where == "byte 700000"
    both = Batch.from_bytes([b"<|endoftext|>" + text + b"\xff", b"<|endoftext|>\xff"], refusing)
    faults = engine.encode(vocabulary, both).errors  # As of a short row.
    assert [(faults[row].code, faults[row].where) for row in range(2)] == [
        ("not_utf8", "byte 700013"),
        ("not_utf8", "byte 13"),
    ]


def test_an_abandoned_row_ends_after_a_piece():
    vocabulary, memory = builtin.load("gpt2"), MemoryPool()
    encoder = TokenizersEncoder(vocabulary, token_table(vocabulary))
    batch = Batch(["a word " * 100_000])
    asked = []
    batch.should_continue = lambda: len(asked) < 3 and not asked.append(1)
    rows = LongTextEncoder(vocabulary, encoder, memory.take, piece_bytes=1 << 14)
    with pytest.raises(Abandoned):
        rows.encode(batch, EncodeOptions(False))
    assert len(asked) == 3


def test_a_run_of_one_letter_takes_time_and_memory_as_its_length():
    engine, vocabulary = CpuEngine(), builtin.load("gpt2")
    data = np.full(4 << 20, ord("A"), np.uint8)
    encoded = engine.encode(vocabulary, Batch(data=data, offsets=np.array([0, len(data)])))
    assert len(encoded.ids) == len(data) // 8
    assert len(set(encoded.ids.tolist())) == 1


def test_long_texts_one_after_another_use_the_same_memory():
    class Bytes:
        def encode(self, batch, options):
            spans = np.stack([np.arange(len(batch.data)), np.arange(1, len(batch.data) + 1)], 1)
            return Content(batch.data.astype(np.int32), batch.offsets, spans)

    memory, options = MemoryPool(), EncodeOptions(False, spans=True)
    rows = LongTextEncoder(random_vocabulary("gpt2", random.Random(1)), Bytes(), memory.take)
    text, seen = "of the people, by the people, " * 40_000, []
    for _ in range(4):
        content = rows.encode(Batch([text]), options)
        assert content.ids.tobytes().decode("utf-32-le") == text
        assert (content.spans[:, 0] == np.arange(len(text))).all()
        seen.append(memory.num_mapped)
        del content
    assert seen == [seen[0]] * 4
    memory.close()
