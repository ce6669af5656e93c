"""The pipeline: while one chunk is copied in, another is encoded and a third is copied out.

A workspace goes to a later chunk of the call when its chunk has landed: copies out that are still
under way come first in its stream, so that any number of chunks in flight gives the same ids. Knows
no answer: the caller says what is done with a chunk's ids.
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
"""For calls that go through the device side by side with others."""


class Answer(Protocol):
    """What chunks land on, in order.

    Attributes:
        has_landed: whether any has.
    """

    has_landed: bool

    def land(self, flight: ChunkInFlight) -> None:
        """Queue the copies out of a chunk whose kernels are done."""


A = TypeVar("A", bound=Answer)


class Pipeline:
    """Sends batches through one device in chunks; any number of calls at once.

    Attributes:
        resources: what all calls of the engine share.
        chunk_bytes, in_flight: bytes of a chunk, and chunks of a call in flight, at most.
        device_lock: held by calls for which the kernels are slowest: one goes after the other.
        copy_streams: those that no call uses.
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
        """A new answer on which all chunks have landed; smaller ones where memory is short.

        `chunks` gives them from their size. `lock` is held until the last one is on its way.

        Raises:
            OutOfMemory: there is no room for the smallest chunks, or for a row that is not cut.
            DeviceFault: a kernel found itself wrong.
        """
        chunk_bytes, in_flight = chunk_bytes or self.chunk_bytes, in_flight or self.in_flight
        *larger, smallest = self.resources.workspaces.chunk_sizes(
            chunk_bytes, work.resident.family.layout
        )
        for size in larger:
            answer = new_answer()
            try:
                self.run(work, chunks(size), answer.land, size, in_flight, lock)
                return answer
            except OutOfMemory:
                if answer.has_landed:
                    raise
        answer = new_answer()
        self.run(work, chunks(smallest), answer.land, smallest, in_flight, lock)
        return answer

    def run(
        self,
        work: Work,
        chunks: Iterable[Chunk],
        land: Callable[[ChunkInFlight], None],
        chunk_bytes: int,
        in_flight: int,
        lock: AbstractContextManager[object] = NO_LOCK,
    ) -> None:
        """Compute the ids of all chunks; `land` queues the copies out of each, in order.

        All copies are done when this returns.

        Raises:
            OutOfMemory: there is no workspace for a chunk, even with no other in flight.
            DeviceFault: a kernel found itself wrong.
        """
        call = _Call(self, work, land, in_flight, chunk_bytes)
        try:
            with lock:
                for chunk in chunks:
                    call.add(chunk)
                call.launch_all()
            while call.pending:
                call.land_one()
        finally:
            call.close()

    def take_copy_streams(self) -> CopyStreams:
        """Streams for the copies of a call; it puts them back into `copy_streams`."""
        try:
            return self.copy_streams.pop()
        except IndexError:
            device = self.resources.device
            return CopyStreams(device.stream(), device.stream())


class _Call:
    """The chunks of one call that are on their way.

    Attributes:
        pending: those that have not landed, the oldest first.
        landed: workspaces that the next chunk may use: what is still copied out of them comes first
            in their streams.
        clocks: of chunks that were timed and have landed.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        work: Work,
        land: Callable[[ChunkInFlight], None],
        in_flight: int,
        chunk_bytes: int,
    ) -> None:
        self.pipeline, self.work, self.land, self.in_flight = pipeline, work, land, in_flight
        self.room = min(chunk_bytes, len(work.data))
        if self.room == SMALL_BYTES:  # Workspaces of small batches stay theirs: they hold ids, too.
            self.room += 1
        self.pending: deque[ChunkInFlight] = deque()
        self.landed: list[Workspace] = []
        self.clocks: list[Clock] = []
        self.copy_streams = pipeline.take_copy_streams()

    def add(self, chunk: Chunk) -> None:
        """Take a chunk on its way; lands older ones where there is no workspace for it."""
        workspace = self._workspace(chunk)
        while workspace is None:
            self.land_one() if self.pending else self._give_back()
            workspace = self._workspace(chunk)
        workspace.clock = self.pipeline.resources.stage_times.clock(workspace.stream)
        try:
            staging = self.pipeline.resources.staging
            self.pending.append(self.work.flight(chunk, workspace, self.copy_streams, staging))
        except BaseException:
            self.landed.append(workspace)
            raise
        # The newest is launched when the next one comes: it is being staged meanwhile.
        num_staged = 0 if self.work.is_pinned else 1
        self.launch_all(num_staged)

    def _workspace(self, chunk: Chunk) -> Workspace | None:
        """One for a chunk; None where the call must land or give back one of its own first."""
        num_bytes, num_rows = chunk.end - chunk.begin, chunk.num_rows
        for i, workspace in enumerate(self.landed):
            capacity = workspace.capacity
            if num_bytes <= capacity.num_bytes and num_rows <= capacity.num_rows:
                return self.landed.pop(i)
        num_held = len(self.pending) + len(self.landed)
        workspaces, layout = self.pipeline.resources.workspaces, self.work.resident.family.layout
        if num_held >= self.in_flight:
            # The last chunks are small: their copies in need not wait for the kernels before them.
            if self.landed or num_held >= 2 * self.in_flight or 2 * num_bytes > self.room:
                return None
        else:
            num_bytes = max(num_bytes, self.room)  # All of one size, whichever chunk is next.
        if not num_held:
            return workspaces.take(num_bytes, num_rows, layout)
        try:
            return workspaces.try_take(num_bytes, num_rows, layout)
        except OutOfMemory:
            return None

    def launch_all(self, but_newest: int = 0) -> None:
        """Launch those that are not yet on their way to the device."""
        for flight in list(self.pending)[: len(self.pending) - but_newest]:
            flight.launch(self.pipeline.resources.processors)

    def land_one(self) -> None:
        """Land the oldest."""
        flight, processors = self.pending[0], self.pipeline.resources.processors
        flight.launch(processors)
        flight.wait(processors)
        clock = flight.workspace.clock
        if clock is not None:
            clock.enter("copy_to_host")
        self.land(flight)
        self.landed.append(self.pending.popleft().workspace)
        if clock is not None:
            clock.leave()
            self.clocks.append(clock)

    def _give_back(self) -> None:
        """Give back workspaces whose copies are done, the oldest first: it is done first."""
        while self.landed:
            workspace = self.landed.pop(0)
            workspace.stream.synchronize()
            workspace.clock = None
            self.pipeline.resources.workspaces.give(workspace)

    def close(self) -> None:
        """Wait for all there is and give everything back; also after a failure."""
        for flight in self.pending:
            flight.abandon()
            self.landed.append(flight.workspace)
        if self.pending:  # Something failed, maybe before its workspace's stream waits for a copy.
            self.copy_streams.inward.synchronize()
            self.copy_streams.outward.synchronize()
        self._give_back()
        self.pipeline.copy_streams.append(self.copy_streams)
        for clock in self.clocks:
            self.pipeline.resources.stage_times.add(clock)
