"""The pipeline: while one chunk is copied in, another is encoded and a third is copied out.

When a chunk is finished, a later chunk of the call may use its workspace. Copies out that are still
running come first in its stream, so the ids do not depend on the number of chunks in flight. The
caller decides what is done with the ids of a chunk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import Protocol, TypeVar

from gpu.batch.resources import Resources
from gpu.errors import OutOfMemory
from gpu.large.chunk_in_flight import ChunkInFlight, CopyStreams, Work
from gpu.large.chunking import CHUNK_BYTES, Chunk
from gpu.memory.workspace import Workspace
from gpu.memory.workspace_layout import SMALL_BYTES
from gpu.runtime.stage_timer import Clock

IN_FLIGHT = 4
NO_LOCK = nullcontext()
"""The lock of calls that may run beside other calls."""


class Answer(Protocol):
    """Collects chunks in order, as their kernels are done.

    Attributes:
        has_collected: whether any chunk has been collected.
    """

    has_collected: bool

    def collect(self, flight: ChunkInFlight) -> None:
        """Collect a chunk whose kernels are done: queue the copies of its ids."""


A = TypeVar("A", bound=Answer)


class Pipeline:
    """Encodes batches in chunks on one device; any number of calls at once.

    Attributes:
        resources: the device, memory and threads that all calls share.
        chunk_bytes: the largest size of a chunk, in bytes.
        in_flight: the largest number of chunks in flight of one call.
        device_lock: the lock of calls that run one after another, because kernels are their
            bottleneck.
        copy_streams: the streams that no call is using.
    """

    def __init__(self, resources: Resources) -> None:
        self.resources = resources
        self.chunk_bytes, self.in_flight = CHUNK_BYTES, IN_FLIGHT
        self.device_lock = Lock()
        self.copy_streams: list[CopyStreams] = []

    def answer(
        self,
        work: Work,
        chunks: Callable[[int], Iterable[Chunk]],
        new_answer: Callable[[], A],
        chunk_bytes: int | None = None,
        in_flight: int | None = None,
        lock: AbstractContextManager[object] = NO_LOCK,
    ) -> A:
        """Encode all chunks and return a new answer; chunks are smaller where memory is short.

        Args:
            work: the data and options of all chunks.
            chunks: divides the data into chunks of at most the given number of bytes.
            new_answer: makes an empty answer.
            chunk_bytes: the largest size of a chunk, in bytes; None: the pipeline's.
            in_flight: the largest number of chunks in flight; None: the pipeline's.
            lock: held until the last chunk is launched.

        Raises:
            OutOfMemory: the smallest chunks, or a row that is not split, do not fit into memory.
            DeviceFault: a kernel detected an inconsistency.
        """
        chunk_bytes, in_flight = chunk_bytes or self.chunk_bytes, in_flight or self.in_flight
        *larger, smallest = self.resources.workspaces.chunk_sizes(
            chunk_bytes, work.resident.family.layout
        )
        for size in larger:
            answer = new_answer()
            try:
                self.run(work, chunks(size), answer.collect, size, in_flight, lock)
                return answer
            except OutOfMemory:
                if answer.has_collected:
                    raise
        answer = new_answer()
        self.run(work, chunks(smallest), answer.collect, smallest, in_flight, lock)
        return answer

    def run(
        self,
        work: Work,
        chunks: Iterable[Chunk],
        collect: Callable[[ChunkInFlight], None],
        chunk_bytes: int,
        in_flight: int,
        lock: AbstractContextManager[object] = NO_LOCK,
    ) -> None:
        """Encode all chunks; call `collect` with each of them, in order, when its kernels are done.

        All copies are done when this returns.

        Raises:
            OutOfMemory: there is no workspace for a chunk, even with no other chunk in flight.
            DeviceFault: a kernel detected an inconsistency.
        """
        call = _Call(self, work, collect, in_flight, chunk_bytes)
        try:
            with lock:
                for chunk in chunks:
                    call.add(chunk)
                call.launch_all()
            while call.pending:
                call.finish_one()
        finally:
            call.close()

    def take_copy_streams(self) -> CopyStreams:
        """Return streams for the copies of a call, which returns them to `copy_streams`."""
        try:
            return self.copy_streams.pop()
        except IndexError:
            device = self.resources.device
            return CopyStreams(device.stream(), device.stream())


class _Call:
    """The chunks of one call that are in flight.

    Attributes:
        pending: the chunks that are not finished, the oldest first.
        finished: the workspaces of finished chunks, which the next chunks may use; copies out of
            them come first in their streams.
        clocks: the clocks of timed chunks that are finished.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        work: Work,
        collect: Callable[[ChunkInFlight], None],
        in_flight: int,
        chunk_bytes: int,
    ) -> None:
        self.pipeline, self.work, self.collect, self.in_flight = pipeline, work, collect, in_flight
        self.room = min(chunk_bytes, len(work.data))
        if self.room == SMALL_BYTES:  # Workspaces of that size are for small batches, with ids.
            self.room += 1
        self.pending: deque[ChunkInFlight] = deque()
        self.finished: list[Workspace] = []
        self.clocks: list[Clock] = []
        self.copy_streams = pipeline.take_copy_streams()

    def add(self, chunk: Chunk) -> None:
        """Start a chunk; finish older ones while there is no workspace for it."""
        workspace = self._workspace(chunk)
        while workspace is None:
            self.finish_one() if self.pending else self._give_back()
            workspace = self._workspace(chunk)
        workspace.clock = self.pipeline.resources.stage_times.clock(workspace.stream)
        try:
            staging = self.pipeline.resources.staging
            self.pending.append(self.work.flight(chunk, workspace, self.copy_streams, staging))
        except BaseException:
            self.finished.append(workspace)
            raise
        # The newest chunk is launched when the next one is added; until then it is being staged.
        num_staged = 0 if self.work.is_pinned else 1
        self.launch_all(num_staged)

    def _workspace(self, chunk: Chunk) -> Workspace | None:
        """Return a workspace for a chunk; None if the call must first free one of its own."""
        num_bytes, num_rows = chunk.end - chunk.begin, chunk.num_rows
        for i, workspace in enumerate(self.finished):
            capacity = workspace.capacity
            if num_bytes <= capacity.num_bytes and num_rows <= capacity.num_rows:
                return self.finished.pop(i)
        num_held = len(self.pending) + len(self.finished)
        workspaces, layout = self.pipeline.resources.workspaces, self.work.resident.family.layout
        if num_held >= self.in_flight:
            # Small last chunks may use more workspaces, so that their copies in need not wait.
            if self.finished or num_held >= 2 * self.in_flight or 2 * num_bytes > self.room:
                return None
        else:
            num_bytes = max(num_bytes, self.room)  # All are of one size class, for any chunk.
        if not num_held:
            return workspaces.take(num_bytes, num_rows, layout)
        try:
            return workspaces.try_take(num_bytes, num_rows, layout)
        except OutOfMemory:
            return None

    def launch_all(self, but_newest: int = 0) -> None:
        """Launch the pending chunks, except for the newest `but_newest`."""
        for flight in list(self.pending)[: len(self.pending) - but_newest]:
            flight.launch(self.pipeline.resources.processors)

    def finish_one(self) -> None:
        """Wait for the oldest pending chunk, and collect it."""
        flight, processors = self.pending[0], self.pipeline.resources.processors
        flight.launch(processors)
        flight.wait(processors)
        clock = flight.workspace.clock
        if clock is not None:
            clock.enter("copy_to_host")
        self.collect(flight)
        self.finished.append(self.pending.popleft().workspace)
        if clock is not None:
            clock.leave()
            self.clocks.append(clock)

    def _give_back(self) -> None:
        """Wait for the copies out of finished chunks, and give their workspaces back."""
        while self.finished:
            workspace = self.finished.pop(0)
            workspace.stream.synchronize()
            workspace.clock = None
            self.pipeline.resources.workspaces.give(workspace)

    def close(self) -> None:
        """Wait for all chunks and give everything back, also after an error."""
        for flight in self.pending:
            flight.abandon()
            self.finished.append(flight.workspace)
        if self.pending:  # After an error; a workspace's stream may not yet wait for its copies.
            self.copy_streams.inward.synchronize()
            self.copy_streams.outward.synchronize()
        self._give_back()
        self.pipeline.copy_streams.append(self.copy_streams)
        for clock in self.clocks:
            self.pipeline.resources.stage_times.add(clock)
