"""Whole pieces, cuda/text/split/whole_piece.cuh, against the reference: by any number of blocks."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu.batch.transfer import pack_rows
from gpu.engine import GpuEngine
from gpu.errors import NotCovered
from gpu.kernels.job import constant
from gpu.text import bpe_tables
from tests.gpu.text.random_vocabularies import SEEDS, doubled, random_merges, vocabulary_of
from tests.support.each_device import DEVICES, new_device
from tests.support.emulation.device import EmulatedDevice, emulated_kernels
from vocabularies.batch.batch import Batch
from vocabularies.builtin import load
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference.tokenizer import encode

DONE, MAX_PARTS = constant("TILE_DONE"), constant("MAX_PARTS")


def starts_of(vocabulary: Vocabulary, texts: list[str], blocks: int) -> tuple[list[int], int]:
    """Where pieces begin behind last_pieces, and how many parts the blocks worked on.

    Every other text is merged whole, in any order; the starts of all were there already.
    """
    chance = random.Random(blocks)
    made = GpuEngine(EmulatedDevice(), 1 << 27)
    data = np.frombuffer("".join(texts).encode(), np.uint8)
    offsets = np.cumsum([0, *(len(text.encode()) for text in texts)]).astype(np.int64)
    listed = [[int(begin), int(end)] for begin, end in itertools.pairwise(offsets)][::2]
    chance.shuffle(listed)
    firsts = np.cumsum([0, *(end - begin for begin, end in listed)])
    pieces = np.column_stack([listed, firsts[:-1]]).astype(np.uint32)
    counts = np.array([0, len(listed) << 40 | int(firsts[-1]), 0, 0], np.uint64)
    fields = {
        "window_counts": counts,
        "whole_pieces": pieces,
        "starts": np.full(len(data) // 64 + 2, 2**64 - 1, np.uint64),
        "records": np.zeros(len(data) + 16, np.uint32),
        "merged_ids": np.zeros(2 * len(data) + 128, np.uint32),
    }
    parts = np.zeros(2 * 14 * MAX_PARTS, np.uint32)
    with (
        made.resources.residents.using(vocabulary) as resident,
        made.resources.workspaces.lend(len(data), len(texts)) as workspace,
    ):
        pack_rows(workspace, resident, data, offsets, made.resources.processors)
        job = workspace.job[:1].copy()
        for name, array in fields.items():
            job[name] = array.ctypes.data
        job["misses"][0, 0] = parts.ctypes.data
        threads = constant("WHOLE_THREADS")
        library = emulated_kernels("split")
        assert library.launch(b"last_pieces", blocks, threads, job.ctypes.data) == 0
    made.close()
    bits = np.unpackbits(fields["starts"].view(np.uint8), bitorder="little")[: len(data)]
    return np.flatnonzero(bits).tolist(), int(counts[3])


def check(vocabulary: Vocabulary, texts: list[str], blocks: int) -> int:
    """Starts are where the tokens of the reference begin; others than the pieces' are kept."""
    wanted: list[int] = []
    begin = 0
    for number, text in enumerate(texts):
        size = len(text.encode())
        if number % 2:
            wanted += range(begin, begin + size)
        else:
            lengths = [len(vocabulary.tokens[i]) for i in encode(vocabulary, text).ids]
            wanted += [begin + place for place in itertools.accumulate(lengths[:-1], initial=0)]
        begin += size
    found, parts = starts_of(vocabulary, texts, blocks)
    assert found == wanted, [text[:200] for text in texts]
    return parts // min(blocks, MAX_PARTS)


LONGEST = 1024


def texts_of(chance: random.Random, letters: str) -> list[str]:
    """Random ones and runs, of up to LONGEST bytes."""
    texts = []
    for _ in range(6):
        size = chance.choice(
            [1, 2, 31, 32, 33, 256, 257, LONGEST - 1, LONGEST, chance.randint(1, LONGEST)]
        )
        parts: list[str] = []
        while sum(map(len, parts)) < size:
            unit = "".join(chance.choices(letters, k=chance.choice([1, 1, 2, 3, 40])))
            parts.append(unit * chance.choice([1, 2, 15, 64, 300]))
        texts.append("".join(parts)[:size])
    return texts


def random_case(seed: int, num_letters: int, in_order: bool) -> tuple[Vocabulary, list[str]]:
    """Random merges and those of runs of one letter, and texts for them."""
    chance = random.Random(seed)
    letters = "abcd"[:num_letters]
    merges = random_merges(chance, letters, chance.randint(0, 50))
    merges += [merge for merge in doubled(b"a", 5) if merge not in merges]
    if not in_order:
        chance.shuffle(merges)
    return vocabulary_of(merges), texts_of(chance, letters)


BLOCKS = st.sampled_from([1, 2, 3, 7, 40, MAX_PARTS, MAX_PARTS + 44])


@settings(max_examples=80, deadline=None)
@given(seed=SEEDS, num_letters=st.integers(1, 4), in_order=st.booleans(), blocks=BLOCKS)
def test_pieces_have_the_borders_of_the_reference(seed, num_letters, in_order, blocks):
    """Chains over several parts, parts without symbols, late ranks, pieces of any length."""
    check(*random_case(seed, num_letters, in_order), blocks)


@pytest.mark.parametrize("blocks", [1, 2, 9])
@pytest.mark.parametrize("size", [DONE - 1, DONE, DONE + 1, 2 * DONE + 31, 4000])
def test_a_chain_goes_through_tiles_and_parts(size, blocks):
    """Its pairs of one letter merge from the left, wherever tiles and parts begin."""
    texts = ["a" * size, "x", "b" + "a" * size, "x", "a" * (size // 2) + "b", "x"]
    check(vocabulary_of(doubled(b"a", 6)), texts, blocks)
    check(vocabulary_of([(b"a", b"a"), (b"aa", b"b")]), texts, blocks)


@pytest.mark.parametrize("blocks", [1, 40])
@pytest.mark.slow
def test_a_token_may_be_longer_than_parts(blocks):
    unit = "".join(map(chr, range(48, 122)))
    texts = [unit * 41, "x", unit[5:] * 3 + unit * 33]
    check(vocabulary_of(doubled(unit.encode(), 5)), texts, blocks)


@pytest.mark.parametrize("blocks", [1, 2, 3, 11, 100])
def test_loud_pairs_grow_across_parts(blocks):
    """Of "aaaaa" aa is merged once: then (aa, a) is lower; and each letter joins what is before."""
    texts = ["a" * 1500, "x", "aac" * 300 + "a" * 70, "x", "a" * 97 + "c"]
    for merges in (
        [(b"aaa", b"a"), (b"aa", b"a"), (b"a", b"a"), (b"aaaa", b"c"), (b"aaaa", b"aaaa")],
        [(b"a", b"aa"), (b"aa", b"aaa"), (b"a", b"a")],
        [(b"aa", b"a"), (b"a", b"a"), (b"a", b"c"), (b"ac", b"aaa")],
    ):
        check(vocabulary_of(merges), texts, blocks)


@pytest.mark.parametrize("name", ["gpt2", "cl100k_base", "o200k_base"])
@pytest.mark.slow
def test_so_have_pieces_of_published_vocabularies(name):
    """A round merges pairs of many ranks at once."""
    chance = random.Random(8)
    texts = ["".join(chance.choices("etaoinshrdlu", k=size)) for size in (300, 5, 5000)]
    texts += ["x", "".join(sorted(texts[2])), "y", "длинное слово без пробелов".replace(" ", "")]
    assert check(load(name), texts, 6) < 60


@pytest.mark.parametrize(("period", "times"), [(165, 3), (211, 1), (700, 3)])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.slow
def test_an_engine_encodes_long_periods(device, period, times):
    """Amid other rows, in batches of many pieces and of one."""
    chance = random.Random(period)
    unit = "".join(chance.choices([chr(33 + number) for number in range(94)], k=period))
    merges = doubled(unit.encode(), times) + random_merges(chance, "xyz", 20)
    size, many, repeats = (20_000, 40, 7) if device == "cuda" else (3000, 1, 800 // period + 1)
    texts = [
        unit * (size // period),
        "xyz" * 90,
        unit[5:] + unit * repeats,
        "yxz",
        unit * 5 + "xzy",
    ]
    engine, vocabulary = GpuEngine(new_device(device), 1 << 28), vocabulary_of(merges)
    for batch in (texts, texts[:1], texts[2:] * many):
        encoded = engine.encode(vocabulary, Batch(batch))
        for number, text in enumerate(batch[:5]):
            assert encoded.row(number).tolist() == encode(vocabulary, text).ids
    engine.close()


@pytest.mark.parametrize("device", DEVICES)
def test_long_tokens_of_late_ranks_are_encoded_too_where_they_are_let_in(device, monkeypatch):
    """One thread merges their loud pairs, so that vocabularies with such are not covered."""
    chance = random.Random(3)
    unit = "".join(chance.choices([chr(33 + number) for number in range(94)], k=165))
    merges = doubled(unit.encode(), 2)
    vocabulary = vocabulary_of(chance.sample(merges, len(merges)))
    texts = [unit * 20, "x" + unit[7:] * 3 + unit * 15]
    engine = GpuEngine(new_device(device), 1 << 28)
    with pytest.raises(NotCovered, match="merges are out of order, and a token has 660 bytes"):
        engine.encode(vocabulary, Batch(texts))
    monkeypatch.setattr(bpe_tables, "MAX_LATE_TOKEN", 1 << 20)
    encoded = engine.encode(vocabulary, Batch(texts))
    for number, text in enumerate(texts):
        assert encoded.row(number).tolist() == encode(vocabulary, text).ids
    engine.close()
