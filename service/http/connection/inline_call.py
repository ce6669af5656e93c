"""A hot call while it is answered: a request to uvicorn, a future to the batcher."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from service.observability.request_observer import CLIENT_CLOSED

if TYPE_CHECKING:
    from service.batching.work import AnyResult
    from service.core.call import Call
    from service.http.connection.protocol import HotProtocol
    from service.operations.operation import Operation, Render


class HotCycle:
    """One hot call on a connection, in the shapes in which uvicorn and the batcher know it.

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
        "protocol",
        "render",
        "response_complete",
    )

    def __init__(
        self, path: str, operation: Operation, call: Call, client: str, protocol: HotProtocol
    ) -> None:
        self.path, self.operation, self.call, self.client = path, operation, call, client
        self.protocol = protocol
        self.body = bytearray()
        self.more_body = self.keep_alive = True
        self.disconnected = self.response_complete = self.is_done = False
        self.render: Render | None = None

    @property
    def message_event(self) -> HotCycle:
        """What uvicorn tells; kept as a field, it would leave every call to the collector."""
        return self

    def set(self) -> None:
        """Something has changed: a client that is gone wants no answer any more."""
        if self.disconnected:
            self.cancel()

    def done(self) -> bool:
        """Whether the answer was sent, or nobody wants it."""
        return self.is_done

    def cancel(self) -> None:
        """Nobody wants the answer any more."""
        if not self.is_done and self.render is not None:
            self.is_done = self.call.is_gone = True
            self.protocol.service.observer.finish(self.call, self.path, CLIENT_CLOSED)

    def set_result(self, result: AnyResult) -> None:
        """Answer."""
        self.is_done = True
        assert self.render is not None
        begin = perf_counter()
        try:
            body = b"".join(self.render(result))
            self.protocol.service.observer.add_serialize_time(self.call, perf_counter() - begin)
            self.protocol.answer(self, body)
        except Exception as error:
            self.protocol.refuse(self, error)

    def set_exception(self, error: BaseException) -> None:
        """Refuse."""
        self.is_done = True
        self.protocol.refuse(self, error)
        error.__traceback__ = None  # It leads to here, and would be kept until the collector comes.
