"""Texts in other processes' memory to ids in such memory: emulated and on a GPU."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from unittest.mock import Mock

import numpy as np
import pytest

from gpu.engine import GpuEngine
from gpu.errors import NotCovered
from gpu.large import ipc_stream
from gpu.large.chunk_in_flight import ChunkInFlight
from gpu.large.chunk_sizes import ChunkSizes
from gpu.memory.ipc import SharedHostMemory
from tests.support.each_device import new_device
from tests.support.emulation.device import EmulatedDevice
from tests.support.waiting import GIVEN_UP_S
from vocabularies.batch.batch import EncodeOptions
from vocabularies.batch.shared_rows import SharedRows, SharedText
from vocabularies.builtin import load
from vocabularies.reference import tokenizer

TEXTS = ["It's unzipped", "", "北京 now " * 300, "one long row of words " * 900, "größe"]
SEQUENCES = ["ACGTTGCA" * 300, "", "ACGNNNNNNNNNNNNACGT", "acgt" * 99]


@functools.cache
def engine_of(device: str) -> GpuEngine:
    return GpuEngine(new_device(device), 1 << 28)


@pytest.fixture(params=["device", "host"])
def memory(request, engine):
    """Gives memory of a kind, that another process might have made, of so many bytes."""
    made: list[Memory] = []

    def make(num_bytes: int) -> Memory:
        made.append(Memory(engine, request.param, num_bytes))
        return made[-1]

    yield make
    for each in made:
        each.close()


class Memory:
    """A SharedMemory, and the owner's view of it."""

    def __init__(self, engine: GpuEngine, kind: str, num_bytes: int) -> None:
        self.engine, self.num_bytes = engine, num_bytes
        self.host, self.on_device = None, kind == "device"
        if kind == "host":
            self.file = os.memfd_create("texts")
            os.ftruncate(self.file, num_bytes + 100)
            self.host = SharedHostMemory(engine.device, self.file, 100, num_bytes)
        self.address = self.host.address if self.host else engine.device.allocate(num_bytes)

    def in_use(self) -> contextlib.AbstractContextManager[None]:
        return self.host.in_use() if self.host else contextlib.nullcontext()

    def put(self, data: bytes) -> None:
        if self.host:
            os.pwrite(self.file, data, 100)
        else:
            stream = self.engine.device.stream()
            stream.copy_in(self.address, np.frombuffer(data, np.uint8).ctypes.data, len(data))
            stream.synchronize()

    def read(self, offset: int, out: np.ndarray) -> None:
        if self.host:
            self.host.read(offset, out)
            return
        stream = self.engine.device.stream()
        stream.copy_out(out.ctypes.data, self.address + offset, out.nbytes)
        stream.synchronize()

    def close(self) -> None:
        if self.host:
            self.host.close()
            os.close(self.file)
        else:
            self.engine.device.free(self.address)

    def ids(self, begin: int, count: int, dtype: type) -> list[int]:
        out = np.empty(count * np.dtype(dtype).itemsize, np.uint8)
        self.read(begin, out)
        return out.view(dtype).tolist()


def rows_of(memory, texts: list[str | bytes], **changes) -> SharedRows:
    data = [text if isinstance(text, bytes) else text.encode() for text in texts]
    joined = b"".join(data)
    text, out = memory(len(joined) + 16), memory(4 * len(joined) + 64)
    text.put(bytes(16) + joined)
    offsets = np.cumsum([0, *map(len, data)])
    shared = SharedText(text, 16, len(joined))
    fields = {"out_begin": 8, "out_bytes": out.num_bytes - 8, **changes}
    return SharedRows(shared, offsets, out, **fields)


@pytest.mark.parametrize("chunk_bytes", [None, 700])
@pytest.mark.parametrize(
    ("name", "texts", "id_bytes"),
    [
        ("gpt2", TEXTS, 4),
        ("gpt2", TEXTS, 2),
        ("cl100k_base", TEXTS, 4),
        ("dnabert2", SEQUENCES, 4),
        ("hyenadna", SEQUENCES, 4),
    ],
)
@pytest.mark.slow
def test_the_ids_are_the_references(
    engine, memory, monkeypatch, name, texts, id_bytes, chunk_bytes
):
    if chunk_bytes is not None:
        for name_of_pace in ("BY_BUS", "TO_DEVICE"):
            pace = ChunkSizes(chunk_bytes, 4, (chunk_bytes // 2, chunk_bytes // 2))
            monkeypatch.setattr(ipc_stream, name_of_pace, pace)
        monkeypatch.setattr(
            ipc_stream, "ON_DEVICE", ChunkSizes(chunk_bytes, 2, (chunk_bytes, chunk_bytes))
        )
    vocabulary = load(name)
    for options in (EncodeOptions(), EncodeOptions(special="plain", add_special_tokens=False)):
        rows = rows_of(memory, texts, id_bytes=id_bytes, options=options)
        offsets = engine.encode_shared(vocabulary, rows)
        wanted = [tokenizer.encode(vocabulary, text, options).ids for text in texts]
        assert offsets.tolist() == np.cumsum([0, *map(len, wanted)]).tolist()
        got = rows.out.ids(8, int(offsets[-1]), np.int32 if id_bytes == 4 else np.uint16)
        assert got == [token_id for row in wanted for token_id in row]


@pytest.mark.parametrize("kinds", [(a, b) for a in ("device", "host") for b in ("device", "host")])
def test_where_no_bus_is_between_chunks_are_large_and_few(engine, monkeypatch, kinds):
    answer, asked = engine.pipeline.answer, []

    def told(work, chunks, new_answer, chunk_bytes, in_flight, lock):
        sizes = [chunk.end - chunk.begin for chunk in chunks(chunk_bytes)]
        asked.append((chunk_bytes, in_flight, sizes[0]))
        return answer(work, chunks, new_answer, chunk_bytes, in_flight, lock)

    monkeypatch.setattr(engine.pipeline, "answer", told)
    monkeypatch.setattr(ipc_stream, "BY_BUS", ChunkSizes(1000, 4, (500, 500)))
    monkeypatch.setattr(ipc_stream, "TO_DEVICE", ChunkSizes(2000, 4, (500, 1000)))
    monkeypatch.setattr(ipc_stream, "ON_DEVICE", ChunkSizes(3000, 2, (3000, 3000)))
    with contextlib.ExitStack() as stack:
        text, out = (Memory(engine, kind, 60_000) for kind in kinds)
        for each in (text, out):
            stack.callback(each.close)
        rows = rows_of(lambda _: text, ["word" + 9 * " word"] * 200)
        rows = replace(rows, out=out, out_bytes=60_000 - 8)
        engine.encode_shared(load("gpt2"), rows)
        num_allocations = engine.resources.workspaces.num_allocations
        offsets = engine.encode_shared(load("gpt2"), rows)
        assert offsets.tolist() == [*range(0, 2001, 10)]
        assert engine.resources.workspaces.num_allocations == num_allocations
    wanted = (1000, 4, 490)
    if kinds[1] == "device":
        wanted = (3000, 2, 2989) if kinds[0] == "device" else (2000, 4, 490)
    assert asked == [wanted] * 2


@pytest.mark.parametrize("kind", ["device", "host"])
def test_calls_between_regions_of_the_device_take_turns(engine, monkeypatch, kind):
    monkeypatch.setattr(ipc_stream, "ON_DEVICE", ChunkSizes(3000, 2, (3000, 3000)))
    monkeypatch.setattr(ipc_stream, "BY_BUS", ChunkSizes(3000, 2, (3000, 3000)))
    launched, first, asked, second = [], *(threading.Event() for _ in range(3))
    own = ChunkInFlight.launch

    def noted(self, processors):
        if not self.is_launched:
            launched.append(threading.current_thread().name)
            first.set()
            assert asked.wait(GIVEN_UP_S)
            if len(set(launched)) == 2:
                second.set()
            if kind == "host":
                assert second.wait(GIVEN_UP_S)
            else:
                time.sleep(0.01)  # Whoever does not wait for a turn gets in between.
        own(self, processors)

    with contextlib.ExitStack() as stack:
        memories = []

        def memory(size):
            memories.append(Memory(engine, kind, size))
            stack.callback(memories[-1].close)
            return memories[-1]

        both = [rows_of(memory, ["word" + 9 * " word"] * 300) for _ in range(2)]
        engine.encode_shared(load("gpt2"), both[0])
        monkeypatch.setattr(ChunkInFlight, "launch", noted)
        with ThreadPoolExecutor(2, "call") as pool:
            calls = [pool.submit(engine.encode_shared, load("gpt2"), both[0])]
            assert first.wait(GIVEN_UP_S)
            calls.append(pool.submit(engine.encode_shared, load("gpt2"), both[1]))
            asked.set()
            assert all(call.result().tolist() == [*range(0, 3001, 10)] for call in calls)
    changes = sum(a != b for a, b in pairwise(launched))
    assert len(launched) == 10
    assert (changes == 1) == (kind == "device")


def test_only_the_text_is_copied_and_a_kernel_fetches_the_rest(engine, memory, monkeypatch):
    rows = rows_of(memory, ["word" + 9 * " word"] * 20)
    engine.encode_shared(load("gpt2"), rows)  # Which brings the vocabulary.
    done: list[object] = []
    streams = type(engine.device.stream())
    own_copy, own_launch = streams.copy_in, streams.launch

    def copy(self, device, host, num_bytes):
        done.append(host)
        own_copy(self, device, host, num_bytes)

    def launch(self, kernel, blocks, job):
        done.append(kernel)
        own_launch(self, kernel, blocks, job)

    monkeypatch.setattr(streams, "copy_in", copy)
    monkeypatch.setattr(streams, "launch", launch)
    engine.encode_shared(load("gpt2"), rows)
    assert done[:2] == [rows.text.address, "load_batch"]
    assert not [host for host in done[2:] if not isinstance(host, str)]


def test_options_that_need_the_host_are_not_covered_with_a_reason(engine, memory):
    gpt2, dnabert2 = load("gpt2"), load("dnabert2")
    refuse = EncodeOptions(special="refuse")
    for vocabulary, texts, changes, why in (
        (gpt2, ["a", b"\xff", "b"], {}, "refused"),
        (gpt2, ["a", "<|endoftext|>"], {"options": refuse}, "refused"),
        (gpt2, ["a"], {"options": EncodeOptions(spans=True)}, "spans and truncation"),
        (gpt2, ["a"], {"options": EncodeOptions(max_length=1)}, "spans and truncation"),
        (gpt2, ["a"], {"id_bytes": 1}, "ids of 1 bytes"),
        (dnabert2, ["ACGT"], {"id_bytes": 2}, "begin and end tokens"),
    ):
        with pytest.raises(NotCovered, match=why):
            engine.encode_shared(vocabulary, rows_of(memory, texts, **changes))
    with pytest.raises(ValueError, match="out is too small: 4 bytes"):
        engine.encode_shared(gpt2, rows_of(memory, ["some words"], out_bytes=4))
    for changes in ({"out_begin": -1}, {"out_bytes": 1 << 20}):
        with pytest.raises(IndexError):
            engine.encode_shared(gpt2, rows_of(memory, ["some words"], **changes))
    with pytest.raises(IndexError):
        SharedText(memory(10), 5, 6)


def test_memory_that_is_let_go_of_stays_until_its_users_are_done(engine):
    file = os.memfd_create("texts")
    os.ftruncate(file, 5000)
    memory = SharedHostMemory(engine.device, file, 0, 5000)
    os.close(file)
    whole = np.frombuffer((ctypes.c_char * 5000).from_address(memory.address), np.uint8)
    with memory.in_use():
        memory.close()
        memory.close()
        memory.read(0, np.empty(10, np.uint8))
        assert engine.device.is_pinned(whole)
        with pytest.raises(ValueError, match="is closed"), memory.in_use():
            pass
    if isinstance(engine.device, EmulatedDevice):
        assert memory.address not in engine.device.pinned


def test_a_file_that_was_cut_short_is_refused_and_ends_nobody(engine):
    file = os.memfd_create("texts")
    with pytest.raises(ValueError, match="length"):
        SharedHostMemory(engine.device, file, 0, 5000)
    os.ftruncate(file, 3 << 20)
    memory = SharedHostMemory(engine.device, file, 5000, (3 << 20) - 5000)
    os.ftruncate(file, 6000)
    memory.read(0, np.empty(1000, np.uint8))
    with pytest.raises(IndexError, match="ends at byte 1000"):
        memory.read(0, np.empty(1001, np.uint8))
    memory.close()
    os.close(file)


def test_nothing_stays_page_locked_where_no_more_files_may_be_opened(engine, monkeypatch):
    file = os.memfd_create("texts")
    os.ftruncate(file, 5000)
    before = engine.device.page_locked_bytes
    with monkeypatch.context() as patch:
        patch.setattr(os, "dup", Mock(side_effect=OSError(errno.EMFILE, "Too many open files")))
        with pytest.raises(OSError, match="Too many open files"):
            SharedHostMemory(engine.device, file, 0, 5000)
    assert engine.device.page_locked_bytes == before
    os.close(file)
