"""Replies to a front end's batch as soon as the batcher of the engine process has the result.

    link ─► batch ─► batcher ─► result ─► message ─┬──────────────────────────────────────► link
                                                   └► copy large arrays to shared memory ─► link

The batcher completes the reply directly, without a future, a task or another tick of the loop,
because a batch of small requests takes only tens of microseconds in total.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from service.batching.work import AnyResult
from service.multiprocess.link.batch_messages import make_result_message
from service.multiprocess.link.channel import Reply
from service.multiprocess.link.frames import Message

CopyLarge = Callable[[Message], Coroutine[Any, Any, Message] | None]


class BatchReply:
    """A `service.batching.work.Completion` that replies to a front end.

    Args:
        reply: the reply to the front end.
        copy_large: copies large arrays of a message to shared memory; returns None if none needs to
            be copied.
    """

    __slots__ = ("_copy_large", "_has_result", "_reply")

    def __init__(self, reply: Reply, copy_large: CopyLarge) -> None:
        self._reply = reply
        self._copy_large = copy_large
        self._has_result = False

    def done(self) -> bool:
        """Return whether there is a result or an error, or the call is cancelled."""
        return self._has_result or self._reply.done()

    def cancel(self) -> None:
        """Cancel the reply."""
        self._reply.cancel()

    def set_result(self, result: AnyResult) -> None:
        """Reply with a result."""
        self._has_result = True
        try:
            message = make_result_message(result)
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
