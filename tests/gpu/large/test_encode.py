"""Large batches in chunks: whatever the chunks, in flight and in memory, the reference's answer."""

from __future__ import annotations

import functools
import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from types import FrameType, TracebackType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu import streaming
from gpu.engine import GpuEngine
from gpu.errors import OutOfMemory
from gpu.large.chunk_sizes import BY_BUS, ChunkSizes
from gpu.large.chunking import chunks_of
from gpu.large.pipeline import Pipeline, _Call
from gpu.memory.workspace_layout import BYTES_A_ROW, SMALL_BYTES, Capacity, device_bytes
from gpu.memory.workspace_pool import WorkspacePool
from gpu.runtime.device import Device
from gpu.streaming import encode_stream
from tests.support.each_device import DEVICES, new_device
from tests.support.emulation.device import EmulatedDevice, EmulatedStream
from tests.support.emulation.lazy_device import LazyDevice
from tests.support.torch_or_skip import torch_or_skip
from vocabularies.batch.batch import Batch, EncodeOptions, RowRefused
from vocabularies.builtin import load
from vocabularies.model.types import Bpe, SpecialToken
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference import tokenizer

TOKENS = (*(bytes([byte]) for byte in range(256)), b"ab", b" ab", b"11", b"<ab>", b"<end>")
WITH_BEGIN_AND_END = Vocabulary(
    TOKENS,
    Bpe(((97, 98), (32, 256), (49, 49))),
    (SpecialToken("<ab>", 259), SpecialToken("<end>", 260)),
    pretokenizer="gpt2",
    prefix=(259,),
    suffix=(260, 260),
)
OPTIONS = [
    EncodeOptions(),
    EncodeOptions(add_special_tokens=False),
    EncodeOptions(special="refuse"),
    EncodeOptions(special="plain", max_length=9),
    EncodeOptions(max_length=2),
    EncodeOptions(max_length=8, truncation_side="left"),
    EncodeOptions(spans=True),
]
IN_FLIGHT = [1, 2, 3, 8, 33]
PIECES = st.sampled_from(["ab ", "ab", "b a", " 11 1", "\n", "é", "中", "<ab>", "a <a"])
ROWS = st.lists(st.lists(PIECES, max_size=20).map("".join), min_size=1, max_size=12)


@functools.cache
def engine_of(name: str, leased_bytes: int = 1 << 24) -> GpuEngine:
    engine = GpuEngine(new_device(name), 1 << 27, answer_bytes=leased_bytes)
    engine.resources.workspaces.is_small = lambda num_bytes, num_rows: False  # type: ignore[method-assign]
    return engine


@pytest.fixture(params=DEVICES)
def engine(request):
    engine = engine_of(request.param)
    yield engine
    assert_idle(engine)
    engine.pipeline.chunk_bytes, engine.pipeline.in_flight = 64, 4


def assert_idle(engine: GpuEngine) -> None:
    """Every workspace is given back."""
    shelves = engine.resources.workspaces._shelves.values()
    assert [len(shelf.free) for shelf in shelves] == [shelf.num_made for shelf in shelves]


def pinned(engine: GpuEngine, data: np.ndarray) -> np.ndarray:
    memory = engine.device.allocate_pinned(max(1, len(data)))[: len(data)]
    memory[:] = data
    return memory


def check_row(encoded, row: int, data: bytes, options: EncodeOptions) -> None:
    try:
        wanted = tokenizer.encode(WITH_BEGIN_AND_END, data.decode(), options)
    except UnicodeDecodeError as error:
        assert encoded.errors[row].code == "not_utf8"
        assert encoded.errors[row].where == f"byte {error.start}"
        wanted = None
    except RowRefused as refused:
        assert encoded.errors[row] == refused.error
        wanted = None
    begin, end = encoded.offsets[row : row + 2]
    if wanted is None:
        assert begin == end
        return
    assert row not in encoded.errors
    assert encoded.row(row).tolist() == wanted.ids
    if options.spans:
        assert list(map(tuple, encoded.spans[begin:end].tolist())) == wanted.spans
    if encoded.num_tokens is None:
        assert wanted.num_tokens == len(wanted.ids)
    else:
        assert encoded.num_tokens[row] == wanted.num_tokens
        assert tuple(encoded.kept[row].tolist()) == wanted.kept


@pytest.mark.parametrize("form", ["texts", "bytes", "pinned"])
@given(
    texts=ROWS,
    seed=st.integers(0, 2**32 - 1),
    chunk_bytes=st.sampled_from([8, 20, 64, 300]),
    in_flight=st.sampled_from(IN_FLIGHT),
    same=st.booleans(),
)
def test_any_chunks_give_every_row_what_the_reference_gives(
    form, texts, seed, chunk_bytes, in_flight, same
):
    chance, engine = np.random.default_rng(seed), engine_of("emulated")
    pipeline = engine.pipeline
    pipeline.chunk_bytes, pipeline.in_flight = chunk_bytes, in_flight
    rows = [text.encode() for text in texts]
    if form != "texts" and chance.random() < 0.5:
        place = chance.integers(len(rows))
        middle = chance.integers(len(rows[place]) + 1)
        rows[place] = rows[place][:middle] + b"\xff" + rows[place][middle:]
    each = [OPTIONS[i] for i in chance.integers(len(OPTIONS), size=len(rows))]
    options = each[0] if same else each
    each = [each[0]] * len(rows) if same else each
    batch = Batch(texts, options=options) if form == "texts" else Batch.from_bytes(rows, options)
    if form == "pinned":
        data = pinned(engine, batch.data)
        batch = Batch(data=data, offsets=batch.offsets, options=options)
    encoded = engine.encode(WITH_BEGIN_AND_END, batch)
    assert len(encoded.ids) == encoded.offsets[-1]
    assert len(encoded.offsets) == len(rows) + 1
    for row, (text, option) in enumerate(zip(rows, each, strict=True)):
        check_row(encoded, row, text, option)
    counts, errors = engine.count(WITH_BEGIN_AND_END, batch)
    assert counts.tolist() == np.diff(encoded.offsets).tolist()
    assert errors == encoded.errors
    if form == "pinned":
        engine.device.free_pinned(data)
    assert_idle(engine)


def test_every_other_byte_of_pinned_memory_is_not_read_where_it_lies(engine):
    text = b"so that none is read from where another lies " * 9
    twice = pinned(engine, np.frombuffer(text, np.uint8).repeat(2))
    assert engine.device.is_pinned(twice)
    assert not engine.device.is_pinned(twice[::2])
    encoded = engine.encode(
        WITH_BEGIN_AND_END, Batch(data=twice[::2], offsets=np.array([0, 45, len(text)]))
    )
    for row, part in enumerate((text[:45], text[45:])):
        check_row(encoded, row, part, EncodeOptions())
    engine.device.free_pinned(twice)


@pytest.mark.parametrize("leased_bytes", [0, 1 << 24])
@pytest.mark.parametrize("device", DEVICES)
def test_answers_grow_where_later_text_has_more_ids_than_the_first(device, leased_bytes):
    engine = engine_of(device, leased_bytes)
    engine.pipeline.chunk_bytes, engine.pipeline.in_flight = 1 << 13, 3
    texts = [" ab" * 3000, "a ba" * 3000, "b a" * 9000] * 2
    encoded = engine.encode(WITH_BEGIN_AND_END, Batch(texts))
    for row, text in enumerate(texts):
        check_row(encoded, row, text.encode(), EncodeOptions())
    assert engine.device.is_pinned(encoded.ids) == bool(leased_bytes)
    assert_idle(engine)


@pytest.mark.parametrize("name", DEVICES)
def test_answers_belong_to_the_caller_and_their_memory_is_used_again(name):
    engine = engine_of.__wrapped__(name)  # All that it lends is lent here.
    engine.pipeline.chunk_bytes = 1 << 13
    texts = [["ab a" * 9000, "b 11"], ["a b" * 9000, "<ab>"], ["11 " * 9000, "x"]]
    answers = [engine.encode(WITH_BEGIN_AND_END, Batch(each)) for each in texts]
    for each, encoded in zip(texts, answers, strict=True):
        assert engine.device.is_pinned(encoded.ids)
        for row, text in enumerate(each):
            check_row(encoded, row, text.encode(), EncodeOptions())
    kept = answers[1].ids[5:9]
    wanted = kept.tolist()
    del answers, encoded
    numbers = []
    for _ in range(6):
        encoded = engine.encode(WITH_BEGIN_AND_END, Batch(texts[0]))
        encoded.ids[:] = -1  # It may be written to.
        numbers.append(
            (engine.resources.leases.num_allocations, engine.resources.workspaces.num_allocations)
        )
    leased, workspaces = zip(*numbers[1:], strict=True)  # In the first none is held before.
    assert leased[-1] - leased[0] <= num_answers_kept_by_a_tool()
    assert len(set(workspaces)) == 1
    assert kept.tolist() == wanted


def num_answers_kept_by_a_tool() -> int:
    """How many finished calls have left a frame behind, which holds the call's answer.

    Under compute-sanitizer all do; else none does but by an exception, which does not count.
    """
    gc.collect()
    frames = [each for each in gc.get_objects() if type(each) is FrameType]  # No lazy object wakes.
    frames = [each for each in frames if each.f_code is Pipeline.answer.__code__]
    holders = [{type(holder) for holder in gc.get_referrers(frame)} for frame in frames]
    return sum(TracebackType not in types for types in holders)


class DeviceArray:
    """Memory of the device as other libraries show it."""

    def __init__(self, device: Device, size: int, kind: str, **changes: object) -> None:
        self.address = device.allocate(np.dtype(kind).itemsize * size)
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": kind,
            "data": (self.address, False),
            "version": 3,
            **changes,
        }

    def values(self, device: Device) -> np.ndarray:
        interface = self.__cuda_array_interface__
        array, stream = np.empty(interface["shape"], interface["typestr"]), device.stream()
        stream.copy_out(array.ctypes.data, self.address, array.nbytes)
        stream.synchronize()
        return array


def some_text(seed: int) -> tuple[np.ndarray, np.ndarray]:
    chance = np.random.default_rng(seed)
    words = ["ab ", "a", "größe ", "中文字 ", "\n\n  x", "<ab>", "11 1 "]
    rows = ["".join(chance.choice(words, size)).encode() for size in (900, 0, 3, 2000, 0)]
    return np.frombuffer(b"".join(rows), np.uint8), np.cumsum([0, *map(len, rows)])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.slow
def test_copies_and_kernels_may_begin_and_end_at_any_time(seed):
    """Nothing rests on what is usually done first: streams wait for what they need."""
    device, chance = LazyDevice(seed), np.random.default_rng(seed)
    engine = GpuEngine(device, 1 << 27)
    engine.resources.workspaces.is_small = lambda num_bytes, num_rows: False
    data, offsets = some_text(seed)
    wanted, wanted_offsets = engine_of("emulated").encode_ids(WITH_BEGIN_AND_END, data, offsets)
    for size in (int(chance.choice([100, 300])), 900):
        engine.pipeline.chunk_bytes = size
        engine.pipeline.in_flight = in_flight = int(chance.choice([1, 2, 3, 8]))
        text = pinned(engine, data) if chance.random() < 0.7 else data
        ids, ends = engine.encode_ids(WITH_BEGIN_AND_END, text, offsets)
        assert (ids.tolist(), ends.tolist()) == (wanted.tolist(), wanted_offsets.tolist())
        kind = chance.choice(["<i4", "<u2"])
        there, here = DeviceArray(device, len(data), kind), np.zeros(len(data), kind)
        for out in (there, here, pinned(engine, here.view(np.uint8)).view(kind)):
            ends = encode_stream(
                engine,
                WITH_BEGIN_AND_END,
                text,
                offsets,
                out,
                chunk_bytes=size,
                in_flight=in_flight,
            )
            values = there.values(device) if out is there else out
            assert values[: ends[-1]].tolist() == wanted.tolist()
    assert_idle(engine)


@pytest.mark.parametrize(
    ("text", "chunk"),
    [(1, 4), (47, 4), (48, 8), (191, 8), (192, 16), (287, 16), (288, 24), (1024, 24)],
)
def test_a_stream_to_the_host_goes_in_many_chunks_of_4_mib_at_least(text, chunk):
    assert BY_BUS.of(text << 20) == ChunkSizes(chunk << 20, BY_BUS.in_flight, BY_BUS.ends)
    assert ChunkSizes(5000, 2, (9, 9)).of(text << 20) == ChunkSizes(
        5000, 2, (9, 9)
    )  # It is small already.


@pytest.mark.parametrize(
    ("text", "room"), [(5, SMALL_BYTES + 1), (47, SMALL_BYTES + 1), (48, 8 << 20)]
)
@pytest.mark.slow
def test_chunks_have_workspaces_that_small_batches_do_not_use(monkeypatch, text, room):
    engine = GpuEngine(EmulatedDevice(), 1 << 30)
    data = np.resize(np.frombuffer(b"ab ", np.uint8), text << 20)
    offsets, out = np.array([0, len(data)]), pinned(engine, np.zeros(4, np.uint8)).view(np.int32)
    taken: list[int] = []

    def take(workspaces: WorkspacePool, num_bytes: int, num_rows: int, layout: str) -> None:
        taken.append(num_bytes)
        raise RuntimeError

    monkeypatch.setattr(WorkspacePool, "take", take)
    with pytest.raises(RuntimeError):
        engine.encode_ids(WITH_BEGIN_AND_END, data, offsets)
    with pytest.raises(RuntimeError):
        encode_stream(engine, WITH_BEGIN_AND_END, data, offsets, out)
    assert taken == [room, room]


def test_copies_of_a_call_go_one_after_the_other_in_the_order_of_its_chunks(monkeypatch):
    """Side by side they share PCIe, and the first to begin may be the last to end."""
    engine, (data, offsets) = engine_of("emulated"), some_text(3)
    engine.load(WITH_BEGIN_AND_END)
    offsets = offsets[:-1]  # Without the last one, which is empty.
    text, out = pinned(engine, data), pinned(engine, np.zeros(4 * len(data), np.uint8))
    copies: dict[str, list[tuple[EmulatedStream, int]]] = {"copy_in": [], "copy_out": []}
    place = {"copy_in": 1, "copy_out": 0}  # Of the host's address among the arguments.
    for name, noted in copies.items():
        own = getattr(EmulatedStream, name)

        def copy(stream, *where, own=own, name=name, noted=noted):
            noted.append((stream, where[place[name]]))
            own(stream, *where)

        monkeypatch.setattr(EmulatedStream, name, copy)
    ids = out.view(np.int32)
    for _ in range(2):
        encode_stream(engine, WITH_BEGIN_AND_END, text, offsets, ids, chunk_bytes=300, in_flight=3)
    for name, memory in (("copy_in", text), ("copy_out", out)):
        streams_of, places = zip(*copies[name], strict=True)
        once = places[: len(places) // 2]
        assert len(set(streams_of)) == 1  # The second call has those of the first.
        assert (places, list(once)) == (2 * once, sorted(once))
        assert (len(once) > 5, once[0]) == (True, memory.ctypes.data)
    assert copies["copy_in"][0][0] is not copies["copy_out"][0][0]


@pytest.mark.parametrize("kind", ["<i4", "<u2"])
@pytest.mark.parametrize("stream", [None, 1])
def test_ids_stay_on_the_device_where_the_callers_array_lies_there(engine, kind, stream):
    data, offsets = some_text(0)
    ids, id_offsets = engine.encode_ids(WITH_BEGIN_AND_END, data, offsets)
    out = DeviceArray(engine.device, len(data), kind, stream=stream)
    got = encode_stream(
        engine, WITH_BEGIN_AND_END, pinned(engine, data), offsets, out, chunk_bytes=500
    )
    assert got.tolist() == id_offsets.tolist()
    assert out.values(engine.device)[: len(ids)].tolist() == ids.tolist()
    if isinstance(engine.device, EmulatedDevice):
        assert engine.device.num_waits == (stream is not None)
        engine.device.num_waits = 0
    engine.device.free(out.address)


@pytest.mark.torch
def test_a_tensor_of_the_host_takes_ids(engine):
    data, offsets = some_text(1)
    ids, id_offsets = engine.encode_ids(WITH_BEGIN_AND_END, data, offsets)
    torch = torch_or_skip()
    out = torch.zeros(len(data), dtype=torch.int32)
    assert (
        encode_stream(engine, WITH_BEGIN_AND_END, data, offsets, out).tolist()
        == id_offsets.tolist()
    )
    assert out[: len(ids)].tolist() == ids.tolist()


@pytest.mark.parametrize("ends", [(0, 1), (0, 1 << 40), (-1, 0)])
def test_rows_of_a_stream_that_lie_outside_of_its_data_are_refused(engine, ends):
    data, _ = some_text(1)
    offsets = np.array([0, len(data)]) + ends
    with pytest.raises(ValueError, match=f"offsets go from .*, not from 0 to {len(data)}"):
        encode_stream(engine, WITH_BEGIN_AND_END, data, offsets, np.zeros(99, np.int32))


def test_rows_of_a_stream_may_begin_behind_its_datas_begin(engine):
    data, offsets = some_text(1)
    inner = data[int(offsets[1]) : int(offsets[-2])]
    ids, id_offsets = engine.encode_ids(WITH_BEGIN_AND_END, inner, offsets[1:-1] - offsets[1])
    out = np.zeros(len(data), np.int32)
    assert (
        encode_stream(engine, WITH_BEGIN_AND_END, data, offsets[1:-1], out).tolist()
        == id_offsets.tolist()
    )
    assert out[: len(ids)].tolist() == ids.tolist()
    again, begins = engine.encode_ids(WITH_BEGIN_AND_END, data, offsets[1:-1])
    assert (again.tolist(), begins.tolist()) == (ids.tolist(), id_offsets.tolist())


def test_text_that_lies_apart_or_backwards_has_its_own_ids(engine):
    """Whatever the strides of the bytes and the width of the offsets."""
    data, offsets = some_text(1)
    ids, id_offsets = engine.encode_ids(WITH_BEGIN_AND_END, data, offsets)
    for apart in (np.repeat(data, 2)[::2], data[::-1].copy()[::-1]):
        out = np.zeros(len(data), np.int32)
        begins = encode_stream(engine, WITH_BEGIN_AND_END, apart, offsets.astype(np.uint32), out)
        assert (out[: len(ids)].tolist(), begins.tolist()) == (ids.tolist(), id_offsets.tolist())
        assert engine.encode_ids(WITH_BEGIN_AND_END, apart, offsets)[0].tolist() == ids.tolist()


@pytest.mark.parametrize("numbers", [{"in_flight": 0}, {"in_flight": -1}, {"chunk_bytes": -5}])
def test_a_pace_that_goes_nowhere_is_refused(engine, numbers):
    data, offsets = some_text(1)
    with pytest.raises(ValueError, match="must be at least 1"):
        encode_stream(
            engine, WITH_BEGIN_AND_END, data, offsets, np.zeros(len(data), np.int32), **numbers
        )


def test_an_array_that_cannot_take_the_ids_is_refused_with_a_reason(engine):
    data, offsets = some_text(1)
    wrong = [
        DeviceArray(engine.device, 9, "<i8"),
        DeviceArray(engine.device, 9, "<i4", strides=(8,)),
        DeviceArray(engine.device, 9, "<i4", data=(0, True)),
        np.zeros((4, 4), np.int32),
        np.zeros(9, np.int32)[::2],
        np.zeros(9, np.int64),
        np.frombuffer(bytes(36), np.int32),
        [0] * 9,
    ]
    for out in wrong:
        with pytest.raises(
            ValueError,
            match="writable, contiguous, one-dimensional array of int32 or uint16 or uint8",
        ):
            encode_stream(engine, WITH_BEGIN_AND_END, data, offsets, out)
    with pytest.raises(ValueError, match="out is too small: 400 bytes"):
        encode_stream(
            engine, WITH_BEGIN_AND_END, data, offsets, np.zeros(100, np.int32), chunk_bytes=300
        )
    with pytest.raises(ValueError, match="16 bits"):
        encode_stream(engine, load("cl100k_base"), data, offsets, np.zeros(9, np.uint16))
    with pytest.raises(ValueError, match="8 bits"):
        encode_stream(engine, WITH_BEGIN_AND_END, data, offsets, np.zeros(9, np.uint8))


@pytest.mark.parametrize("num_threads", [1, 3])
def test_calls_that_share_few_workspaces_wait_for_each_other(engine, num_threads):
    data, offsets = some_text(2)
    wanted, _ = engine.encode_ids(WITH_BEGIN_AND_END, data, offsets)
    shared = GpuEngine(engine.device, 1 << 27)
    shared.resources.workspaces.each = 2

    def run(_: int) -> bool:
        out = np.zeros(len(data), np.int32)
        encode_stream(shared, WITH_BEGIN_AND_END, data, offsets, out, chunk_bytes=700)
        return out[: len(wanted)].tolist() == wanted.tolist()

    with ThreadPoolExecutor(num_threads) as pool:
        assert all(pool.map(run, range(4 * num_threads)))
    assert_idle(shared)
    shared.close()


def test_idle_workspaces_make_room_for_one_of_another_size():
    workspaces = WorkspacePool(EmulatedDevice(), 10 << 20)
    small = [workspaces.take(1 << 13, 0) for _ in range(3)]
    large = workspaces.take(1 << 17, 0)
    with pytest.raises(OutOfMemory, match="exceeds the memory limit"):
        workspaces.take(1 << 18, 0)
    for workspace in (*small, large):
        workspaces.give(workspace)
    with pytest.raises(OutOfMemory, match="exceeds the memory limit"):
        workspaces.take(1 << 22, 0)
    used = workspaces.used_bytes
    held = [workspaces.take(1 << 17, 0) for _ in range(2)]
    assert held[0] is large
    assert workspaces.used_bytes <= workspaces.cap_bytes
    assert workspaces.try_take(1 << 17, 0) is None
    assert workspaces.used_bytes > used
    thread = threading.Timer(0.05, lambda: workspaces.give(held[0]))
    thread.start()
    assert workspaces.take(1 << 17, 0) is held[0]
    thread.join()


def test_two_large_chunks_take_half_of_the_cap_and_small_ones_all():
    def largest(cap_bytes: int) -> int:
        return WorkspacePool(EmulatedDevice(), cap_bytes).chunk_sizes(256 << 20)[0]

    large, small = (
        device_bytes(Capacity(size, size // BYTES_A_ROW)) for size in (256 << 20, 16 << 20)
    )
    assert largest(4 * large) == 256 << 20
    assert largest(4 * large - 1) == 64 << 20
    assert largest(2 * small) == 16 << 20
    assert largest(2 * small - 1) == 8 << 20


def test_small_chunks_need_not_wait_for_a_workspace(monkeypatch):
    """Where as many as may be are in flight, small ones get smaller workspaces."""
    monkeypatch.setattr(streaming, "BY_BUS", ChunkSizes(32 << 10, 2, (4 << 10, 4 << 10)))
    most: list[int] = []
    finish_one = _Call.finish_one

    def finish(call: _Call) -> None:
        most.append(len(call.pending))
        finish_one(call)

    monkeypatch.setattr(_Call, "finish_one", finish)
    engine = GpuEngine(EmulatedDevice(1 << 32), 1 << 28)
    row = "ab 11 " * 200
    data = np.frombuffer(row.encode() * 100, np.uint8)
    offsets, ids = np.arange(101, dtype=np.int64) * len(row), np.empty(len(data), np.int32)
    ends = encode_stream(
        engine, WITH_BEGIN_AND_END, data, offsets, ids, chunk_bytes=32 << 10, in_flight=2
    )
    engine.close()
    options = EncodeOptions(add_special_tokens=False)
    assert ids[: ends[-1]].tolist() == tokenizer.encode(WITH_BEGIN_AND_END, row, options).ids * 100
    assert max(most) > 2


def test_the_last_chunk_does_not_wait_for_those_before_it(monkeypatch):
    launched: list[list[bool]] = []
    finish_one = _Call.finish_one

    def finish(call: _Call) -> None:
        launched.append([flight.is_launched for flight in call.pending])
        finish_one(call)

    monkeypatch.setattr(_Call, "finish_one", finish)
    engine = engine_of("emulated")
    engine.pipeline.chunk_bytes, engine.pipeline.in_flight = 1 << 13, 3
    text = "ab 11 a" * 9000
    check_row(engine.encode(WITH_BEGIN_AND_END, Batch([text])), 0, text.encode(), EncodeOptions())
    assert launched[-3:] == [[True] * 3, [True] * 2, [True]]


def test_a_stream_of_no_rows_or_empty_ones_has_no_ids(engine):
    for num_rows in (0, 1, 70):
        offsets = np.zeros(num_rows + 1, np.int64)
        assert list(chunks_of(np.zeros(0, np.uint8), offsets, WITH_BEGIN_AND_END)) or not num_rows
        ids, id_offsets = engine.encode_ids(WITH_BEGIN_AND_END, np.zeros(0, np.uint8), offsets)
        assert (len(ids), id_offsets.tolist()) == (0, offsets.tolist())
        encoded = engine.encode(WITH_BEGIN_AND_END, Batch([""] * num_rows))
        assert encoded.ids.tolist() == [259, 260, 260] * num_rows


def test_text_in_memory_of_the_engines_is_not_staged(engine, monkeypatch):
    engine.pipeline.chunk_bytes = 1 << 13
    text = b"ab 11 a" * 9000
    memory = engine.host_memory(len(text))
    memory[:] = np.frombuffer(text, np.uint8)
    monkeypatch.setattr(engine.resources.staging, "start", None)
    encoded = engine.encode(
        WITH_BEGIN_AND_END, Batch(data=memory, offsets=np.array([0, len(text)]))
    )
    check_row(encoded, 0, text, EncodeOptions())
    assert engine.host_memory(engine.resources.leases.cap_bytes + 1) is None
