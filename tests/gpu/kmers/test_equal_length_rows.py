"""K-mers of rows of one length: which batches have such, and their ids against the reference."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu.batch import transfer
from gpu.engine import GpuEngine
from gpu.kernels.job import constant
from gpu.kmers.equal_length_rows import SAMPLE, KmerRule, even_length, even_numbers
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
LETTERS = {"plain": "ACGT", "strange": "ACGT" * 500 + "N", "very_strange": "ACGTN"}


engine_of = functools.cache(new_engine)


@pytest.fixture
def launched(monkeypatch) -> list[str]:
    """The names of the kernels that have been launched in emulation, each one by one."""
    monkeypatch.setattr(transfer, "RECORD_AFTER", 1 << 30)
    return note_launches(monkeypatch)


def linear_kmers(k: int, stride: int, remainder: str, letters: str = "ACGT") -> Vocabulary:
    vocabulary = own_kmers(k, stride, remainder, "append", letters)
    assert isinstance(vocabulary.model, Kmers)
    return replace(vocabulary, model=replace(vocabulary.model, circular=False))


def check(engine: GpuEngine, vocabulary: Vocabulary, text: str, sizes: list[int]) -> None:
    """The ids of all widths are those of the reference, and nothing is written behind them."""
    offsets = offsets_from_lengths(np.array(sizes))
    rows = [text[begin : begin + size] for begin, size in zip(offsets, sizes, strict=False)]
    wanted = [tokenizer.encode(vocabulary, row, PLAIN).ids for row in rows]
    ids = [token_id for row in wanted for token_id in row]
    data = np.frombuffer(text.encode(), np.uint8)
    for dtype in (np.int32, np.uint16, np.uint8):
        if len(vocabulary) > np.iinfo(dtype).max + 1:
            continue
        out = np.zeros(len(ids) + 17, dtype)
        ends = encode_stream(engine, vocabulary, data, offsets, out)
        assert ends.tolist() == offsets_from_lengths(np.array([*map(len, wanted)])).tolist()
        assert out[: len(ids)].tolist() == ids
        assert not out[len(ids) :].any()


def check_drawn(data, k: int, stride: int, sizes: list[int], alphabets: dict[str, str]) -> None:
    """Rows of these sizes, whose letters and vocabulary of k-mers are drawn."""
    remainder = data.draw(st.sampled_from(["drop", "letters"]))
    letters = "".join(data.draw(st.permutations("ACGT")))
    chance = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    alphabet = alphabets[data.draw(st.sampled_from([*alphabets]))]
    text = "".join(chance.choice([*alphabet], sum(sizes)))
    engine, vocabulary = engine_of("emulated"), linear_kmers(k, stride, remainder, letters)
    try:
        check(engine, vocabulary, text, sizes)
    finally:
        engine.unload(vocabulary.digest)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_even_rows_have_the_ids_of_the_reference(data):
    k = data.draw(st.integers(1, 8))
    stride = data.draw(st.integers(1, k))
    length = data.draw(st.integers(1, 40) | st.integers(TILE - 2, TILE + 2) | st.integers(90, 600))
    count = data.draw(st.integers(1, max(2, 9000 // length)))
    sizes = [length] * (count - 1) + [data.draw(st.integers(1, length))]
    check_drawn(data, k, stride, sizes, LETTERS)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("sizes", [[150] * 90, [512] * 30 + [77], [3 * TILE + 5], [7] * 999, [5]])
@pytest.mark.parametrize(
    ("name", "letters"),
    [  # Nucleotide Transformer's frames begin anew at strange letters: other kernels.
        ("mtdna6", "plain"),
        ("mtdna6", "strange"),
        ("nt_v2", "plain"),
        ("dnabert1_3mer", "plain"),
        ("dnabert1_3mer", "strange"),
    ],
)
def test_even_rows_of_known_vocabularies(device, name, letters, sizes):
    chance = np.random.default_rng(len(sizes))
    text = "".join(chance.choice([*LETTERS[letters]], sum(sizes)))
    check(engine_of(device), load(name), text, sizes)


@pytest.mark.parametrize("remainder", ["drop", "letters"])
@pytest.mark.parametrize("letters", LETTERS)
@pytest.mark.parametrize(
    "sizes",
    [
        [6],
        [5],
        [600] * 20,
        [600] * 20 + [597],
        [6 * 1024] * 3,
        [7 * TILE + 7],
        [6 * 3 * TILE],
        [12] * 2000,
    ],
)
@pytest.mark.slow
def test_rows_that_k_mers_fill(remainder, letters, sizes):
    chance = np.random.default_rng(len(sizes))
    text = "".join(chance.choice([*LETTERS[letters]], sum(sizes)))
    check(engine_of("emulated"), linear_kmers(6, 6, remainder), text, sizes)


@pytest.mark.parametrize(("k", "length"), [(7, 13), (3, 5), (8, 15), (2, 3)])
def test_a_vector_goes_on_far_behind_its_tile(k, length):
    """With one id of each row, and 16 bytes of ids for more letters than lie behind a tile."""
    chance = np.random.default_rng(k)
    sizes = [length] * (6 * TILE // length)
    text = "".join(chance.choice([*"ACGT"], sum(sizes)))
    check(engine_of("emulated"), linear_kmers(k, k, "drop"), text, sizes)


def test_even_rows_are_one_launch(launched):
    engine = GpuEngine(EmulatedDevice(), 1 << 28)
    check(engine, linear_kmers(6, 1, "drop"), "ACGTTGCA" * 96, [128] * 6)
    assert {*launched} == {"load_batch", "write_even_kmers", "write_even_kmers16", "report"}
    launched.clear()
    check(engine, linear_kmers(6, 4, "letters"), "ACGTTGCA" * 96, [128] * 5 + [100, 28])
    assert "write_even_strided" not in launched and "place_rows" in launched


def test_a_sample_that_deceives_costs_time_and_no_id(launched):
    rows, length = 4 * SAMPLE, 20
    sizes = [length] * rows
    sizes[1], sizes[2] = length - 1, length + 1
    assert even_length(offsets_from_lengths(np.array(sizes))) == length
    text = "ACGTTGCAAC" * (rows * length // 10)
    check(GpuEngine(EmulatedDevice(), 1 << 28), linear_kmers(6, 1, "drop"), text, sizes)
    assert "write_even_kmers" in launched and "find_breaks" in launched


def test_circles_are_no_even_rows(launched):
    engine, texts = GpuEngine(EmulatedDevice(), 1 << 28), ["ACGTTGCA" * 4] * 3
    for circular, is_even in ((True, False), (False, True)):
        launched.clear()
        options = replace(PLAIN, circular=circular)
        encoded = engine.encode(load("mtdna6"), Batch(texts, options=options))
        wanted = [tokenizer.encode(load("mtdna6"), text, options).ids for text in texts]
        assert encoded.ids.tolist() == [token_id for row in wanted for token_id in row]
        assert ("write_even_kmers" in launched) == is_even
        assert ("write_kmers" in launched) != is_even


@pytest.mark.parametrize(
    ("sizes", "length"),
    [
        ([5, 5, 5], 5),
        ([5, 5, 2], 5),
        ([7], 7),
        ([5, 5, 6], 0),
        ([5, 4, 5], 0),
        ([5, 5, 0], 0),
        ([0, 0], 0),
        ([0, 5], 0),
        ([], 0),
        ([3] * 1000, 3),
        ([3] * 500 + [4] + [3] * 499, 0),
    ],
)
def test_even_length_by_a_sample(sizes, length):
    assert even_length(offsets_from_lengths(np.array(sizes, np.int64))) == length


@given(st.integers(1, 9), st.integers(1, 9), st.booleans(), st.integers(1, 60), st.data())
def test_numbers_of_even_rows_are_those_of_the_rows(k, stride, keeps, length, data):
    rule, count = KmerRule(k, min(k, stride), keeps), data.draw(st.integers(1, 9))
    sizes = [length] * (count - 1) + [data.draw(st.integers(1, length))]
    numbers = even_numbers(rule, offsets_from_lengths(np.array(sizes)))
    if len(sizes) == 1:
        length = sizes[0]
    if not rule.ids(length):
        assert numbers == {"row_length": 0}
        return
    assert (numbers["row_length"], numbers["row_ids"]) == (length, rule.ids(length))
    assert numbers["even_total"] == sum(map(rule.ids, sizes))
    assert (numbers["even_count"] == 1) == (count == 1 or (k <= stride and length % k == 0))
    last = sizes[-1] if numbers["even_count"] > 1 else sum(sizes)
    assert numbers["even_last_kmers"] == rule.kmers(last)
    each = length if numbers["even_count"] > 1 else last
    assert (numbers["even_kmers"], numbers["even_ids"]) == (rule.kmers(each), rule.ids(each))


@given(st.integers(1, 9), st.integers(1, 9), st.booleans(), st.integers(0, 60))
def test_a_rule_counts_ids_one_by_one(k, stride, keeps, length):
    rule = KmerRule(k, min(k, stride), keeps)
    begins = [at for at in range(0, length, rule.stride) if at + k <= length]
    behind = length - (begins[-1] + k) if begins else length
    assert rule.kmers(length) == len(begins)
    assert rule.ids(length) == len(begins) + keeps * behind


@pytest.mark.parametrize("length", [0, 150, 700])
@pytest.mark.parametrize("k", [3, 6])
@pytest.mark.slow
def test_tiles_of_another_case_have_unknown_ids(k, length):
    """From any letter on, with one of the four among them or none, up to the text's end."""
    size = 4 * TILE + 77
    for begin, end in ((0, size), (TILE - 300, 3 * TILE + 5), (1, size - 1)):
        for known in (None, 2 * TILE + 9):
            letters = [*("ACGTTGCA" * size)[:size]]
            letters[begin:end] = ("acgttgca" * size)[begin:end]
            if known is not None:
                letters[known] = "G"
            sizes = [length or size] * (size // (length or size))
            text = "".join(letters)[: sum(sizes)]
            check(engine_of("emulated"), linear_kmers(k, 1, "drop"), text, sizes)
