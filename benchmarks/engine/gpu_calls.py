"""Makes all calls of the GPU engine for the benchmarks, so that its changes concern one file.

Each way has a function that runs a call and one that returns the ids of the last run, so that the
proved ids are those of a timed call. This module depends on neither corpora nor results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.support.gpu_clock import Clock
from benchmarks.support.texts import Bytes, Int64s
from benchmarks.support.timing import Run, clocked
from gpu.batch.kernel_choice import first_kernels
from gpu.batch.transfer import fetch, launch, pack_rows, status_of
from gpu.engine import GpuEngine
from gpu.kernels.job import STATUS
from gpu.memory.workspace import Workspace
from gpu.runtime.device import Device
from gpu.streaming import encode_stream
from vocabularies.batch.batch import Batch
from vocabularies.batch.shared_rows import SharedRows, SharedText
from vocabularies.model.vocabulary import Vocabulary

Ids = NDArray[np.int32]
MOST_UINT16 = 1 << 16


@dataclass(frozen=True, slots=True)
class _DeviceIds:
    """An array int32[size] on the device, with the interface of other libraries' arrays."""

    address: int
    size: int

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """See Numba's documentation of it."""
        data = (self.address, False)
        return {"shape": (self.size,), "typestr": "<i4", "data": data, "version": 3}


class _DeviceMemory:
    """Device memory with the interface of `SharedMemory`, as if another process had it."""

    on_device = True

    def __init__(self, device: Device, num_bytes: int) -> None:
        self.device = device
        self.num_bytes = num_bytes
        self.address = device.allocate(num_bytes)

    def in_use(self) -> AbstractContextManager[None]:
        """Keep the memory open: it is never closed."""
        return nullcontext()

    def read(self, offset: int, out: Bytes) -> None:
        """Copy the bytes from `offset` on to host memory."""
        stream = self.device.stream()
        stream.copy_out(out.ctypes.data, self.address + offset, len(out))
        stream.synchronize()

    def write(self, data: Bytes) -> None:
        """Copy host memory to the front."""
        stream = self.device.stream()
        stream.copy_in(self.address, data.ctypes.data, len(data))
        stream.synchronize()

    def close(self) -> None:
        """Release the memory."""
        self.device.free(self.address)


@dataclass(frozen=True, slots=True)
class Way:
    """A call of the engine: `run` does it, `ids` returns the ids of the last run."""

    run: Callable[[], object]
    ids: Callable[[], Ids]


@dataclass(frozen=True, slots=True)
class Kernels:
    """A batch whose text lies on the device, to be encoded again and again."""

    clock: Clock
    workspace: Workspace
    names: tuple[str, ...]
    processors: int

    def run(self) -> float:
        """Encode once; return the seconds from text on the device to ids on the device."""
        stream, job = self.workspace.stream, self.workspace.job[0]
        begin = self.clock.mark(stream)
        stream.clear(self.workspace.fields["status"], 8 * int(job["num_cleared"]))
        launch(self.workspace, self.names, self.processors)
        end = self.clock.mark(stream)
        stream.synchronize()
        return self.clock.seconds(begin, end)

    def ids(self) -> Ids:
        """Return the ids of the last run."""
        num_ids = int(status_of(self.workspace)[STATUS["NUM_IDS"]])
        return fetch(self.workspace, "ids", np.int32, num_ids)


class GpuWays:
    """The engine on one device."""

    def __init__(self, device: Device, workspace_bytes: int) -> None:
        self.device = device
        self.engine = GpuEngine(device, workspace_bytes)
        self.clock = Clock(device)

    def encode(self, vocabulary: Vocabulary, data: Bytes, offsets: Int64s) -> tuple[Ids, Int64s]:
        """Encode bytes in ordinary memory by the public call for bulk."""
        return self.engine.encode_ids(vocabulary, data, offsets)

    def pinned(self, data: Bytes) -> Bytes:
        """Copy data to pinned memory."""
        memory = self.device.allocate_pinned(len(data))
        memory[:] = data
        return memory

    @contextmanager
    def kernels(self, vocabulary: Vocabulary, data: Bytes, offsets: Int64s) -> Iterator[Kernels]:
        """Copy a batch to the device, with a separate workspace."""
        engine = self.engine
        with engine.resources.residents.using(vocabulary) as resident:
            size = len(data), len(offsets) - 1
            with engine.resources.workspaces.lend(*size, resident.family.layout) as workspace:
                pack_rows(workspace, resident, data, offsets, engine.resources.processors)
                workspace.stream.synchronize()
                names = first_kernels(workspace, resident)
                yield Kernels(self.clock, workspace, names, engine.resources.processors)

    def stream(
        self, vocabulary: Vocabulary, data: Bytes, offsets: Int64s, out: NDArray[Any]
    ) -> NDArray[Any]:
        """Encode into the front of `out`; without a copy where data and out are pinned."""
        ends = encode_stream(self.engine, vocabulary, data, offsets, out)
        return out[: int(ends[-1])]

    def narrow(
        self, vocabulary: Vocabulary, data: Bytes, offsets: Int64s, out: Bytes
    ) -> NDArray[Any]:
        """Encode to uint16 ids if the vocabulary's ids fit, else to int32."""
        dtype = np.uint16 if len(vocabulary) <= MOST_UINT16 else np.int32
        return self.stream(vocabulary, data, offsets, out.view(dtype))

    def to_pinned(
        self, vocabulary: Vocabulary, data: Bytes, offsets: Int64s, out: Bytes
    ) -> dict[str, Way]:
        """Encode pinned text to pinned `out`, int32 and uint16 where they fit."""
        last: dict[str, Any] = {}

        def stream() -> None:
            last["ids"] = self.stream(vocabulary, data, offsets, out.view(np.int32))

        def narrow() -> None:
            last["narrow"] = self.narrow(vocabulary, data, offsets, out)

        ways = {"int32": Way(stream, lambda: last["ids"])}
        if len(vocabulary) <= MOST_UINT16:
            ways["uint16"] = Way(narrow, lambda: last["narrow"])
        return ways

    @contextmanager
    def to_device(self, vocabulary: Vocabulary, data: Bytes, offsets: Int64s) -> Iterator[Way]:
        """Encode pinned text to int32 ids in one array on the device."""
        batch = Batch(data=data, offsets=offsets)
        with self.batch_to_device(vocabulary, lambda: batch, len(data)) as way:
            yield way

    @contextmanager
    def batch_to_device(
        self, vocabulary: Vocabulary, make: Callable[[], Batch], num_bytes: int
    ) -> Iterator[Way]:
        """Encode a batch of a size to the device; each call makes a new batch."""
        d_ids, num_ids = _DeviceIds(self.device.allocate(4 * num_bytes), num_bytes), 0

        def run() -> None:
            nonlocal num_ids
            batch = make()
            self.engine.join(batch)
            ends = encode_stream(self.engine, vocabulary, batch.data, batch.offsets, d_ids)
            num_ids = int(ends[-1])

        def ids() -> Ids:
            array, stream = np.empty(num_ids, np.int32), self.device.stream()
            stream.copy_out(array.ctypes.data, d_ids.address, array.nbytes)
            stream.synchronize()
            return array

        try:
            yield Way(run, ids)
        finally:
            self.device.free(d_ids.address)

    @contextmanager
    def from_device(self, vocabulary: Vocabulary, data: Bytes, offsets: Int64s) -> Iterator[Way]:
        """Encode text on the device to int32 ids in one array there."""
        text, out = (_DeviceMemory(self.device, size) for size in (len(data), 4 * len(data)))
        text.write(data)
        rows = SharedRows(SharedText(text, 0, len(data)), offsets, out, 0, out.num_bytes)
        num_ids = 0

        def run() -> None:
            nonlocal num_ids
            num_ids = int(self.engine.encode_shared(vocabulary, rows)[-1])

        def ids() -> Ids:
            array = np.empty(4 * num_ids, np.uint8)
            out.read(0, array)
            return array.view(np.int32)

        try:
            yield Way(run, ids)
        finally:
            text.close()
            out.close()

    @contextmanager
    def copies(self, pinned: Bytes) -> Iterator[dict[str, Run]]:
        """Copy the same bytes to the device and back, and from memory to memory."""
        size, stream = len(pinned), self.device.stream()
        d_copy = self.device.allocate(size)
        back, plain = self.device.allocate_pinned(size), np.empty(size, np.uint8)

        def waited(copy: Callable[[], object]) -> Run:
            def run() -> None:
                copy()
                stream.synchronize()

            return clocked(run)

        try:
            yield {
                "host_to_device": waited(lambda: stream.copy_in(d_copy, pinned.ctypes.data, size)),
                "device_to_host": waited(lambda: stream.copy_out(back.ctypes.data, d_copy, size)),
                "memcpy": clocked(lambda: np.copyto(plain, pinned)),
            }
        finally:
            self.device.free(d_copy)
            self.device.free_pinned(back)
