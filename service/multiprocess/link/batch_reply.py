"""The reply to a front end's batch, which the batcher of the engine process completes.

    link ─► batch ─► batcher ─► result ─► message ─┬─► link
                                                   └ large arrays are copied where they are read

No future, no task and no turn of the loop in between: a batch of small requests takes some tens of
microseconds in all.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from service.batching.work import AnyResult
from service.multiprocess.link.batch_messages import result_message
from service.multiprocess.link.channel import Reply
from service.multiprocess.link.frames import Message

CopyLarge = Callable[[Message], Coroutine[Any, Any, Message] | None]


class BatchReply:
    """Replies as soon as the batcher has a result; a `service.batching.work.Completion`.

    Args:
        reply: to the front end.
        copy_large: copies arrays of a message to where the other side reads them; None: they may
            stay where they are.
    """

    __slots__ = ("_copy_large", "_has_result", "_reply")

    def __init__(self, reply: Reply, copy_large: CopyLarge) -> None:
        self._reply = reply
        self._copy_large = copy_large
        self._has_result = False

    def done(self) -> bool:
        """Whether there is a result or an error, or nobody wants one."""
        return self._has_result or self._reply.done()

    def cancel(self) -> None:
        """Nobody wants the result any more."""
        self._reply.cancel()

    def set_result(self, result: AnyResult) -> None:
        """Reply with a result."""
        self._has_result = True
        try:
            message = result_message(result)
            copying = self._copy_large(message)
        except Exception as error:
            self._reply.set_exception(error)
            return
        if copying is None:
            self._reply.set_result(message)
        else:
            self._reply.complete_by(copying)

    def set_exception(self, error: BaseException) -> None:
        """Reply with a refusal."""
        self._reply.set_exception(error)
