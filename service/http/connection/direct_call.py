"""Calls that a connection answers itself, and the cache of repeated heads.

Clients that keep a connection open send the same head again and again; only the body and its
length change:

    POST /v1/encode HTTP/1.1 ... Content-Length: │ 231 │ ...  │ {"vocabulary":"gpt2", ...
    └──────────────── before ───────────────────┘      └ after ┘ body of this length

Equal heads have equal meanings. Therefore the path and the client that were read from the first
head are valid for all equal heads, as long as the service's keys do not change.
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
from service.core.call import CLIENT_CLOSED, Call
from service.core.context_vars import REQUEST_ID
from service.core.problem_details import as_service_error, problem
from service.http.asgi_fast_path import JSON_TYPE
from service.operations.context import Service
from service.operations.operation import Operation, Render

Fields = Sequence[tuple[bytes, bytes]]
CLOSE = (b"connection", b"close")
LENGTH_FIELD = b"\r\ncontent-length:"
# A head with one of these is not cached: one replaces the length, the others vary by request.
UNCACHED = (b"transfer-encoding", b"x-request-id", b"traceparent", b"tracestate")
MAX_DIGITS = 5  # The maximum number of digits of a body's length.
MAX_HEAD_BYTES = 4096


class DirectCall:
    """One call on a connection; uvicorn uses it as a request, and the batcher as a future.

    For uvicorn it implements the request's attributes `body`, `more_body`, `keep_alive`,
    `disconnected` and `response_complete`; uvicorn calls ``message_event.set()`` when one of them
    changes. As the batcher's future it writes the answer immediately when it receives the result,
    without a callback on the event loop.

    Args:
        path: the path of the request.
        operation: the operation of the call.
        call: the head of the request.
        writer: writes the answer.

    Attributes:
        render: converts the result to the answer; None until the work item is created.
        is_done: whether the answer is written or cancelled.
    """

    __slots__ = (
        "body",
        "call",
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

    def __init__(self, path: str, operation: Operation, call: Call, writer: ResponseWriter) -> None:
        self.path = path
        self.operation = operation
        self.call = call
        self.writer = writer
        self.body = bytearray()
        self.more_body = True
        self.keep_alive = True
        self.disconnected = False
        self.response_complete = False
        self.is_done = False
        self.render: Render | None = None

    @property
    def message_event(self) -> DirectCall:
        """Return this object as uvicorn's event; an attribute would be a reference cycle."""
        return self

    def set(self) -> None:
        """Cancel the call if the client has disconnected; uvicorn calls this at each change."""
        if self.disconnected:
            self.cancel()

    def done(self) -> bool:
        """Return whether the answer is written or cancelled."""
        return self.is_done

    def cancel(self) -> None:
        """End the call without an answer, as the client has disconnected."""
        if not self.is_done and self.render is not None:
            self.is_done = True
            self.call.is_gone = True
            self.writer.observer.finish(self.call, self.path, CLIENT_CLOSED)

    def set_result(self, result: AnyResult) -> None:
        """Write the answer for a result of the batcher."""
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
        """Write the refusal for an exception of the batcher."""
        self.is_done = True
        self.writer.refuse(self, cast(Exception, error))
        # The traceback refers to this frame, so both would stay until the garbage collector runs.
        error.__traceback__ = None


class AnswerHead:
    """The start of JSON answers, cached until uvicorn's header fields (the date) change."""

    def __init__(self) -> None:
        self._fields: Fields = ()
        self._head = b""

    def get(self, fields: list[tuple[bytes, bytes]]) -> bytes:
        """Return the start of an answer with these header fields, cached until they change."""
        if fields is not self._fields:
            self._fields = fields
            self._head = format_head(200, (*fields, JSON_TYPE))
        return self._head


class ResponseWriter:
    """Writes answers to one connection.

    Args:
        transport: the transport of the connection.
        server_state: contains the header fields that uvicorn adds to each answer.
        service: the service that answers the calls.
        answer_head: the start of answers, shared by all connections.
        close_if_last: a function to call before an answer while the service drains.
        on_complete: a function to call when an answer is written.

    Attributes:
        observer: counts, logs and traces each answered request.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        server_state: ServerState,
        service: Service,
        answer_head: AnswerHead,
        close_if_last: Callable[[], None],
        on_complete: Callable[[], None],
    ) -> None:
        self.observer = service.observer
        self._service = service
        self._transport = transport
        self._server_state = server_state
        self._answer_head = answer_head
        self._close_if_last = close_if_last
        self._on_complete = on_complete

    def close(self) -> None:
        """Drop the references to the functions, as the connection has ended."""
        self._close_if_last = do_nothing
        self._on_complete = do_nothing

    def answer(self, request: DirectCall, body: bytes) -> None:
        """Write the answer to a request."""
        head = self._answer_head.get(self._server_state.default_headers)
        self._write(request, 200, head, body)

    def refuse(self, request: DirectCall, error: Exception) -> None:
        """Write the refusal of a request."""
        token = REQUEST_ID.set(request.call.request_id.decode())
        refusal = as_service_error(error)
        REQUEST_ID.reset(token)
        request.call.refusal = refusal.code
        status, headers, body = problem(refusal)
        fields = list(self._server_state.default_headers)
        fields += [(name, value) for name, value in headers if name != b"content-length"]
        self._write(request, status, format_head(status, fields), body)

    def _write(self, request: DirectCall, status: int, head: bytes, body: bytes) -> None:
        """Write an answer; add the length and the fields of this request to `head`."""
        fields = self.observer.format_answer_headers(request.call)
        if self._service.draining:
            self._close_if_last()
        if not request.keep_alive:
            fields += b"%b: %b\r\n" % CLOSE
        self._transport.write(b"%b%bcontent-length: %d\r\n\r\n%b" % (head, fields, len(body), body))
        request.response_complete = True
        if not request.keep_alive:
            self._transport.close()
        self._on_complete()
        self.observer.finish(request.call, request.path, status)


def do_nothing() -> None:
    """Do nothing; replaces the functions of a connection that has ended."""


def format_head(status: int, fields: Fields) -> bytes:
    """Format the status line of an answer and some of its header fields."""
    line = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode()
    return line + b"".join([b"%b: %b\r\n" % field for field in fields])


@dataclass(frozen=True, slots=True)
class RepeatedHead:
    """The bytes of a request head before and after the digits of the body's length."""

    before: bytes
    after: bytes

    @classmethod
    def read(cls, data: bytes) -> RepeatedHead | None:
        """Read the head of data that contain exactly one request; None if it cannot be cached."""
        end = data.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES) + 4
        lower = data[:end].lower()
        place = lower.find(LENGTH_FIELD)
        if end < 4 or lower.count(LENGTH_FIELD) != 1 or any(name in lower for name in UNCACHED):
            return None
        begin = place + len(LENGTH_FIELD)
        begin += data[begin : begin + 1] == b" "
        head = cls(data[:begin], data[data.index(b"\r", begin) : end])
        return head if head.find_body(data) is not None else None

    def find_body(self, data: bytes) -> bytes | None:
        """Return the body if data consist of this head and one whole body; otherwise None."""
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
    """The most recently parsed head of a direct call on a connection.

    Attributes:
        first: the call whose head was parsed; None before the first one.
    """

    __slots__ = ("_head", "_keys", "first")

    def __init__(self) -> None:
        self.first: DirectCall | None = None
        self._head: RepeatedHead | None = None
        self._keys = 0

    def remember(self, data: bytes, call: DirectCall, keys: int) -> None:
        """Store the head of a call, if the received data contain exactly its request.

        Args:
            data: the received data.
            call: the call that was parsed from them.
            keys: the generation of the guard's keys.
        """
        head = RepeatedHead.read(data)
        if head is not None and head.find_body(data) == bytes(call.body):
            self.first = call
            self._head = head
            self._keys = keys

    def find_body(self, data: bytes, keys: int) -> bytes | None:
        """Return the body of a request with the stored head; None if head or keys differ."""
        if self._head is None or keys != self._keys:
            return None
        return self._head.find_body(data)

    def make_call(self, num_bytes: int) -> DirectCall:
        """Create the call of a request with the stored head and a body of `num_bytes`."""
        first = self.first
        assert first is not None
        call = Call(
            request_id=b"%016x" % getrandbits(64),  # Not in the head, see UNCACHED.
            media_type=first.call.media_type,
            content_length=num_bytes,
            timeout_ms=first.call.timeout_ms,
            key=first.call.key,
            address=first.call.address,
        )
        return DirectCall(first.path, first.operation, call, first.writer)
