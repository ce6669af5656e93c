"""Sends and receives messages between a front end and the engine process, over a Unix socket.

Either end makes calls, which get one answer each, and notifications, which get none. Small arrays
are sent within the message (frames.py). Large arrays are in memory that the peer has mapped
(shared_memory.py), and only their offsets are sent. This module does not depend on HTTP, and does
not interpret messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import count
from typing import Any, cast

from numpy.typing import NDArray

from service.batching.work import Completion
from service.core.errors import (
    DeadlinePassed,
    Draining,
    EngineLost,
    NotReady,
    QueueFull,
    ServiceError,
)
from service.core.problem_details import as_service_error
from service.multiprocess.link.frames import SIZES, Frame, Message, PlacedArray, pack
from service.multiprocess.link.shared_memory import LinkMemory, Loan, PeerMemory

logger = logging.getLogger(__name__)
BUFFER_BYTES = 1 << 18  # The most bytes of small frames that are read at once.
ANSWER, REFUSAL, CANCEL = "answer", "refusal", "cancel"
MEMORY, RELEASE = "memory", "release"
MAX_RELEASE_DELAY_S = 0.01  # The longest time that released loans wait for the next message.
NO_CALL = NO_LOAN = 0

EXPECTED: dict[str, type[ServiceError]] = {
    kind.code: kind for kind in (QueueFull, Draining, NotReady, DeadlinePassed)
}
"""The errors whose class is restored at the peer; other errors become a ServiceError."""

Handle = Callable[["Link", Message, "Reply"], object]
"""Handles a message of the peer, and completes the reply immediately or later. The reply to a
notification is sent nowhere."""


class Link(asyncio.BufferedProtocol):
    """One end of a connection.

    Args:
        handle: handles the messages of the peer.
        on_lost: called once, when the connection has ended.
        memory: the memory of this process that the peer may read; None: messages contain all data.

    Attributes:
        handshake: a future that is done when the peer has answered that it mapped the memory.
            Before that the connection may still wait in the queue of a listening socket.
        peer_memory: the memory of the peer; None if it has none, or if mapping failed.
    """

    def __init__(
        self, handle: Handle, on_lost: Callable[[Link], None], memory: LinkMemory | None = None
    ) -> None:
        self._handle = handle
        self._on_lost = on_lost
        self._calls: dict[int, Completion[Message]] = {}
        self._replies: dict[int, Reply] = {}
        self._numbers = count(NO_CALL + 1)
        self._transport: asyncio.Transport | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._small = bytearray(BUFFER_BYTES)
        self._large: bytearray | None = None  # The frame that does not fit the small buffer.
        self._num_received = 0  # Bytes in the buffer that is being filled.
        self.memory = memory
        self._is_mapped = False
        self.handshake: asyncio.Future[Message] | None = None
        self.peer_memory: PeerMemory | None = None
        self._loans: dict[int, list[NDArray[Any]]] = {}  # Arrays that the peer reads.
        self._loan_numbers = count(NO_LOAN + 1)
        self._released: deque[int] = deque()  # Loans of the peer whose release is not sent yet.
        self._release_timer: asyncio.TimerHandle | None = None

    @property
    def is_up(self) -> bool:
        """Return whether the connection is up."""
        return self._transport is not None

    @property
    def num_replies(self) -> int:
        """The number of the peer's calls that are not answered yet."""
        return len(self._replies)

    def call(self, message: Message) -> asyncio.Future[Message]:
        """Call the peer; return a future for the answer. Cancelling it cancels the call.

        Raises (in the future):
            ServiceError: the peer refused.
            EngineLost: the connection ended before the answer.
        """
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        if self._transport is None:
            future.set_exception(EngineLost("the engine process is being restarted; try again"))
            return future
        number = self.start_call(message, future)
        future.add_done_callback(partial(self._cancel_if_cancelled, number))
        return future

    def _cancel_if_cancelled(self, number: int, done: asyncio.Future[Message]) -> None:
        if done.cancelled():
            self.cancel_call(number)

    def start_call(self, message: Message, completion: Completion[Message]) -> int:
        """Call the peer; `completion` receives the answer as soon as it arrives.

        Raises:
            EngineLost: the connection has ended.

        Returns:
            The number of the call, for `cancel_call`.
        """
        if self._transport is None:
            raise EngineLost("the engine process is being restarted; try again")
        number = next(self._numbers)
        self._calls[number] = completion
        self._send(number, message)
        return number

    def cancel_call(self, number: int) -> None:
        """Cancel a call; do nothing if it is already answered."""
        if self._calls.pop(number, None) is not None and self._transport is not None:
            self._send(number, Message(CANCEL))

    def notify(self, message: Message) -> None:
        """Send a message that gets no answer; do nothing if the connection has ended."""
        if self._transport is not None:
            self._send(NO_CALL, message)

    def close(self) -> None:
        """End the connection; unanswered calls get EngineLost."""
        if self._transport is not None:
            self._transport.close()

    def _send(self, number: int, message: Message) -> None:
        assert self._transport is not None
        placed, loan = self._lend(message.arrays)
        released = [self._released.popleft() for _ in range(len(self._released))]
        pieces = pack(message, placed, number, loan, released)
        if len(pieces) == 1:
            self._transport.write(pieces[0])
        else:
            self._transport.writelines(pieces)

    def _lend(self, arrays: list[NDArray[Any]]) -> tuple[list[PlacedArray], int]:
        """Place large arrays in shared memory; return all arrays, and their loan."""
        if not self._is_mapped:
            return [PlacedArray(array) for array in arrays], NO_LOAN
        assert self.memory is not None
        placed = [self.memory.place(array) for array in arrays]
        lent = [each.array for each in placed if each.place is not None]
        if not lent:
            return placed, NO_LOAN
        loan = next(self._loan_numbers)
        self._loans[loan] = lent
        return placed, loan

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the path of this process's memory to the peer."""
        self._transport = cast(asyncio.Transport, transport)
        if self.memory is not None:
            self.handshake = self.call(Message(MEMORY, {"path": self.memory.path}))
            self.handshake.add_done_callback(self._note_mapped)

    def _note_mapped(self, done: asyncio.Future[Message]) -> None:
        if done.cancelled() or isinstance(done.exception(), EngineLost):
            return
        self._is_mapped = done.result().values["is_mapped"]

    def _map(self, path: str) -> Message:
        """Map the memory of the peer, and answer whether it is mapped."""
        self._loop, self._loop_thread = asyncio.get_running_loop(), threading.get_ident()
        try:
            self.peer_memory = PeerMemory(path)
        except OSError as error:
            logger.warning("large arrays are sent over the socket; no memory is shared: %s", error)
        return Message(ANSWER, {"is_mapped": self.peer_memory is not None})

    def _make_loan(self, number: int) -> Loan:
        """Make the loan to which borrowed arrays refer; it is released when none refers to it."""
        return Loan(partial(self._release, number))

    def _release(self, number: int) -> None:
        """Release a loan, on any thread."""
        self._released.append(number)
        if self._release_timer is not None:
            return
        assert self._loop is not None  # It received the loan.
        with contextlib.suppress(RuntimeError):  # The loop has ended, and so has the link.
            if threading.get_ident() == self._loop_thread:
                self._plan_release()
            else:
                self._loop.call_soon_threadsafe(self._plan_release)

    def _plan_release(self) -> None:
        if self._release_timer is None and self._transport is not None:
            loop = asyncio.get_running_loop()
            self._release_timer = loop.call_later(MAX_RELEASE_DELAY_S, self._send_release)

    def _send_release(self) -> None:
        self._release_timer = None
        if self._released:
            self.notify(Message(RELEASE))

    def connection_lost(self, error: Exception | None) -> None:
        """Fail all calls, cancel all replies, and call `on_lost`."""
        self._transport = None
        self.peer_memory = None  # Its file stays mapped while an array refers to it.
        self._loans.clear()
        calls, self._calls = self._calls, {}
        for completion in calls.values():
            if not completion.done():
                completion.set_exception(EngineLost("the engine process ended before the answer"))
        for reply in list(self._replies.values()):
            reply.cancel()
        self._on_lost(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        return memoryview(self._small if self._large is None else self._large)[self._num_received :]

    def buffer_updated(self, num_bytes: int) -> None:
        """Receive every frame that is complete."""
        self._num_received += num_bytes
        if self._large is not None:
            if self._num_received == len(self._large):
                frame, self._large, self._num_received = self._large, None, 0
                self._receive(frame)
            return
        begin = 0
        while self._num_received - begin >= SIZES.size:
            size = SIZES.size + sum(SIZES.unpack_from(self._small, begin))
            if begin + size > self._num_received:
                if size > BUFFER_BYTES:
                    self._large = bytearray(size)
                break
            self._receive(self._small[begin : begin + size])
            begin += size
        rest = self._small[begin : self._num_received]
        self._num_received = len(rest)
        (self._small if self._large is None else self._large)[: len(rest)] = rest

    def _receive(self, content: bytearray) -> None:
        """Process a complete frame; arrays within it are views of the frame."""
        frame = Frame.of(content)
        for each in frame.released:
            self._loans.pop(each, None)
        loan = self._make_loan(frame.loan) if frame.loan else None
        frame.read_arrays(partial(self._borrow, loan))
        number, message = frame.number, frame.message
        if message.kind in (ANSWER, REFUSAL):
            self._complete_call(number, message)
            return
        if message.kind == CANCEL:
            if number in self._replies:
                self._replies[number].cancel()
            return
        if message.kind == RELEASE:
            return
        reply = Reply(self, number)
        if number != NO_CALL:
            self._replies[number] = reply
        if message.kind == MEMORY:
            reply.set_result(self._map(message.values["path"]))
        else:
            self._handle(self, message, reply)

    def _borrow(
        self, loan: Loan | None, offset: int, dtype: str, shape: tuple[int, ...]
    ) -> NDArray[Any]:
        """Make an array in the peer's memory."""
        assert self.peer_memory is not None
        assert loan is not None
        return self.peer_memory.array(offset, dtype, shape, loan)

    def _complete_call(self, number: int, message: Message) -> None:
        completion = self._calls.pop(number, None)
        if completion is None or completion.done():
            return
        if message.kind == ANSWER:
            completion.set_result(message)
        else:
            completion.set_exception(_read_refusal(message.values))

    def send_reply(self, number: int, message: Message | None) -> None:
        """Send the answer to a call of the peer, or None if the call is cancelled."""
        self._replies.pop(number, None)
        if message is not None and number != NO_CALL and self._transport is not None:
            self._send(number, message)


class Reply:
    """The reply to one call of the peer: a `Completion` that sends the answer."""

    __slots__ = ("_is_done", "_link", "_number", "_task")

    def __init__(self, link: Link, number: int) -> None:
        self._link = link
        self._number = number
        self._is_done = False
        self._task: asyncio.Future[Message] | None = None

    def done(self) -> bool:
        """Return whether the reply is sent or cancelled."""
        return self._is_done

    def _end(self, message: Message | None) -> None:
        if not self._is_done:
            self._is_done = True
            self._link.send_reply(self._number, message)

    def set_result(self, message: Message) -> None:
        """Send an answer."""
        self._end(message)

    def set_exception(self, error: BaseException) -> None:
        """Send a refusal."""
        self._end(Message(REFUSAL, _write_refusal(as_service_error(cast(Exception, error)))))

    def cancel(self) -> None:
        """Cancel the reply and the task that computes it; send no answer."""
        self._end(None)
        if self._task is not None:
            self._task.cancel()

    def complete_by(self, coroutine: Coroutine[Any, Any, Message]) -> None:
        """Run a coroutine as a task, and send its result."""
        self._task = asyncio.ensure_future(coroutine)
        self._task.add_done_callback(self._send_result)

    def _send_result(self, task: asyncio.Future[Message]) -> None:
        if task.cancelled():
            self._end(None)
        elif (error := task.exception()) is not None:
            self.set_exception(error)
        else:
            self.set_result(task.result())


def _write_refusal(refusal: ServiceError) -> dict[str, Any]:
    headers = [[name.decode(), value.decode()] for name, value in refusal.headers]
    return {
        "status": refusal.status,
        "code": refusal.code,
        "message": refusal.message,
        "where": refusal.where,
        "headers": headers,
    }


def _read_refusal(values: dict[str, Any]) -> ServiceError:
    kind = EXPECTED.get(values["code"], ServiceError)
    refusal = kind(values["message"], values["where"])
    refusal.status = values["status"]
    refusal.code = values["code"]
    refusal.headers = tuple((name.encode(), value.encode()) for name, value in values["headers"])
    return refusal
