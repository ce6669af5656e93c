"""Messages between a front end and the engine process, over a Unix socket.

    frame   head length u64 │ body length u64 │ head: JSON, padded to 8 │ body: arrays, each padded

Either side calls the other and gets one answer, or tells it something and gets none. What is sent
in one tick of the loop goes out in one write. Small arrays cross as they lie in memory; large ones
lie in memory that the other side has mapped (link_memory.py), and only their places cross. Knows
neither HTTP nor what the messages mean; both ends are processes of one service, and trust each
other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import struct
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

import numpy as np
import orjson
from numpy.typing import NDArray

from service.errors import EngineLost, as_service_error
from service.link_memory import LinkMemory, Loan, OtherMemory
from service.link_refusals import refusal_of, refusal_values

__all__ = ["Link", "Message"]

logger = logging.getLogger(__name__)
SIZES = struct.Struct("<QQ")
BUFFER_BYTES = 1 << 18  # What one read takes at most of small frames.
JOINED_BYTES = 1 << 16  # Frames up to this size are one piece for the socket.
ALIGNMENT = 8
ANSWER, REFUSAL, GIVEN_UP = "answer", "refusal", "given up"
MEMORY, LOANS_ENDED = "memory", "loans ended"
ENDED_S = 0.002  # The longest that ended loans wait for a message that takes them along.
NO_CALL = NO_LOAN = 0


@dataclass(slots=True)
class Message:
    """What one side says to the other.

    Attributes:
        kind: what it is about.
        values: anything that JSON can say.
        arrays: any shapes and numeric dtypes.
    """

    kind: str
    values: dict[str, Any] = field(default_factory=dict)
    arrays: list[NDArray[Any]] = field(default_factory=list)


Answer = Callable[["Link", Message], "asyncio.Future[Message] | None"]


class Link(asyncio.BufferedProtocol):
    """One end of a connection.

    Args:
        answer: begins the answer to a call; None where the message wants none.
        lost: called once, when the connection has ended.
        memory: of this process, which the other side may read; None: all goes over the socket.

    Attributes:
        mapping: done when the other side has answered for the first time, about that memory. Until
            then nobody may be there: a connection can wait in the queue of a listening socket.
    """

    def __init__(
        self, answer: Answer, lost: Callable[[Link], None], memory: LinkMemory | None = None
    ) -> None:
        self._answer, self._lost = answer, lost
        self._calls: dict[int, asyncio.Future[Message]] = {}
        self._running: dict[int, asyncio.Future[Message]] = {}
        self._numbers = count(NO_CALL + 1)
        self._transport: asyncio.Transport | None = None
        self._small = bytearray(BUFFER_BYTES)
        self._large: bytearray | None = None  # The frame that does not fit the small buffer.
        self._have = 0  # Bytes in the buffer that is being filled.
        self.memory, self._is_mapped = memory, False
        self.mapping: asyncio.Future[Message] | None = None
        self.other: OtherMemory | None = None  # The other side's.
        self._loans: dict[int, list[NDArray[Any]]] = {}  # Arrays that the other side reads.
        self._loan_numbers = count(NO_LOAN + 1)
        self._ended: deque[int] = deque()  # Loans from the other side, which is not told yet.
        self._telling: asyncio.TimerHandle | None = None

    @property
    def is_up(self) -> bool:
        """Whether the other side is there."""
        return self._transport is not None

    def call(self, message: Message) -> asyncio.Future[Message]:
        """Say something; the future has the answer, and who cancels it tells the other side.

        Raises (in the future):
            ServiceError: the other side refused.
            EngineLost: the connection ended before the answer.
        """
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        if self._transport is None:
            future.set_exception(EngineLost("the engine process is being started again"))
            return future
        number = next(self._numbers)
        self._calls[number] = future
        self._send(number, message)
        future.add_done_callback(lambda done: self._give_up(number, done))
        return future

    def _give_up(self, number: int, done: asyncio.Future[Message]) -> None:
        """Nobody wants the answer any more where its future was cancelled."""
        if done.cancelled() and number in self._calls:
            del self._calls[number]
            if self._transport is not None:
                self._send(number, Message(GIVEN_UP))

    def tell(self, message: Message) -> None:
        """Say something that wants no answer; nothing happens where nobody is there."""
        if self._transport is not None:
            self._send(NO_CALL, message)

    def close(self) -> None:
        """End the connection; what was not answered is lost."""
        if self._transport is not None:
            self._transport.close()

    def _send(self, number: int, message: Message) -> None:
        assert self._transport is not None
        arrays = [np.ascontiguousarray(array) for array in message.arrays]
        places, loan = self._lend(arrays)
        shapes = [
            [array.dtype.str, array.shape, place]
            for array, place in zip(arrays, places, strict=True)
        ]
        ended = [self._ended.popleft() for _ in range(len(self._ended))]
        head = orjson.dumps([message.kind, number, message.values, shapes, loan, ended])
        head += b" " * (-len(head) % ALIGNMENT)
        body: list[bytes | memoryview] = []
        for array, place in zip(arrays, places, strict=True):
            if array.nbytes and place is None:
                body.append(memoryview(array.data).cast("B"))
                body.append(bytes(-array.nbytes % ALIGNMENT))
        size = sum(map(len, body))
        pieces = [SIZES.pack(len(head), size), head, *body]
        if size <= JOINED_BYTES:
            self._transport.write(b"".join(pieces))
        else:
            self._transport.writelines(pieces)

    def _lend(self, arrays: list[NDArray[Any]]) -> tuple[list[int | None], int]:
        """Where the other side finds each array, None in the message; and the loan's number."""
        if self.memory is None or not self._is_mapped:
            return [None] * len(arrays), NO_LOAN
        placed = [self.memory.placed(array) for array in arrays]
        places = [self.memory.place_of(array) for array in placed]
        if all(place is None for place in places):
            return places, NO_LOAN
        loan = next(self._loan_numbers)
        self._loans[loan] = placed
        return places, loan

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there; the other side is told of the memory here."""
        self._transport = cast(asyncio.Transport, transport)
        if self.memory is not None:
            self.mapping = self.call(Message(MEMORY, {"path": self.memory.path}))
            self.mapping.add_done_callback(self._note_mapped)

    def _note_mapped(self, done: asyncio.Future[Message]) -> None:
        if done.cancelled() or isinstance(done.exception(), EngineLost):
            return
        self._is_mapped = done.result().values["is_mapped"]

    def _map(self, path: str) -> asyncio.Future[Message]:
        """Map the memory of the other side."""
        try:
            self.other = OtherMemory(path)
        except OSError as error:
            logger.warning("large arrays go over the socket; no memory is shared: %s", error)
        done: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        done.set_result(Message(ANSWER, {"is_mapped": self.other is not None}))
        return done

    def _loan(self, number: int) -> Loan:
        """What borrowed arrays hold; the other side is told when it is garbage."""
        loop, thread = asyncio.get_running_loop(), threading.get_ident()

        def end() -> None:
            self._ended.append(number)
            is_loops = threading.get_ident() == thread
            with contextlib.suppress(RuntimeError):  # The loop has ended, and so has the link.
                self._plan_telling() if is_loops else loop.call_soon_threadsafe(self._plan_telling)

        return Loan(end)

    def _plan_telling(self) -> None:
        if self._telling is None and self._transport is not None:
            self._telling = asyncio.get_running_loop().call_later(ENDED_S, self._tell_ended)

    def _tell_ended(self) -> None:
        self._telling = None
        if self._ended:
            self.tell(Message(LOANS_ENDED))

    def connection_lost(self, error: Exception | None) -> None:
        """Nobody will answer, and nobody waits for answers any more."""
        self._transport = self.other = None  # Its memory stays where an array of it is held.
        self._loans.clear()
        calls, self._calls = self._calls, {}
        for future in calls.values():
            if not future.done():
                future.set_exception(EngineLost("the engine process ended before the answer"))
        for running in list(self._running.values()):
            running.cancel()
        self._lost(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return memoryview(self._small if self._large is None else self._large)[self._have :]

    def buffer_updated(self, num_bytes: int) -> None:
        """Take every frame that is whole."""
        self._have += num_bytes
        if self._large is not None:
            if self._have == len(self._large):
                frame, self._large, self._have = self._large, None, 0
                self._receive(frame)
            return
        begin = 0
        while self._have - begin >= SIZES.size:
            size = SIZES.size + sum(SIZES.unpack_from(self._small, begin))
            if begin + size > self._have:
                if size > BUFFER_BYTES:
                    self._large = bytearray(size)
                break
            self._receive(self._small[begin : begin + size])
            begin += size
        rest = self._small[begin : self._have]
        self._have = len(rest)
        (self._small if self._large is None else self._large)[: len(rest)] = rest

    def _receive(self, frame: bytearray) -> None:
        """One whole frame; its arrays are views of it."""
        head_size, _ = SIZES.unpack_from(frame)
        place = SIZES.size + head_size
        kind, number, values, shapes, loan_number, ended = orjson.loads(
            memoryview(frame)[SIZES.size : place]
        )
        for each in ended:
            self._loans.pop(each, None)
        loan = self._loan(loan_number) if loan_number else None
        arrays = []
        for dtype, shape, where in shapes:
            if where is not None:
                assert self.other is not None
                assert loan is not None
                arrays.append(self.other.array(where, dtype, shape, loan))
                continue
            size = math.prod(shape)
            array = np.frombuffer(frame, dtype, size, place if size else 0).reshape(shape)
            arrays.append(array)
            place += array.nbytes + -array.nbytes % ALIGNMENT
        message = Message(kind, values, arrays)
        if kind in (ANSWER, REFUSAL):
            self._take_answer(number, message)
            return
        if kind == GIVEN_UP:
            if number in self._running:
                self._running[number].cancel()
            return
        if kind == LOANS_ENDED:
            return
        running = self._map(values["path"]) if kind == MEMORY else self._answer(self, message)
        if running is not None:
            self._running[number] = running
            running.add_done_callback(lambda done: self._send_answer(number, done))

    def _take_answer(self, number: int, message: Message) -> None:
        future = self._calls.pop(number, None)
        if future is None or future.done():
            return
        if message.kind == ANSWER:
            future.set_result(message)
        else:
            future.set_exception(refusal_of(message.values))

    def _send_answer(self, number: int, done: asyncio.Future[Message]) -> None:
        self._running.pop(number, None)
        if done.cancelled() or self._transport is None:
            return
        error = done.exception()
        if error is None:
            self._send(number, done.result())
        else:
            refusal = as_service_error(cast(Exception, error))
            self._send(number, Message(REFUSAL, refusal_values(refusal)))
