"""What the benchmark asks of the GPU engine, in one place: a change of the engine ends here.

Each way is a function that does the work once and one that gives the ids of the last time, so that
what is timed is what is proved. Knows no corpus and no result.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.gpu_clock import Clock
from benchmarks.texts import Bytes, Int64s
from gpu.device import Device
from gpu.engine import GpuEngine
from gpu.families import encode_kernels
from gpu.flights import Flight, start
from gpu.kernels import num_blocks
from gpu.launches import ROW_BYTES, STATUS, fetch, launch, pack_rows, status_of
from gpu.memory import Workspace
from gpu.pipeline import PackedIds, chunks_of, encode_packed, encode_stream
from vocabularies.vocabulary import Vocabulary

__all__ = ["GpuRuns", "Kernels", "Way"]

Ids = NDArray[np.int32]
IN_FLIGHT = 4


@dataclass(frozen=True, slots=True)
class Way:
    """One way through the engine: `run` does the work, `ids` gives what it gave."""

    run: Callable[[], object]
    ids: Callable[[], Ids]


@dataclass(frozen=True, slots=True)
class Kernels:
    """A batch whose text lies on the device, to be encoded again and again."""

    clock: Clock
    workspace: Workspace
    names: tuple[str, ...]
    processors: int

    def _clear(self) -> None:
        job, fields = self.workspace.job[0], self.workspace.fields
        self.workspace.stream.clear(fields["status"], 8 * int(job["num_cleared"]))

    def run(self) -> float:
        """Seconds from text on the device to ids on the device."""
        stream = self.workspace.stream
        begin = self.clock.mark(stream)
        self._clear()
        launch(self.workspace, self.names, self.processors)
        end = self.clock.mark(stream)
        stream.synchronize()
        return self.clock.seconds(begin, end)

    def stages(self) -> dict[str, float]:
        """Seconds of each kernel, launched one by one."""
        stream, job = self.workspace.stream, self.workspace.job[0]
        size = max(int(job["num_bytes"]), ROW_BYTES * int(job["num_rows"]))
        self._clear()
        marks = [self.clock.mark(stream)]
        for name in self.names:
            blocks = num_blocks(name, size, self.processors)
            stream.launch(name, blocks, self.workspace.device_job)
            marks.append(self.clock.mark(stream))
        stream.synchronize()
        seconds = [self.clock.seconds(begin, end) for begin, end in itertools.pairwise(marks)]
        return dict(zip(self.names, seconds, strict=True))

    def ids(self) -> Ids:
        """The ids of the last run."""
        num_ids = int(status_of(self.workspace)[STATUS["NUM_IDS"]])
        return fetch(self.workspace, "ids", np.int32, num_ids)


class GpuRuns:
    """The engine on one device."""

    def __init__(self, device: Device, workspace_bytes: int, chunk_bytes: int) -> None:
        self.device, self.chunk_bytes = device, chunk_bytes
        self.engine = GpuEngine(device, workspace_bytes)
        self.clock = Clock(device)

    def encode(self, vocabulary: Vocabulary, data: Bytes, offsets: Int64s) -> tuple[Ids, Int64s]:
        """The public call for bulk: bytes and ids in ordinary memory."""
        return self.engine.encode_ids(vocabulary, data, offsets)

    def pinned(self, data: Bytes) -> Bytes:
        """A copy in pinned memory."""
        memory = self.device.allocate_pinned(len(data))
        memory[:] = data
        return memory

    @contextmanager
    def kernels(self, vocabulary: Vocabulary, data: Bytes, offsets: Int64s) -> Iterator[Kernels]:
        """A batch on the device; a workspace is its own meanwhile."""
        engine = self.engine
        with (
            engine.residents.using(vocabulary) as resident,
            engine.workspaces.lend(len(data), len(offsets) - 1) as workspace,
        ):
            pack_rows(workspace, resident, data, offsets, engine.processors, staged=False)
            workspace.stream.synchronize()
            names = encode_kernels(resident.family, num_rounds=resident.num_rounds)
            yield Kernels(self.clock, workspace, names, engine.processors)

    def host_ways(
        self, vocabulary: Vocabulary, data: Bytes, offsets: Int64s, out: Bytes
    ) -> dict[str, Way]:
        """From pinned text to ids in pinned `out`, int32 and in as few bits as they need."""
        settings = {"chunk_bytes": self.chunk_bytes, "in_flight": IN_FLIGHT}
        last: dict[str, Ids | NDArray[np.uint16]] = {}
        last_packed: list[PackedIds] = []

        def stream(dtype: type[np.int32] | type[np.uint16]) -> None:
            ids: Any = out.view(dtype)
            ends = encode_stream(self.engine, vocabulary, data, offsets, ids, **settings)
            last["ids"] = ids[: int(ends[-1])]

        def packed() -> None:
            words = out.view(np.uint32)
            last_packed[:] = [
                encode_packed(self.engine, vocabulary, data, offsets, words, **settings)
            ]

        def ids() -> Ids:
            return np.array(last["ids"], np.int32)

        ways = {"int32": Way(lambda: stream(np.int32), ids)}
        if len(vocabulary) <= 1 << 16:
            return ways | {"uint16": Way(lambda: stream(np.uint16), ids)}
        bits = (len(vocabulary) - 1).bit_length()
        return ways | {f"packed_{bits}": Way(packed, lambda: unpacked(last_packed[0]))}

    @contextmanager
    def device_way(self, vocabulary: Vocabulary, data: Bytes, offsets: Int64s) -> Iterator[Way]:
        """From pinned text to all its ids, int32, in one array on the device."""
        d_ids = self.device.allocate(4 * len(data))
        num_ids = 0

        def run() -> None:
            nonlocal num_ids
            num_ids = self._to_device(vocabulary, data, offsets, d_ids)

        def ids() -> Ids:
            array, stream = np.empty(num_ids, np.int32), self.device.stream()
            stream.copy_out(array.ctypes.data, d_ids, array.nbytes)
            stream.synchronize()
            return array

        try:
            yield Way(run, ids)
        finally:
            self.device.free(d_ids)

    def _to_device(self, vocabulary: Vocabulary, data: Bytes, offsets: Int64s, d_ids: int) -> int:
        """Chunks in flight as in gpu.pipeline, but the ids stay; returns how many there are."""
        engine, num_ids = self.engine, 0
        waiting: deque[tuple[Flight, Workspace]] = deque()

        def keep() -> None:
            nonlocal num_ids
            flight, workspace = waiting.popleft()
            place, num_bytes = d_ids + 4 * num_ids, flight.num_bytes()
            self.clock.copy_on_device(workspace.stream, place, workspace.fields["ids"], num_bytes)
            num_ids += flight.num_ids()
            flight.finish()

        with engine.residents.using(vocabulary) as resident:
            for chunk in chunks_of(data, offsets, vocabulary, self.chunk_bytes):
                if len(waiting) == IN_FLIGHT:
                    keep()
                part = data[chunk.begin : chunk.end]
                flight = start(engine.workspaces, resident, part, chunk.begins, engine.processors)
                assert flight is not None, "as many workspaces of a size as chunks in flight"
                waiting.append((flight, flight._workspace))
            while waiting:
                keep()
        return num_ids


def unpacked(packed: PackedIds) -> Ids:
    """int32[T]: all ids; `PackedIds.unpack` in less memory."""
    parts = [np.zeros(0, np.int32)]
    for word, count in packed.parts.tolist():
        bits = np.arange(count, dtype=np.int64) * packed.id_bits
        words = packed.words[word : word + count * packed.id_bits // 32 + 2].astype(np.uint64)
        pairs = words[:-1] | words[1:] << np.uint64(32)
        shifted = pairs[bits // 32] >> (bits % 32).astype(np.uint64)
        parts.append((shifted & np.uint64((1 << packed.id_bits) - 1)).astype(np.int32))
    return np.concatenate(parts)
