"""Messages between a front end and the engine process, over a Unix socket.

Either side calls the other and gets one answer, or tells it something and gets none. What is sent
in one tick of the loop goes out in one write. Small arrays cross in the message (frames.py);
large ones lie in memory that the other side has mapped (shared_memory.py), and only their places
cross. Knows neither HTTP nor what the messages mean; both ends are processes of one service, and
trust each other.
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

import numpy as np
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
from service.multiprocess.link.frames import SIZES, Frame, Message, pack
from service.multiprocess.link.shared_memory import WORTH_BYTES, LinkMemory, Loan, OtherMemory

logger = logging.getLogger(__name__)
BUFFER_BYTES = 1 << 18  # What one read takes at most of small frames.
ANSWER, REFUSAL, GIVEN_UP = "answer", "refusal", "given up"
MEMORY, LOANS_ENDED = "memory", "loans ended"
ENDED_S = 0.002  # The longest that ended loans wait for a message that takes them along.
NO_CALL = NO_LOAN = 0

EXPECTED: dict[str, type[ServiceError]] = {
    kind.code: kind for kind in (QueueFull, Draining, NotReady, DeadlinePassed)
}
"""Refusals that the caller tells apart; of others it passes on status and words."""

Answer = Callable[["Link", Message, "Reply"], object]


class Link(asyncio.BufferedProtocol):
    """One end of a connection.

    Args:
        answer: takes a message of the other side, and the reply to it, which is to be completed at
            once or later; the reply to a message that wants none goes nowhere.
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
        self._calls: dict[int, Completion[Message]] = {}
        self._replies: dict[int, Reply] = {}
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
        number = self.ask(message, future)
        future.add_done_callback(partial(self._give_up_cancelled, number))
        return future

    def _give_up_cancelled(self, number: int, done: asyncio.Future[Message]) -> None:
        if done.cancelled():
            self.give_up(number)

    def ask(self, message: Message, answer: Completion[Message]) -> int:
        """Say something; `answer` is completed as soon as the answer comes.

        Raises:
            EngineLost: nobody is there.

        Returns:
            The call's number, for `give_up`.
        """
        if self._transport is None:
            raise EngineLost("the engine process is being started again")
        number = next(self._numbers)
        self._calls[number] = answer
        self._send(number, message)
        return number

    def give_up(self, number: int) -> None:
        """Nobody wants the answer to a call any more; nothing happens where it has come."""
        if self._calls.pop(number, None) is not None and self._transport is not None:
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
        arrays, places, loan = self._lend(message.arrays)
        ended = [self._ended.popleft() for _ in range(len(self._ended))]
        message = Message(message.kind, message.values, arrays)
        pieces = pack(message, number, places, loan, ended)
        if len(pieces) == 1:
            self._transport.write(pieces[0])
        else:
            self._transport.writelines(pieces)

    def _lend(self, arrays: list[NDArray[Any]]) -> tuple[list[NDArray[Any]], list[int | None], int]:
        """The arrays as they go; where the other side finds each, or None; the loan's number."""
        if not self._is_mapped or all([array.nbytes < WORTH_BYTES for array in arrays]):
            return arrays, [None] * len(arrays), NO_LOAN
        assert self.memory is not None
        placed = [self.memory.placed(np.ascontiguousarray(array)) for array in arrays]
        places = [self.memory.place_of(array) for array in placed]
        if all(place is None for place in places):
            return placed, places, NO_LOAN
        loan = next(self._loan_numbers)
        self._loans[loan] = placed
        return placed, places, loan

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

    def _map(self, path: str) -> Message:
        """Map the memory of the other side and say whether it could be."""
        try:
            self.other = OtherMemory(path)
        except OSError as error:
            logger.warning("large arrays go over the socket; no memory is shared: %s", error)
        return Message(ANSWER, {"is_mapped": self.other is not None})

    def _loan(self, number: int) -> Loan:
        """What borrowed arrays hold; the other side is told when it is garbage."""
        loop, thread = asyncio.get_running_loop(), threading.get_ident()

        def end() -> None:
            self._ended.append(number)
            is_loops = threading.get_ident() == thread
            with contextlib.suppress(RuntimeError):  # The loop has ended, and so has the link.
                self._plan_loans_ended() if is_loops else loop.call_soon_threadsafe(
                    self._plan_loans_ended
                )

        return Loan(end)

    def _plan_loans_ended(self) -> None:
        if self._telling is None and self._transport is not None:
            self._telling = asyncio.get_running_loop().call_later(ENDED_S, self._send_loans_ended)

    def _send_loans_ended(self) -> None:
        self._telling = None
        if self._ended:
            self.tell(Message(LOANS_ENDED))

    def connection_lost(self, error: Exception | None) -> None:
        """Nobody will answer, and nobody waits for answers any more."""
        self._transport = self.other = None  # Its memory stays where an array of it is held.
        self._loans.clear()
        calls, self._calls = self._calls, {}
        for answer in calls.values():
            if not answer.done():
                answer.set_exception(EngineLost("the engine process ended before the answer"))
        for reply in list(self._replies.values()):
            reply.cancel()
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

    def _receive(self, content: bytearray) -> None:
        """One whole frame; its arrays are views of it."""
        frame = Frame.of(content)
        for each in frame.ended:
            self._loans.pop(each, None)
        loan = self._loan(frame.loan) if frame.loan else None
        frame.read_arrays(partial(self._borrowed, loan))
        number, message = frame.number, frame.message
        if message.kind in (ANSWER, REFUSAL):
            self._take_answer(number, message)
            return
        if message.kind == GIVEN_UP:
            if number in self._replies:
                self._replies[number].cancel()
            return
        if message.kind == LOANS_ENDED:
            return
        reply = Reply(self, number)
        if number != NO_CALL:
            self._replies[number] = reply
        if message.kind == MEMORY:
            reply.set_result(self._map(message.values["path"]))
        else:
            self._answer(self, message, reply)

    def _borrowed(
        self, loan: Loan | None, place: int, dtype: str, shape: tuple[int, ...]
    ) -> NDArray[Any]:
        """An array in the other side's memory."""
        assert self.other is not None
        assert loan is not None
        return self.other.array(place, dtype, shape, loan)

    def _take_answer(self, number: int, message: Message) -> None:
        answer = self._calls.pop(number, None)
        if answer is None or answer.done():
            return
        if message.kind == ANSWER:
            answer.set_result(message)
        else:
            answer.set_exception(_read_refusal(message.values))

    def send_reply(self, number: int, message: Message | None) -> None:
        """Send the answer to a call of the other side; None: nobody wants one any more."""
        self._replies.pop(number, None)
        if message is not None and number != NO_CALL and self._transport is not None:
            self._send(number, message)


class Reply:
    """The reply to one call of the other side; a `Completion`, sent as soon as it is complete."""

    __slots__ = ("_is_done", "_link", "_number", "_task")

    def __init__(self, link: Link, number: int) -> None:
        self._link = link
        self._number = number
        self._is_done = False
        self._task: asyncio.Future[Message] | None = None

    def done(self) -> bool:
        """Whether it was sent, or nobody wants it."""
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
        self._end(Message(REFUSAL, _refusal_values(as_service_error(cast(Exception, error)))))

    def cancel(self) -> None:
        """End without an answer: nobody wants it any more."""
        self._end(None)
        if self._task is not None:
            self._task.cancel()

    def complete_by(self, coroutine: Coroutine[Any, Any, Message]) -> None:
        """Have a task make the answer."""
        self._task = asyncio.ensure_future(coroutine)
        self._task.add_done_callback(self._take_task)

    def _take_task(self, task: asyncio.Future[Message]) -> None:
        if task.cancelled():
            self._end(None)
        elif (error := task.exception()) is not None:
            self.set_exception(error)
        else:
            self.set_result(task.result())


def _refusal_values(refusal: ServiceError) -> dict[str, Any]:
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
