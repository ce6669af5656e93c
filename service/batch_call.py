"""What waits in the engine process for the result of a front end's batch, and answers with it.

    link ─► batch ─► batcher ─► result ─► message ─┬─► link
                                                   └ large arrays are copied where they are read

No coroutine and no task: a batch of small requests takes a tenth of a millisecond in all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from service.link import Message
from service.link_batches import result_message
from service.work import Result

__all__ = ["BatchCall"]

Placing = Callable[[Message], Coroutine[Any, Any, Message] | None]


class BatchCall:
    """A future to the batcher, whose `answer` is one to the link.

    Args:
        placing: puts arrays of a message where the other side reads them; None: they may stay.
    """

    __slots__ = ("_is_done", "_placing", "answer")

    def __init__(self, placing: Placing) -> None:
        self.answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._placing, self._is_done = placing, False

    def done(self) -> bool:
        """Whether there is nothing to wait for any more."""
        return self._is_done or self.answer.done()

    def cancelled(self) -> bool:
        """Whether nobody wanted the result."""
        return self.answer.cancelled()

    def exception(self) -> BaseException | None:
        """Why there is no result."""
        return self.answer.exception() if self.answer.done() else None

    def cancel(self) -> object:
        """Nobody wants the result any more."""
        return self.answer.cancel()

    def set_result(self, result: Result) -> None:
        """Answer."""
        self._is_done = True
        try:
            message = result_message(result)
            placed = self._placing(message)
        except Exception as error:
            self.set_exception(error)
            return
        if placed is None:
            self.answer.set_result(message)
        else:
            asyncio.ensure_future(placed).add_done_callback(self._answer_placed)

    def _answer_placed(self, placed: asyncio.Future[Message]) -> None:
        if self.answer.done():
            return
        if (error := placed.exception()) is not None:
            self.answer.set_exception(error)
        else:
            self.answer.set_result(placed.result())

    def set_exception(self, error: BaseException) -> None:
        """Refuse."""
        self.answer.set_exception(error)
