"""Represents a GPU in a worker process: each method of a GpuEngine calls the worker.

Counts and memory sizes are those of the last `refresh`, so that reading them never waits for a
hanging device.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from gpu.engine import Joining
from gpu.errors import DeviceLost, OutOfMemory
from gpu.runtime.stage_timer import StageTimes
from service.multiprocess.gpu_workers.messages import read_errors
from service.multiprocess.gpu_workers.regions import DeviceRegion, HostRegion
from service.multiprocess.gpu_workers.worker_memory import WorkerMemory
from service.multiprocess.gpu_workers.worker_process import WorkerProcess
from service.multiprocess.link.batch_messages import (
    get_values,
    make_decode_message,
    make_texts_message,
    read_encoded,
)
from service.multiprocess.link.frames import Message
from vocabularies.batch.batch import Batch, Encoded, RowError
from vocabularies.batch.shared_rows import SharedMemory, SharedRows
from vocabularies.model import canonical
from vocabularies.model.vocabulary import Vocabulary

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]


class ReportedStageTimes(StageTimes):
    """The times of stages that a worker has measured and reported."""

    def __init__(self) -> None:
        super().__init__()
        self._reported: deque[tuple[str, float]] = deque(maxlen=4096)

    def extend(self, times: list[tuple[str, float]]) -> None:
        """Store measured times."""
        self._reported.extend(times)

    def take(self) -> list[tuple[str, float]]:
        """Return the stages and seconds reported since the last call."""
        return [self._reported.popleft() for _ in range(len(self._reported))]


class RemoteGpu:
    """A `service.engines.hybrid.gpu_selftest.Gpu` whose device belongs to a worker process.

    Args:
        start: starts a worker; called by the constructor and by `restart`.
        memory: the memory of all workers.

    Attributes:
        stage_times: the times of the stages of sampled batches.
        description: the device, as `EngineStatus.devices` describes it; empty until it is open.
    """

    def __init__(self, start: Callable[[], WorkerProcess], memory: WorkerMemory) -> None:
        self._start = start
        self._memory = memory
        self.stage_times = ReportedStageTimes()
        self.description: dict[str, str | int] = {}
        self._sizes: dict[str, int] = {}
        self._page_locked_bytes = 0
        self._is_closed = False
        self._process = start()

    @property
    def device(self) -> object:
        """The owner of the device memory that this GPU opens."""
        return self

    # The process.

    @property
    def process_id(self) -> int:
        """The id of the worker."""
        return self._process.process_id

    @property
    def is_alive(self) -> bool:
        """Return whether the worker can be called."""
        return self._process.is_alive

    def open(self) -> None:
        """Wait until the worker has opened the device.

        Raises:
            Exception: the device cannot be used.
        """
        self.description = self._process.wait_until_open()
        self.open_regions()
        self.refresh()

    def restart(self) -> None:
        """Start a worker that replaces an ended one; it has no vocabularies yet.

        Raises:
            Exception: the device cannot be used.
        """
        self._process.close()
        self._check_is_used()
        if not self._process.has_ended:  # Its device may still write to the memory that it has.
            raise DeviceLost("its process was killed and does not end")
        self._process = self._start()
        try:
            self._check_is_used()
            self.open()
        except BaseException:
            self._process.close()
            raise

    def _check_is_used(self) -> None:
        if self._is_closed:
            raise DeviceLost("the service is being stopped")

    def kill(self) -> None:
        """Kill the worker; calls that wait for it get a DeviceLost error."""
        self._process.kill()

    def refresh(self) -> None:
        """Read the worker's counts and memory sizes; the call also sends pending changes."""
        values = self._process.call(Message("refresh")).values
        self._sizes = values["memory"]
        self._page_locked_bytes = values["page_locked"]
        self.stage_times.extend([(stage, seconds) for stage, seconds in values["stages"]])

    def close(self) -> None:
        """Close the device, and end the worker."""
        self._is_closed = True
        self._process.close()

    # Vocabularies.

    def load(self, vocabulary: Vocabulary, permanent: bool = False) -> int:
        """Upload a vocabulary, and return its bytes; raises NotCovered or OutOfMemory."""
        message = Message("load", {"digest": vocabulary.digest, "permanent": permanent})
        if vocabulary.digest not in self._process.residents:
            message.arrays.append(np.frombuffer(canonical.to_bytes(vocabulary), np.uint8))
        num_bytes: int = self._process.call(message).values["num_bytes"]
        return num_bytes

    def unload(self, digest: str) -> None:
        """Unload a vocabulary; calls that are using it still finish."""
        self._process.call(Message("unload", {"digest": digest}))

    def is_resident(self, digest: str) -> bool:
        """Return whether a vocabulary is on the device now, or was when its worker ended.

        This needs no call, because each answer of the worker reports changes.
        """
        return digest in self._process.residents

    # Batches.

    def encode(self, vocabulary: Vocabulary, batch: Batch) -> Encoded:
        """Encode each row."""
        return read_encoded(self._call_on_texts("encode", vocabulary, batch))

    def count(self, vocabulary: Vocabulary, batch: Batch) -> tuple[Int64s, dict[int, RowError]]:
        """Count the ids of each row; return the counts and the errors of refused rows."""
        answer = self._call_on_texts("count", vocabulary, batch)
        return answer.arrays[0], read_errors(answer.values)

    def _call_on_texts(self, operation: str, vocabulary: Vocabulary, batch: Batch) -> Message:
        """Copy the texts to memory that the worker reads, joined, and run a call on them."""
        memory = self._memory
        with Joining(batch, memory.host_memory, memory.copies):
            pass
        joined = Batch(
            data=batch.data, offsets=batch.offsets, options=batch.options, id_dtype=batch.id_dtype
        )
        message = make_texts_message(operation, vocabulary.digest, joined)
        message.kind = operation
        return self._process.call(message)

    def begin_encode(
        self, vocabulary: Vocabulary, batch: Batch, done: Callable[[Encoded | Exception], None]
    ) -> bool:
        """Begin to encode a batch on the running event loop, which calls `done` later.

        Args:
            vocabulary: the vocabulary.
            batch: joined bytes.
            done: receives the ids, or the error of the call.

        Returns:
            Whether the call has begun: not if the texts would have to be copied before.
        """
        message = make_texts_message("encode", vocabulary.digest, batch)
        message.kind = "encode"
        found = [self._memory.find(array) for array in message.arrays]
        placed = [each for each in found if each is not None]

        def finish(answer: Message | Exception) -> None:
            try:
                result = answer if isinstance(answer, Exception) else read_encoded(answer)
            except Exception as error:
                result = error
            done(result)

        return len(placed) == len(found) and self._process.begin(message, placed, finish)

    def decode(
        self, vocabulary: Vocabulary, ids: Int64s, offsets: Int64s, skip_special_tokens: bool
    ) -> tuple[Bytes, Int64s, dict[int, RowError]]:
        """Decode each row; return bytes, offsets, and the errors of refused rows."""
        message = make_decode_message(vocabulary.digest, ids, offsets, skip_special_tokens)
        answer = self._process.call(Message("decode", message.values, message.arrays))
        data, data_offsets = answer.arrays
        return data, data_offsets, read_errors(answer.values)

    # Memory.

    def host_memory(self, num_bytes: int) -> Bytes | None:
        """Allocate memory for texts that all workers page-lock; None if none is free."""
        return self._memory.host_memory(num_bytes)

    def open_shared(self, handle: bytes, num_bytes: int) -> DeviceRegion:
        """Open device memory of another process; raises BadHandle."""
        region = DeviceRegion(self, self._memory, handle, num_bytes)
        self._process.open_region(region)
        return region

    def open_regions(self) -> None:
        """Let the worker page-lock the regions of host memory, which may take seconds.

        A region that fails is tried again when a batch needs it.
        """
        for region in self._memory.list_regions():
            assert isinstance(region, HostRegion)
            with suppress(ValueError, OutOfMemory), region.in_use():
                self._process.open_region(region)

    def share_host(self, file: int, offset: int, num_bytes: int) -> HostRegion:
        """Let the worker page-lock a part of a memory file.

        Raises:
            ValueError: the file is shorter.
            OutOfMemory: the worker cannot page-lock it.
        """
        region = HostRegion(self._memory, file, offset, num_bytes)
        try:
            self._process.open_region(region)
        except BaseException:
            region.close()
            raise
        return region

    def encode_shared(self, vocabulary: Vocabulary, rows: SharedRows) -> Int64s:
        """Encode texts in shared memory, and return the offsets of the ids."""
        text = rows.text
        values = {
            "digest": vocabulary.digest,
            "text": [_number(text.memory), text.begin, text.size],
            "out": [_number(rows.out), rows.out_begin, rows.out_bytes],
            "id_bytes": rows.id_bytes,
            "options": get_values(rows.options),
        }
        with text.memory.in_use(), rows.out.in_use():
            process = self._process
            for memory in (text.memory, rows.out):
                assert isinstance(memory, HostRegion | DeviceRegion)
                process.open_region(memory)
            answer = process.call(Message("encode_shared", values, [rows.offsets]))
        return answer.arrays[0]

    def read_region(self, region: DeviceRegion, offset: int, out: Bytes) -> None:
        """Copy bytes of device memory from `offset` on to `out`, until it is full."""
        values = {"region": region.number, "offset": offset, "num_bytes": len(out)}
        out[:] = self._call_on_region(region, Message("read", values)).arrays[0]

    def write_region(self, region: DeviceRegion, offset: int, data: Bytes) -> None:
        """Copy bytes to device memory, and wait for the copy."""
        message = Message("write", {"region": region.number, "offset": offset}, [data])
        self._call_on_region(region, message)

    def _call_on_region(self, region: DeviceRegion, message: Message) -> Message:
        process = self._process
        with region.in_use():
            process.open_region(region)
            return process.call(message)

    def memory(self) -> dict[str, int]:
        """Return the bytes of the device by purpose."""
        return dict(self._sizes)

    @property
    def page_locked_bytes(self) -> int:
        """The bytes of host memory that are page-locked for the device."""
        return self._page_locked_bytes


def _number(memory: SharedMemory) -> int:
    assert isinstance(memory, HostRegion | DeviceRegion)
    return memory.number
