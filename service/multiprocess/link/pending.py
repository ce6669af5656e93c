"""What waits in the engine process for the result of a front end's batch, and answers with it.

    link ─► batch ─► batcher ─► result ─► message ─┬─► link
                                                   └ large arrays are copied where they are read

No future, no task and no turn of the loop in between: a batch of small requests takes some tens of
microseconds in all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from service.batching.work import AnyResult
from service.multiprocess.link.batch_messages import result_message
from service.multiprocess.link.frames import Message

Placing = Callable[[Message], Coroutine[Any, Any, Message] | None]


class BatchCall:
    """A future to the batcher, and one to the link, which is told at once when it is over.

    Args:
        placing: puts arrays of a message where the other side reads them; None: they may stay.
    """

    __slots__ = ("_answer", "_has_result", "_is_cancelled", "_placing", "_tell")

    def __init__(self, placing: Placing) -> None:
        self._placing = placing
        self._answer: Message | BaseException | None = None
        self._has_result = self._is_cancelled = False
        self._tell: Callable[[BatchCall], object] | None = None

    def add_done_callback(self, tell: Callable[[BatchCall], object]) -> None:
        """Have somebody told when there is an answer, or nobody wants one."""
        self._tell = tell
        if self._is_over():
            tell(self)

    def _is_over(self) -> bool:
        return self._answer is not None or self._is_cancelled

    def _end(self, answer: Message | BaseException | None) -> None:
        if self._is_over():
            return
        self._answer, self._is_cancelled = answer, answer is None
        if self._tell is not None:
            self._tell(self)

    def done(self) -> bool:
        """Whether there is nothing to wait for any more."""
        return self._has_result or self._is_over()

    def cancelled(self) -> bool:
        """Whether nobody wanted the result."""
        return self._is_cancelled

    def result(self) -> Message:
        """The answer; raises why there is none."""
        if isinstance(self._answer, BaseException):
            raise self._answer
        assert self._answer is not None
        return self._answer

    def exception(self) -> BaseException | None:
        """Why there is no result."""
        return self._answer if isinstance(self._answer, BaseException) else None

    def cancel(self) -> None:
        """Nobody wants the result any more."""
        self._end(None)

    def set_result(self, result: AnyResult) -> None:
        """Answer."""
        self._has_result = True
        try:
            message = result_message(result)
            placed = self._placing(message)
        except Exception as error:
            self._end(error)
            return
        if placed is None:
            self._end(message)
        else:
            asyncio.ensure_future(placed).add_done_callback(self._answer_placed)

    def _answer_placed(self, placed: asyncio.Future[Message]) -> None:
        self._end(placed.exception() or placed.result())

    def set_exception(self, error: BaseException) -> None:
        """Refuse."""
        self._end(error)
