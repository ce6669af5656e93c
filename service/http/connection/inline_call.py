"""A call that the connection answers itself: a request to uvicorn, a future to the batcher."""

from __future__ import annotations

from time import perf_counter
from typing import cast

from service.batching.work import AnyResult
from service.core.call import Call
from service.http.connection.response_writer import ResponseWriter
from service.observability.request_observer import CLIENT_CLOSED
from service.operations.operation import Operation, Render


class InlineCall:
    """One call on a connection, in the shapes in which uvicorn and the batcher know it.

    As a request of uvicorn's it has `body`, `keep_alive` and `disconnected`, and is told by
    ``message_event.set()`` when something has changed. As a future of the batcher's it answers as
    soon as it has its result, without a callback of the loop's.
    """

    __slots__ = (
        "body",
        "call",
        "client",
        "disconnected",
        "is_done",
        "keep_alive",
        "more_body",
        "operation",
        "path",
        "render",
        "response_complete",
        "writer",
    )

    def __init__(
        self, path: str, operation: Operation, call: Call, client: str, writer: ResponseWriter
    ) -> None:
        self.path = path
        self.operation = operation
        self.call = call
        self.client = client
        self.writer = writer
        self.body = bytearray()
        self.more_body = True
        self.keep_alive = True
        self.disconnected = False
        self.response_complete = False
        self.is_done = False
        self.render: Render | None = None

    @property
    def message_event(self) -> InlineCall:
        """What uvicorn sets; kept as a field, it would leave every call to the collector."""
        return self

    def set(self) -> None:
        """Something has changed: a client that is gone wants no answer any more."""
        if self.disconnected:
            self.cancel()

    def done(self) -> bool:
        """Whether the answer was sent, or nobody wants it."""
        return self.is_done

    def cancel(self) -> None:
        """Drop the answer, which nobody wants any more."""
        if not self.is_done and self.render is not None:
            self.is_done = True
            self.call.is_gone = True
            self.writer.observer.finish(self.call, self.path, CLIENT_CLOSED)

    def set_result(self, result: AnyResult) -> None:
        """Write the answer."""
        self.is_done = True
        assert self.render is not None
        begin = perf_counter()
        try:
            body = b"".join(self.render(result))
            self.writer.observer.add_serialize_time(self.call, perf_counter() - begin)
            self.writer.answer(self, body)
        except Exception as error:
            self.writer.refuse(self, error)

    def set_exception(self, error: BaseException) -> None:
        """Write a refusal."""
        self.is_done = True
        self.writer.refuse(self, cast(Exception, error))
        error.__traceback__ = None  # It leads to here, and would be kept until the collector comes.
