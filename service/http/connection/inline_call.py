"""Calls that a connection answers itself: their repeated heads, their requests, their answers.

Clients that keep a connection send the same head again and again; only the length of the body, and
the body, are others:

    POST /v1/encode HTTP/1.1 ... Content-Length: │ 231 │ ...  │ {"vocabulary":"gpt2", ...
    └──────────────── before ───────────────────┘      └ after ┘ body, exactly so long

Equal bytes mean what they meant before, so everything that was found out about the first one holds
as long as the keys stay the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from random import getrandbits
from time import perf_counter
from typing import cast

from uvicorn.server import ServerState

from service.batching.work import AnyResult
from service.core.call import Call
from service.core.context_vars import REQUEST_ID
from service.core.problem_details import as_service_error, problem
from service.http.asgi_fast_path import JSON_TYPE
from service.observability.request_observer import CLIENT_CLOSED, RequestObserver
from service.operations.operation import Operation, Render

Fields = Sequence[tuple[bytes, bytes]]
CLOSE = (b"connection", b"close")
LENGTH_FIELD = b"\r\ncontent-length:"
# What says how long a body is in another way, and what is another one in each request.
NEVER = (b"transfer-encoding", b"x-request-id", b"traceparent", b"tracestate")
MAX_DIGITS = 5
MAX_HEAD_BYTES = 4096


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


class AnswerHead:
    """The begin of every JSON answer, made anew when uvicorn's fields, such as the date, change."""

    def __init__(self) -> None:
        self._fields: Fields = ()
        self._head = b""

    def get(self, fields: list[tuple[bytes, bytes]]) -> bytes:
        """Return the head with these fields of uvicorn's."""
        if fields is not self._fields:
            self._fields = fields
            self._head = format_head(200, (*fields, JSON_TYPE))
        return self._head


class ResponseWriter:
    """Writes answers to one connection.

    Args:
        transport: the connection.
        server_state: has the fields that uvicorn puts into each head.
        observer: notes each answered request.
        answer_head: the begin of answers, which all connections share.
        on_complete: called when an answer has been written.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        server_state: ServerState,
        observer: RequestObserver,
        answer_head: AnswerHead,
        on_complete: Callable[[], None],
    ) -> None:
        self.observer = observer
        self._transport = transport
        self._server_state = server_state
        self._answer_head = answer_head
        self._on_complete = on_complete

    def answer(self, request: InlineCall, body: bytes) -> None:
        """Write an answer."""
        head = self._answer_head.get(self._server_state.default_headers)
        self._write(request, 200, head, body)

    def refuse(self, request: InlineCall, error: Exception) -> None:
        """Write a refusal."""
        token = REQUEST_ID.set(request.call.request_id.decode())
        refusal = as_service_error(error)
        REQUEST_ID.reset(token)
        request.call.refusal = refusal.code
        status, headers, body = problem(refusal)
        own = [field for field in headers if field[0] != b"content-length"]
        head = format_head(status, (*self._server_state.default_headers, *own))
        self._write(request, status, head, body)

    def _write(self, request: InlineCall, status: int, head: bytes, body: bytes) -> None:
        own = b"".join(
            [b"%b: %b\r\n" % field for field in self.observer.answer_headers(request.call)]
        )
        if not request.keep_alive:
            own += b"%b: %b\r\n" % CLOSE
        self._transport.write(b"%b%bcontent-length: %d\r\n\r\n%b" % (head, own, len(body), body))
        request.response_complete = True
        if not request.keep_alive:
            self._transport.close()
        self._on_complete()
        self.observer.finish(request.call, request.path, status)


def format_head(status: int, fields: Fields) -> bytes:
    """Write the first line of an answer and its fields, but for its length."""
    line = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode()
    return b"".join((line, *(b"%b: %b\r\n" % field for field in fields)))


@dataclass(frozen=True, slots=True)
class RepeatedHead:
    """A head but for the number that is the length of its body.

    Attributes:
        before, after: its bytes on either side of that number.
    """

    before: bytes
    after: bytes

    @classmethod
    def read(cls, data: bytes) -> RepeatedHead | None:
        """Read the head of a whole request; None where it is not plainly one request."""
        end = data.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES) + 4
        lower = data[:end].lower()
        place = lower.find(LENGTH_FIELD)
        if end < 4 or lower.count(LENGTH_FIELD) != 1 or any(field in lower for field in NEVER):
            return None
        begin = place + len(LENGTH_FIELD)
        begin += data[begin : begin + 1] == b" "
        head = cls(data[:begin], data[data.index(b"\r", begin) : end])
        return head if head.find_body(data) is not None else None

    def find_body(self, data: bytes) -> bytes | None:
        """Return the body, where the data are this head with a body of just its length."""
        if not data.startswith(self.before):
            return None
        begin = len(self.before)
        end = data.find(b"\r", begin, begin + MAX_DIGITS + 1)
        digits = data[begin:end]
        if end < 0 or not digits.isdigit() or not data.startswith(self.after, end):
            return None
        body = data[end + len(self.after) :]
        return body if len(body) == int(digits) else None


class HeadCache:
    """The head with which a connection's last parsed inline call began.

    Attributes:
        first: the call that had the head; None: there is no head yet.
    """

    __slots__ = ("_head", "_keys", "first")

    def __init__(self) -> None:
        self.first: InlineCall | None = None
        self._head: RepeatedHead | None = None
        self._keys = 0

    def remember(self, data: bytes, call: InlineCall, keys: int) -> None:
        """Keep the head of a call, where the data are this one request.

        Args:
            data: what was received.
            call: what the parser made of it.
            keys: the generation of the guard's keys.
        """
        head = RepeatedHead.read(data)
        if head is not None and head.find_body(data) == bytes(call.body):
            self.first = call
            self._head = head
            self._keys = keys

    def find_body(self, data: bytes, keys: int) -> bytes | None:
        """Return the body of a request that has the head; None where it has another one."""
        if self._head is None or keys != self._keys:
            return None
        return self._head.find_body(data)

    def make_call(self, num_bytes: int) -> InlineCall:
        """Make the call of a request that has the head and a body of so many bytes."""
        first = self.first
        assert first is not None
        call = Call(
            request_id=b"%016x" % getrandbits(64),  # The head has none, nor a trace; see NEVER.
            media_type=first.call.media_type,
            content_length=num_bytes,
            timeout_ms=first.call.timeout_ms,
        )
        return InlineCall(first.path, first.operation, call, first.client, first.writer)
