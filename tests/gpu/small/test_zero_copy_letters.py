"""Characters in one launch: the ids of batches, wherever the text lies and whatever is in it."""

from __future__ import annotations

import functools
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpu.engine import GpuEngine
from gpu.errors import NotCovered, OutOfMemory
from gpu.small import zero_copy_letters
from gpu.streaming import encode_stream
from service.engines.cpu.engine import CpuEngine
from tests.gpu.large.test_encode import DeviceArray, assert_idle, pinned
from tests.support.each_device import new_engine
from tests.support.emulation.device import EmulatedDevice, note_launches
from tests.support.inputs.sequence_strategies import SEQUENCES, character_vocabularies
from tests.support.waiting import GIVEN_UP_S
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.builtin import load
from vocabularies.model.vocabulary import Vocabulary

CPU, CONTENT = CpuEngine(), EncodeOptions(add_special_tokens=False)
KINDS = {32: "<i4", 16: "<u2", 8: "|u1"}


engine_of = functools.cache(new_engine)


@pytest.fixture
def launches(monkeypatch):
    """The kernels that an emulated device runs."""
    return note_launches(monkeypatch)


def check(engine: GpuEngine, vocabulary: Vocabulary, data, offsets, bits: int = 32) -> None:
    """Ids and offsets are the CPU engine's, or a row is refused, and nothing is written behind."""
    right = CPU.encode(vocabulary, Batch(data=data, offsets=offsets, options=CONTENT))
    wanted, begins = right.ids, right.offsets
    out = DeviceArray(engine.device, len(data) + 64, KINDS[bits])
    stream, size = engine.device.stream(), bits // 8 * (len(data) + 64)
    stream.clear(out.address, size)
    stream.synchronize()
    if right.errors:
        with pytest.raises(ValueError, match=f"row {min(right.errors)} is refused"):
            encode_stream(engine, vocabulary, data, offsets, out)
    else:
        got = encode_stream(engine, vocabulary, data, offsets, out)
        assert got.tolist() == begins.tolist()
        assert out.values(engine.device)[: got[-1]].tolist() == wanted.tolist()
    assert not out.values(engine.device)[len(data) :].any()
    engine.device.free(out.address)
    assert_idle(engine)


def rows_of(texts: list[str]) -> Batch:
    return Batch.from_bytes([text.encode() for text in texts])


@settings(max_examples=100)
@given(
    vocabulary=character_vocabularies(),
    texts=st.lists(SEQUENCES, min_size=1, max_size=6),
    bits=st.sampled_from([8, 16, 32]),
    is_pinned=st.booleans(),
)
def test_any_characters_have_the_ids_of_batches(vocabulary, texts, bits, is_pinned):
    engine, batch = engine_of("emulated"), rows_of(texts)
    try:
        engine.load(vocabulary)
    except NotCovered:
        assume(False)
    data = pinned(engine, batch.data) if is_pinned else batch.data
    check(engine, vocabulary, data, batch.offsets, bits)
    engine.unload(vocabulary.digest)
    if is_pinned:
        engine.device.free_pinned(data)


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("size", [1, 15, 16, 17, 4096, 70_001])
def test_text_is_one_launch_where_it_is_pinned_and_one_a_piece_where_not(
    monkeypatch, launches, bits, size
):
    engine, vocabulary = engine_of("emulated"), load("hyenadna")
    monkeypatch.setattr(zero_copy_letters, "LEAST_STAGED_BYTES", 64)
    monkeypatch.setattr(zero_copy_letters, "MOST_STAGED_BYTES", 1 << 12)
    monkeypatch.setattr(zero_copy_letters, "OWN_BYTES", 17)
    text = np.random.default_rng(size).choice(np.frombuffer(b"ACGTN", np.uint8), size)
    offsets = np.array([0, size // 3, size // 3, size])
    own, out = pinned(engine, text), DeviceArray(engine.device, size, KINDS[bits])
    piece = 64 if size > 17 else size
    piece = min(4096, max(piece, -(-size // 64) * 16))  # A quarter of little text.
    for data, num_launches in ((own, 1), (text, -(-size // piece))):
        launches.clear()
        encode_stream(engine, vocabulary, data, offsets, out)
        assert launches == ["fetch_letters" + ("" if bits == 32 else str(bits))] * num_launches
        check(engine, vocabulary, data, offsets, bits)
    engine.device.free_pinned(own)
    engine.device.free(out.address)


@pytest.mark.parametrize("is_pinned", [True, False])
@pytest.mark.parametrize("piece", [16, 48, 1 << 10])
def test_pieces_that_are_copied_or_staged_mix_nothing(engine, monkeypatch, is_pinned, piece):
    for name, value in (
        ("LEAST_STAGED_BYTES", piece),
        ("MOST_STAGED_BYTES", piece),
        ("COPIED_BYTES", piece),
        ("OVER_BUS_BYTES", 20),
        ("OWN_BYTES", 20),
    ):
        monkeypatch.setattr(zero_copy_letters, name, value)
    text = np.random.default_rng(0).choice(np.frombuffer(b"ACGTN", np.uint8), 5000)
    data = pinned(engine, text) if is_pinned else text
    for size in (1, 20, 21, 48, 49, 96, 97, 5000):
        check(engine, load("hyenadna"), data[:size], np.array([0, size]))
    if is_pinned:
        engine.device.free_pinned(data)


def test_what_is_not_plain_or_not_aligned_goes_the_usual_way(launches):
    engine = engine_of("emulated")
    texts = ["ACGT" * 50, "ACéGT", "A[MASK]C", ""]
    batch = rows_of(texts)
    check(engine, load("hyenadna"), batch.data, batch.offsets)
    assert "fetch_letters" in launches
    launches.clear()
    memory = pinned(engine, np.resize(batch.data[:4], 203))
    check(engine, load("hyenadna"), memory[3:], np.array([0, 200]))
    assert "fetch_letters" not in launches
    launches.clear()
    check(engine, load("hyenadna"), memory, np.array([0, 200, 203]))
    assert launches.count("fetch_letters") == 1
    engine.device.free_pinned(memory)


def test_rows_of_a_part_of_the_data_begin_where_the_first_one_does(engine):
    text, out = np.frombuffer(b"NNNNACGTACGT", np.uint8), DeviceArray(engine.device, 16, "<i4")
    vocabulary = load("hyenadna")
    got = encode_stream(engine, vocabulary, text, np.array([4, 6, 12]), out)
    assert got.tolist() == [0, 2, 8]
    wanted, _ = engine.encode_ids(vocabulary, text[4:], np.array([0, 8]))
    assert out.values(engine.device)[:8].tolist() == wanted.tolist()


def test_ids_that_find_no_room_are_refused_with_a_reason(engine):
    text, out = np.frombuffer(b"ACGT" * 9, np.uint8), DeviceArray(engine.device, 35, "<i4")
    with pytest.raises(ValueError, match="out is too small"):
        encode_stream(engine, load("hyenadna"), text, np.array([0, 36]), out)
    assert_idle(engine)


def test_calls_of_many_threads_do_not_wait_for_each_other(engine, monkeypatch):
    """Each has a workspace, and some want a second one of which there are as many as they are."""
    monkeypatch.setattr(zero_copy_letters, "LEAST_STAGED_BYTES", 64)
    monkeypatch.setattr(zero_copy_letters, "MOST_STAGED_BYTES", 64)
    monkeypatch.setattr(zero_copy_letters, "OWN_BYTES", 0)
    begin = threading.Barrier(6)
    text = np.random.default_rng(0).choice(np.frombuffer(b"ACGTN", np.uint8), 3000)
    out = [DeviceArray(engine.device, 3000, "<i4") for _ in range(6)]

    def call(number: int) -> None:
        begin.wait()
        for _ in range(5):
            encode_stream(engine, load("hyenadna"), text, np.array([0, 3000]), out[number])

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(call, range(6), timeout=GIVEN_UP_S))
    wanted, _ = engine.encode_ids(load("hyenadna"), text, np.array([0, 3000]))
    assert all((each.values(engine.device) == wanted).all() for each in out)
    assert_idle(engine)


@pytest.mark.parametrize("id_dtype", [np.int32, np.uint16, np.uint8])
@pytest.mark.parametrize("form", ["texts", "bytes", "pinned"])
def test_batches_are_fetched_where_they_ask_for_ids_of_letters_alone(
    engine, monkeypatch, id_dtype, form
):
    fetched, run = [], zero_copy_letters.fetch_letters
    monkeypatch.setattr(
        zero_copy_letters,
        "fetch_letters",
        lambda *arguments: fetched.append(run(*arguments)) or fetched[-1],
    )
    vocabulary, texts = load("hyenadna"), ["ACGTN" * 400, "", "acg"]
    rows = rows_of(texts)
    own = pinned(engine, rows.data)
    for options, is_fetched in (
        (CONTENT, [True]),
        (EncodeOptions(), []),
        (EncodeOptions(add_special_tokens=False, spans=True), []),
        (EncodeOptions(add_special_tokens=False, max_length=9), []),
        (EncodeOptions(add_special_tokens=False, reverse_complement=True), []),
        (EncodeOptions(add_special_tokens=False, circular=True), []),
        (EncodeOptions(add_special_tokens=False, special="refuse"), []),
    ):
        fetched.clear()
        batch = {
            "texts": Batch(texts, options=options, id_dtype=id_dtype),
            "bytes": Batch(
                data=rows.data, offsets=rows.offsets, options=options, id_dtype=id_dtype
            ),
            "pinned": Batch(data=own, offsets=rows.offsets, options=options, id_dtype=id_dtype),
        }[form]
        got = engine.encode(vocabulary, batch)
        right = CPU.encode(vocabulary, Batch(texts, options=options))
        assert got.ids.tolist() == right.ids.tolist()
        assert got.offsets.tolist() == right.offsets.tolist()
        assert got.errors.keys() == right.errors.keys()
        assert fetched == is_fetched
        assert got.ids.dtype == id_dtype or not is_fetched
    engine.device.free_pinned(own)
    assert_idle(engine)


def test_an_answer_that_no_memory_is_leased_for_goes_the_usual_way():
    engine = GpuEngine(EmulatedDevice(1 << 33), 1 << 30, answer_bytes=0)
    ids, offsets = engine.encode_ids(load("hyenadna"), np.full(99, 65, np.uint8), np.array([0, 99]))
    assert (
        ids.tolist()
        == CPU.encode(load("hyenadna"), Batch(["A" * 99], options=CONTENT)).ids.tolist()
    )
    assert offsets.tolist() == [0, 99]


def test_where_there_is_no_room_for_pieces_smaller_chunks_do(monkeypatch):
    monkeypatch.setattr(zero_copy_letters, "OVER_BUS_BYTES", 20)
    engine = GpuEngine(EmulatedDevice(1 << 33), 1 << 22)
    text = pinned(engine, np.resize(np.frombuffer(b"ACGTN", np.uint8), 30_000))
    with pytest.raises(OutOfMemory):
        engine.resources.workspaces.take(zero_copy_letters.COPIED_BYTES, 1, "kmers")
    for name in ("hyenadna", "nt_v2"):
        check(engine, load(name), text, np.array([0, 9000, 30_000]))
    engine.device.free_pinned(text)


def test_one_batch_in_so_many_is_timed(engine):
    engine.stage_times.take()
    every = engine.stage_times.every
    engine.stage_times.time_every(1)
    engine.encode_ids(load("hyenadna"), np.full(50, 65, np.uint8), np.array([0, 50]))
    engine.stage_times.time_every(every)
    assert {stage for stage, _ in engine.stage_times.take()} == {"fused"}
