"""Starts, calls and ends the worker process of one GPU; several threads may call it.

    a call      takes an idle connection, or makes one ──► a thread of the worker computes it
    meanwhile   the worker may request memory for ids; the waiting thread, or the loop, answers

Messages to the worker also list the changes since the last message: blocks to page-lock, regions to
close, and loans whose arrays are no longer referenced. A worker that has ended is not reused.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gpu.errors import DeviceLost
from service.multiprocess.gpu_workers.connection import Connection, WatchedConnection
from service.multiprocess.gpu_workers.messages import ERROR, read_error
from service.multiprocess.gpu_workers.regions import DeviceRegion, HostRegion
from service.multiprocess.gpu_workers.worker_memory import WorkerMemory
from service.multiprocess.link.frames import Frame, Message, Place, PlacedArray
from service.multiprocess.link.shared_memory import Loan

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = logging.getLogger(__name__)
Bytes = NDArray[np.uint8]
Done = Callable[[Message | Exception], None]
"""Receives the answer to a call, or its error."""
AnyConnection = TypeVar("AnyConnection", bound=Connection)
CONNECT, CLOSE, TAKE, TAKEN = "connect", "close", "take", "taken"
KILL_S = 10.0  # The longest wait for the end of a process that is killed.
CLOSE_S = 30.0  # The longest wait for the end of a process that closes its device.


@dataclass(frozen=True, slots=True, eq=False)
class _PinChange:
    """A request to a worker to page-lock a block for texts, or to end its page lock.

    Attributes:
        offset, num_bytes: the place of the block in the memory of the parent.
        unpinned: the block whose page lock must end, kept until it has; None: page-lock the block.
    """

    offset: int
    num_bytes: int
    unpinned: Bytes | None = None


class WorkerProcess:
    """A running worker; it is thread-safe.

    Args:
        command: the program and its first arguments.
        arguments: the arguments of the program, as JSON.
        environment: the environment of the process.
        memory: the memory that the process maps.

    Attributes:
        residents: the digests of the vocabularies on the device.
    """

    def __init__(
        self,
        command: Sequence[str],
        arguments: Mapping[str, Any],
        environment: Mapping[str, str],
        memory: WorkerMemory,
    ) -> None:
        self.residents: frozenset[str] = frozenset()
        self._memory = memory
        self._lock = RLock()  # The finalizer of a region may run while it is held.
        self._calling_main = Lock()
        self._opening_region = Lock()
        self._connections: list[Connection] = []
        self._idle: list[Connection] = []
        self._idle_watched: list[WatchedConnection] = []
        self._begun: dict[WatchedConnection, Done] = {}
        self._changes: list[_PinChange] = []
        self._closed_regions: list[int] = []
        self._are_changes_sent = False
        self._open_regions: set[int] = set()
        self._residents_version = 0
        self._blocks: dict[int, Bytes] = {}  # Of this process's memory that the worker has.
        self._block_numbers = count(1)
        self._released: deque[int] = deque()
        self._is_lost = False
        ours, theirs = socket.socketpair()
        files = [theirs.fileno(), memory.file.number]
        with ExitStack() as if_it_does_not_start, theirs:
            if_it_does_not_start.push(ours)
            values = {**arguments, "socket": files[0], "memory": files[1]}
            self._process = subprocess.Popen(
                [*command, json.dumps(values)],
                pass_fds=files,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # It may be a pipe to the supervisor.
                env=environment,
                start_new_session=True,  # Ctrl-C reaches only the parent, which then closes it.
            )
            if_it_does_not_start.pop_all()
        self._main = Connection(ours)

    @property
    def process_id(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Return whether the worker can be called."""
        return not self._is_lost and self._process.poll() is None

    @property
    def has_ended(self) -> bool:
        """Return whether the process has ended, so that its device no longer writes to memory."""
        return self._process.poll() is not None

    def wait_until_open(self) -> dict[str, Any]:
        """Wait until the device is open, and return its description.

        Raises:
            DeviceLost: the process ended before the device was open.
            Exception: the device cannot be used.
        """
        try:
            frame, _ = self._main.receive()
        except (OSError, EOFError):
            raise self._lose() from None
        message = frame.message
        if message.kind == ERROR:
            self._lose()
            raise read_error(message.values)
        self._memory.add_worker(self)
        device: dict[str, Any] = message.values["device"]
        return device

    def pin(self, offset: int, num_bytes: int) -> None:
        """Let the worker page-lock a block before its next call."""
        with self._lock:
            self._changes.append(_PinChange(offset, num_bytes))

    def unpin(self, offset: int, block: Bytes) -> None:
        """Let the worker end the page lock of a block before its next call; keep it until then."""
        with self._lock:
            self._changes.append(_PinChange(offset, len(block), block))

    def close_region(self, number: int) -> None:
        """Let the worker close a region before its next call."""
        with self._lock:
            if number in self._open_regions:
                self._open_regions.discard(number)
                self._closed_regions.append(number)

    def open_region(self, region: HostRegion | DeviceRegion) -> None:
        """Let the worker open a region that it has not opened yet.

        Raises:
            Exception: the device cannot open the region, or the worker has ended.
        """
        if region.number in self._open_regions:
            return
        with self._opening_region:
            if region.number in self._open_regions:
                return
            values: dict[str, Any] = {"region": region.number, "num_bytes": region.num_bytes}
            if isinstance(region, HostRegion):
                values["offset"] = region.offset
                self.call(Message("open_host", values), files=[region.file])
            else:
                values["handle"] = region.handle.hex()
                self.call(Message("open_device", values))
            with self._lock:
                self._open_regions.add(region.number)

    def call(self, message: Message, *, files: Sequence[int] = ()) -> Message:
        """Call the worker and return its answer; the worker lends the arrays of the answer.

        Raises:
            DeviceLost: the worker ended before the answer.
            Exception: the error of the worker.
        """
        placed = [self._memory.place(array) for array in message.arrays]
        try:
            connection = self._take_connection()
            with self._sent_changes(message):
                self._send(connection, message, placed, files)
                answer = self._receive(connection)
        except (OSError, EOFError):
            raise self._lose() from None
        with self._lock:
            self._idle.append(connection)
        try:
            if isinstance(answer, Exception):
                raise answer
            return answer
        finally:
            del answer  # The error's traceback leads to this frame.

    def begin(self, message: Message, placed: Sequence[PlacedArray], done: Done) -> bool:
        """Call the worker on the running event loop, which calls `done` later.

        Args:
            message: the call.
            placed: its arrays, which the caller keeps until the answer.
            done: receives the answer or the error.

        Returns:
            Whether the call has begun; otherwise `done` is never called. It does not begin while
            changes of memory wait, which the next call of a thread brings to the worker.
        """
        if self._changes or self._closed_regions:
            return False
        try:
            connection = self._take_watched()
            self._send(connection, message, placed)
        except OSError:
            return False
        self._begun[connection] = done
        return True

    def _send(
        self,
        connection: Connection,
        message: Message,
        placed: Sequence[PlacedArray],
        files: Sequence[int] = (),
    ) -> None:
        with self._lock:  # Finalizers append at any moment.
            released = [self._released.popleft() for _ in range(len(self._released))]
        connection.send(message, placed, released=released, files=files)

    def _take_connection(self) -> Connection:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return self._connect(Connection)

    def _take_watched(self) -> WatchedConnection:
        loop = asyncio.get_running_loop()
        while self._idle_watched:
            connection = self._idle_watched.pop()
            if connection.loop is loop:
                return connection
            connection.close()
        return self._connect(partial(WatchedConnection, handle=self._handle))

    def _connect(self, make: Callable[[socket.socket], AnyConnection]) -> AnyConnection:
        """Make a connection to another thread of the worker."""
        ours, theirs = socket.socketpair()
        with theirs:
            with self._lock:
                if self._is_lost:
                    ours.close()
                    raise OSError("the worker has ended")
                connection = make(ours)
                self._connections.append(connection)
            with self._calling_main:
                self._main.send(Message(CONNECT), files=[theirs.fileno()])
        return connection

    def _handle(self, connection: WatchedConnection, frame: Frame | None) -> None:
        """Process a frame of a call that the loop has begun; None: the worker has ended."""
        if frame is not None and frame.message.kind == TAKE:
            with suppress(OSError):  # If it has ended, the loop reads this next.
                connection.send(self._lend_block(frame.message.values["num_bytes"]))
            return
        done = self._begun.pop(connection, None)
        if frame is None:
            self.kill()
            answer: Message | Exception = DeviceLost("its process has ended")
        else:
            self._idle_watched.append(connection)
            try:
                answer = self._read_answer(frame)
            except Exception as error:  # A fault of the worker; raised here, it would end no call.
                answer = error
        if done is not None:
            done(answer)

    @contextmanager
    def _sent_changes(self, message: Message) -> Iterator[None]:
        """Add the changes since the last message to a message; its answer confirms them.

        Only one message at a time has changes, so that they are applied in order.
        """
        with self._lock:
            changes: list[_PinChange] = []
            closed: list[int] = []
            if not self._are_changes_sent:
                changes, self._changes = self._changes, []
                closed, self._closed_regions = self._closed_regions, []
            has_changes = bool(changes or closed)
            self._are_changes_sent = self._are_changes_sent or has_changes
        if not has_changes:
            yield
            return
        message.values["pinned"] = [
            [each.offset, each.num_bytes, each.unpinned is None] for each in changes
        ]
        message.values["closed"] = closed
        try:
            yield
        finally:
            with self._lock:
                self._are_changes_sent = False

    def _receive(self, connection: Connection) -> Message | Exception:
        """Wait for the answer to a call, and answer the worker's requests for memory meanwhile."""
        while True:
            frame, _ = connection.receive()
            if frame.message.kind != TAKE:
                return self._read_answer(frame)
            connection.send(self._lend_block(frame.message.values["num_bytes"]))

    def _read_answer(self, frame: Frame) -> Message | Exception:
        """Read the answer to a call, or its error."""
        self._note(frame)
        if frame.message.kind == ERROR:
            return read_error(frame.message.values)
        loan = self._make_loan(frame.loan) if frame.loan else None
        frame.read_arrays(partial(self._borrow, loan))
        return frame.message

    def _lend_block(self, num_bytes: int) -> Message:
        """Lend a block of this process's memory to the worker, until it releases the block."""
        block = self._memory.file.take(num_bytes)
        offset = self._memory.file.find_offset(block)
        number = next(self._block_numbers)
        if offset is not None:
            self._blocks[number] = block
        return Message(TAKEN, {"block": number, "offset": offset})

    def _note(self, frame: Frame) -> None:
        """Update which vocabularies are on the device, and which blocks the worker has released."""
        values = frame.message.values
        for number in values.get("freed", ()):
            self._blocks.pop(number, None)
        if "residents" in values:
            with self._lock:
                if values["version"] > self._residents_version:
                    self._residents_version = values["version"]
                    self.residents = frozenset(values["residents"])

    def _make_loan(self, number: int) -> Loan:
        return Loan(partial(_release, self._released, number, self._blocks))

    def _borrow(
        self, loan: Loan | None, place: Place, dtype: str, shape: tuple[int, ...]
    ) -> NDArray[Any]:
        """Make an array in this process's memory that the worker has written."""
        assert loan is not None and not isinstance(place, int)
        _, offset = place
        return np.asarray(_Borrowed(self._memory.file.address + offset, dtype, shape, loan))

    def kill(self) -> None:
        """Kill the process; calls that wait for it get a DeviceLost error."""
        self._process.kill()
        self._shut()  # A process that a driver holds does not end, and keeps its ends open.

    def _shut(self) -> None:
        with self._lock:
            self._is_lost = True
            connections = [self._main, *self._connections]
        for connection in connections:
            connection.shut()

    def _lose(self) -> DeviceLost:
        """Kill the process, wait for its end, and return the error for its callers.

        Its memory may only be reused after that, when the device no longer writes to it.
        """
        self.kill()
        try:
            code = self._process.wait(KILL_S)
        except subprocess.TimeoutExpired:
            logger.error("process %d was killed and does not end", self._process.pid)
            return DeviceLost("its process does not end")
        self._memory.remove_worker(self)
        return DeviceLost(f"its process has ended {_describe(code)}")

    def close(self) -> None:
        """Close the device and end the process; kill it if that takes too long."""
        if self.is_alive:
            with suppress(OSError), self._calling_main:
                self._main.send(Message(CLOSE))
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(CLOSE_S)
        self._lose()
        self._main.close()
        for connection in self._connections:
            connection.close()


class _Borrowed:
    """The base of an array that a worker has lent; it keeps the loan."""

    __slots__ = ("__array_interface__", "_loan")

    def __init__(self, address: int, dtype: str, shape: tuple[int, ...], loan: Loan) -> None:
        is_read_only = False
        self.__array_interface__ = {
            "version": 3,
            "typestr": dtype,
            "shape": tuple(shape),
            "data": (address, is_read_only),
        }
        self._loan = loan


def _release(released: deque[int], number: int, blocks: dict[int, Bytes]) -> None:
    """Record a released loan; `blocks` keeps the memory of its arrays even if the worker ends."""
    released.append(number)


def _describe(code: int) -> str:
    """Describe how a process ended."""
    if code < 0:
        with suppress(ValueError):
            return f"by {signal.Signals(-code).name}"
    return f"with {code}"
