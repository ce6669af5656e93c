"""Small batches by one call of C++: the usual answers, and the batches that need more calls."""

from __future__ import annotations

import functools
from itertools import pairwise

import numpy as np
import pytest

from gpu.batch.transfer import TAKE_IN_BYTES
from gpu.engine import GpuEngine
from gpu.errors import DescendingOffsets
from gpu.small import fused
from gpu.small.call import SmallCall
from gpu.small.fused import CLUSTER_BYTES
from gpu.streaming import encode_stream
from tests.engines.test_contract import check
from tests.gpu.large.test_encode import WITH_BEGIN_AND_END
from tests.support.each_device import new_engine
from tests.support.emulation.device import EmulatedDevice, note_launches
from tests.support.gpus.card_class import need_largest_class
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.builtin import load
from vocabularies.reference import tokenizer

pytest.importorskip("gpu.host._fast_launch")

engine_of = functools.cache(new_engine)
PLAIN = EncodeOptions(add_special_tokens=False)
TEXTS = ["It's unzipped", "", "größe 北京 now <|endoftext|>", "12345678 " * 30]


@pytest.fixture
def usual(monkeypatch):
    """The kernels with which batches went the usual way."""
    need_largest_class()
    seen, encode, encode_to = list[str](), SmallCall.encode, SmallCall.encode_to

    def noted(call: SmallCall, fused: str):
        seen.append(fused)
        return encode(call, fused)

    def noted_to(call: SmallCall, address: int, id_bits: int, fused: str):
        seen.append(fused)
        return encode_to(call, address, id_bits, fused)

    monkeypatch.setattr(SmallCall, "encode", noted)
    monkeypatch.setattr(SmallCall, "encode_to", noted_to)
    return seen


def pinned(engine: GpuEngine, text: bytes) -> np.ndarray:
    data = engine.host_memory(len(text))
    data[:] = np.frombuffer(text, np.uint8)
    return data


@pytest.mark.parametrize("id_dtype", [np.int32, np.uint16])
@pytest.mark.parametrize("times", [1, 40])
def test_usual_batches_are_one_call(engine, usual, times, id_dtype):
    texts = TEXTS * times
    for batch in (
        Batch(texts, id_dtype=id_dtype),
        Batch.from_bytes([text.encode() for text in texts]),
    ):
        batch.id_dtype = id_dtype
        encoded = engine.encode(load("gpt2"), batch)
        check(encoded, "gpt2", texts, [EncodeOptions()] * len(texts), id_dtype)
        assert encoded.ids.base is None and encoded.offsets.base is None  # The caller's own.
    assert usual == []


def test_begin_and_end_tokens_are_added_or_not(engine, usual):
    texts = ["ab 11", "", "<ab>x", " a" * 50]
    for options in (EncodeOptions(), PLAIN):
        expected = [tokenizer.encode(WITH_BEGIN_AND_END, text, options).ids for text in texts]
        for times in (1, 500):  # A block's, a cluster's.
            encoded = engine.encode(WITH_BEGIN_AND_END, Batch(texts * times, options=options))
            got = [encoded.row(row).tolist() for row in range(4 * times)]
            assert got == expected * times
        assert expected[1] == ([] if options is PLAIN else [259, 260, 260])
    assert usual == []


@pytest.mark.parametrize(
    "options",
    [
        EncodeOptions(max_length=3),
        EncodeOptions(special="refuse"),
        EncodeOptions(special="plain"),
    ],
    ids=["cut", "refuses", "plain"],
)
def test_unusual_options_go_the_usual_way(engine, usual, options):
    encoded = engine.encode(load("gpt2"), Batch(TEXTS, options=options))
    check(encoded, "gpt2", TEXTS, [options] * 4)
    assert usual == ["encode_block"]


def test_a_row_that_is_not_utf8_is_refused_alone(engine, usual):
    encoded = engine.encode(load("gpt2"), Batch.from_bytes([b"fine", b"a\xffb", b"too"]))
    assert {row: error.where for row, error in encoded.errors.items()} == {1: "byte 1"}
    assert encoded.row(0).tolist() == tokenizer.encode(load("gpt2"), "fine").ids
    assert usual == ["encode_block"]


def test_a_long_piece_falls_back_to_single_launches(usual, monkeypatch):
    launches = note_launches(monkeypatch)
    engine = GpuEngine(EmulatedDevice(), 1 << 28)
    texts = ["before", "ab" * 300]
    for _ in range(2):
        check(engine.encode(load("gpt2"), Batch(texts)), "gpt2", texts, [EncodeOptions()] * 2)
    assert usual == ["", ""]
    assert [kernel for kernel in launches if kernel.startswith("encode_")] == 2 * ["encode_block"]


def test_a_row_that_ends_before_it_begins_is_named_by_its_number(engine):
    data, offsets = np.zeros(8, np.uint8), np.array([0, 5, 2, 8])
    with pytest.raises(DescendingOffsets, match="row 1 begins at 5 and ends at 2"):
        engine.encode_ids(load("gpt2"), data, offsets)


def test_one_batch_in_so_many_is_timed_the_usual_way(usual):
    engine = GpuEngine(EmulatedDevice(), 1 << 28)
    engine.stage_times.time_every(3)
    for _ in range(7):
        engine.encode(load("gpt2"), Batch(["some words"]))
    assert usual == ["encode_block"] * 2
    assert [stage for stage, _ in engine.stage_times.take()] == ["fused"] * 2


def ids_of_bases(engine: GpuEngine, name: str, text: bytes, ends: list[int], dtype) -> list[int]:
    """Return the ids of pinned bases in pinned memory, and the ids of the reference."""
    data, offsets = pinned(engine, text), np.array(ends)
    engine.load(load(name))
    out = engine.host_memory(dtype().itemsize * len(text)).view(dtype)
    begins = encode_stream(engine, load(name), data, offsets, out)
    texts = [text[a:b].decode() for a, b in pairwise(ends)]
    rows = [tokenizer.encode(load(name), each, PLAIN).ids for each in texts]
    assert np.diff(begins).tolist() == [len(row) for row in rows]
    assert out[: begins[-1]].tolist() == [token for row in rows for token in row]
    return out[: begins[-1]].tolist()


@pytest.mark.parametrize("dtype", [np.int32, np.uint16])
@pytest.mark.parametrize("name", ["dnabert2", "gena_lm_t2t_32k"])
@pytest.mark.slow
def test_pinned_bases_are_one_call(engine, usual, name, dtype):
    chance = np.random.default_rng(3)
    text = bytes(chance.choice(np.frombuffer(b"ACGT", np.uint8), 6000))
    assert len(ids_of_bases(engine, name, text, [0, 0, 700, 701, 6000], dtype)) > 900
    assert usual == []


def test_bases_that_do_not_begin_where_16_bytes_do_go_the_usual_way(engine, usual):
    text = b"ACGTTGCAGG" * 30
    data = pinned(engine, b"C" + text)[1:]
    out = engine.host_memory(4 * len(text)).view(np.int32)
    begins = encode_stream(engine, load("dnabert2"), data, np.array([0, len(text)]), out)
    ids = tokenizer.encode(load("dnabert2"), text.decode(), PLAIN).ids
    assert out[: begins[-1]].tolist() == ids
    assert len(usual) == 1


@pytest.mark.slow
def test_the_kernel_of_bases_is_skipped_for_a_while_after_a_fallback(usual, monkeypatch):
    launches = note_launches(monkeypatch)
    engine = GpuEngine(EmulatedDevice(1 << 33), 1 << 30)
    bases = b"ACGTTGCATTCCAGAGGATC" * 20
    for _ in range(2):
        ids_of_bases(engine, "dnabert2", b"[MASK]" + bases, [0, 60, 406], np.int32)
    assert len(usual) == 2  # The first was tried, too; once.
    assert launches.count("encode_dna_parts_copied") == 1
    for _ in range(fused.PARTS_SKIPS - 1):
        ids_of_bases(engine, "dnabert2", bases, [0, 60, 400], np.int32)
    assert len(usual) == 1 + fused.PARTS_SKIPS
    ids_of_bases(engine, "dnabert2", bases, [0, 60, 400], np.int32)
    assert len(usual) == 1 + fused.PARTS_SKIPS


WORDS = b"some words, 12 more and what's behind them. " * 30_000


@pytest.mark.parametrize("begin", [0, 1])
@pytest.mark.parametrize("size", [200, 5000, CLUSTER_BYTES + 48, TAKE_IN_BYTES + 5, 3 << 18])
@pytest.mark.parametrize("dtype", [np.int32, np.uint16])
def test_pinned_text_to_pinned_ids_is_one_call(engine, usual, begin, size, dtype):
    """Wherever the kernel finds it; text that it reads in place begins where 16 bytes do."""
    engine.load(load("gpt2"))
    data = pinned(engine, b"x" * begin + WORDS[:size])[begin:]
    offsets, out = np.array([0, 100, 100, size]), engine.host_memory(4 * size).view(dtype)
    begins = encode_stream(engine, load("gpt2"), data, offsets, out)
    ids, expected = engine.encode_ids(load("gpt2"), np.array(data), offsets)
    assert begins.tolist() == expected.tolist()
    assert out[: begins[-1]].tolist() == ids.tolist()
    in_place = CLUSTER_BYTES < size <= TAKE_IN_BYTES
    by_engine = [kernel for kernel in usual if kernel != ""]
    assert by_engine == ["encode_grid"] * ((size > CLUSTER_BYTES) + (in_place and begin))


@pytest.mark.slow
def test_fallback_kernels_are_queued_behind_the_next_grid_at_once(usual, monkeypatch):
    launches, planned, run_grid = note_launches(monkeypatch), list[int](), SmallCall.run_grid

    def noted(call: SmallCall, kernel: str) -> bool:
        planned.append(call.resident.planned_fallback)
        return run_grid(call, kernel)

    monkeypatch.setattr(SmallCall, "run_grid", noted)
    engine = GpuEngine(EmulatedDevice(), 1 << 28)
    engine.load(load("gpt2"))
    for text in (b"ab" * 300 + WORDS[:200_000], WORDS[:200_600], WORDS[:200_600]):
        data, out = pinned(engine, text), engine.host_memory(4 * len(text)).view(np.int32)
        begins = encode_stream(engine, load("gpt2"), data, np.array([0, len(text)]), out)
        ids = tokenizer.encode(load("gpt2"), text.decode(), PLAIN).ids
        assert out[: begins[-1]].tolist() == ids
    assert usual == ["encode_grid"] * 2
    assert all(planned) and len(planned) == 2  # Set before the grid runs again.
    grids = [place for place, kernel in enumerate(launches) if kernel == "encode_grid"]
    assert grids[:2] == [0, 1] and launches[2] == "windows"  # Tried, and then planned to stop.
    assert launches[grids[2] :][:2] == ["encode_grid", "windows"]  # It was needed the last time.
    assert launches[grids[3] :] == ["encode_grid"]


def test_fallback_of_a_single_block_is_launched_once(usual, monkeypatch):
    launches = note_launches(monkeypatch)
    engine = GpuEngine(EmulatedDevice(), 1 << 28)
    engine.load(load("gpt2"))
    text = b"x " + b"ab" * 300
    out = engine.host_memory(4 * len(text)).view(np.int32)
    for _ in range(2):
        out[:] = -1
        begins = encode_stream(
            engine, load("gpt2"), pinned(engine, text), np.array([0, len(text)]), out
        )
        ids = tokenizer.encode(load("gpt2"), text.decode(), PLAIN).ids
        assert out[: begins[-1]].tolist() == ids
    assert usual == ["", ""]
    assert launches.count("encode_block") == 2


@pytest.mark.parametrize(
    "data", [np.full((2, 50_000), 97, np.uint8), np.zeros(6000, np.uint16), b"abc"], ids=type
)
def test_data_of_another_dtype_is_refused_at_any_size(engine, data):
    engine.load(load("gpt2"))
    out = engine.host_memory(1 << 20).view(np.int32)
    offsets = np.array([0, len(data)])
    with pytest.raises((TypeError, AttributeError), match=r"uint8\[N\]|no attribute 'dtype'"):
        engine.encode_ids(load("gpt2"), data, offsets)
    with pytest.raises((TypeError, AttributeError), match=r"uint8\[N\]|no attribute 'dtype'"):
        encode_stream(engine, load("gpt2"), data, offsets, out)


def test_no_chunk_in_flight_is_refused_at_any_size(engine):
    engine.load(load("gpt2"))
    out, data = engine.host_memory(4096).view(np.int32), pinned(engine, b"some words.")
    with pytest.raises(ValueError, match="must be at least 1"):
        encode_stream(engine, load("gpt2"), data, np.array([0, 11]), out, in_flight=0)


def test_ids_for_which_there_is_little_room_go_the_usual_way(engine, usual):
    engine.load(load("gpt2"))
    text = WORDS[:4000]
    out = engine.host_memory(4 * 2000).view(np.int32)[:2000]
    begins = encode_stream(
        engine, load("gpt2"), pinned(engine, text), np.array([0, len(text)]), out
    )
    assert out[: begins[-1]].tolist() == tokenizer.encode(load("gpt2"), text.decode(), PLAIN).ids
    assert usual == ["encode_block"]
