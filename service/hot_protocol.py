"""The shortest way in: small hot calls answered in the HTTP parser's own callbacks.

uvicorn's protocol makes a task, an event and a cycle for each request and writes an answer twice,
head and body. A plain small POST to a hot path needs none of it:

    headers complete ─ plain, small, to a hot path? ─no──► uvicorn ─► hot_routes ─► FastAPI
                         │yes: HotCycle takes the body's place in the connection
    message complete ─ parse, plan ─ anything unusual? ─► uvicorn, with the body that was read
                         │
                       batcher.submit ─► future ─► one write

All refusals found before the queue go uvicorn's way and are found there again, so that there
is one place that words them. Keep-alive, pipelining, time-outs and shutdown stay uvicorn's: it
sees the HotCycle as one of its own cycles. A test holds the answers of all ways byte-equal.
"""

from __future__ import annotations

import asyncio
from functools import cache
from http import HTTPStatus
from time import perf_counter
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.access import key_of, scope_of_path
from service.body_receiver import PROTOCOL
from service.calls import Call, Operation, Render, check_digest, parse
from service.errors import ServiceError, as_service_error, problem
from service.finishing import CLIENT_CLOSED, answer_headers, finish, serialized
from service.hot_routes import HOT
from service.logs import REQUEST_ID
from service.rates import CLIENT
from service.request_heads import json_call, timeout_s
from service.work import Result, Work

if TYPE_CHECKING:
    from service.state import Service

__all__ = ["MAX_HOT_BYTES", "HotProtocol", "hot_protocol"]

MAX_HOT_BYTES = 65_536  # Longer bodies take the way that streams their answers.
HOT_URLS = {path.encode(): (path, operation) for path, operation in HOT.items()}
JSON_TYPE = ((b"content-type", b"application/json"),)


class HotCycle:
    """One hot call on a connection, in the shape in which uvicorn knows a request.

    uvicorn appends to `body`, sets `more_body`, `keep_alive` and `disconnected`, and calls
    ``message_event.set()`` when something has changed.
    """

    __slots__ = (
        "body",
        "call",
        "client",
        "disconnected",
        "future",
        "keep_alive",
        "message_event",
        "more_body",
        "operation",
        "path",
        "render",
        "response_complete",
    )

    def __init__(self, path: str, operation: Operation, call: Call, client: str) -> None:
        self.path, self.operation, self.call, self.client = path, operation, call, client
        self.body = bytearray()
        self.more_body = self.keep_alive = True
        self.disconnected = self.response_complete = False
        self.message_event = self
        self.future: asyncio.Future[Result] | None = None
        self.render: Render | None = None

    def set(self) -> None:
        """Something has changed: a client that is gone wants no answer any more."""
        if self.disconnected and self.future is not None:
            self.future.cancel()


class HotProtocol(HttpToolsProtocol):
    """uvicorn's protocol with the short way for hot calls; `service` is set by hot_protocol."""

    service: Service

    def on_headers_complete(self) -> None:
        """Take a plain small POST to a hot path; leave everything else to uvicorn."""
        cycle = self._hot_cycle()
        if cycle is None:
            self.scope["extensions"] = {PROTOCOL: self}  # type: ignore[dict-item]
            super().on_headers_complete()
        else:
            self.cycle = cycle  # type: ignore[assignment]

    def _hot_cycle(self) -> HotCycle | None:
        known = HOT_URLS.get(self.url)
        if known is None or self.parser.get_method() != b"POST":
            return None
        is_free = self.cycle is None or self.cycle.response_complete
        if not is_free or self.flow.write_paused or self.expect_100_continue:
            return None
        if self.parser.get_http_version() != "1.1" or not self.parser.should_keep_alive():
            return None
        client = self._client(known[0]) if self.service.guard.has_keys else ""
        if client is None:
            return None
        call = json_call(self.headers)
        if call is None or call.encoding is not None:
            return None
        if not 0 < call.content_length <= MAX_HOT_BYTES:
            return None
        return HotCycle(*known, call, client)

    def _client(self, path: str) -> str | None:
        """The name of a key that may make this call, or None: the long way says why not."""
        scope = scope_of_path("POST", path)
        try:
            return self.service.guard.check(key_of(self.headers), scope or "any")
        except ServiceError:
            return None

    def on_message_complete(self) -> None:
        """Submit a hot call whose body is whole."""
        cycle: Any = self.cycle
        if type(cycle) is not HotCycle:
            super().on_message_complete()
        elif not self._submit(cycle):
            self._leave_to_uvicorn(cycle)

    def _submit(self, cycle: HotCycle) -> bool:
        """Hand the call's work to the batcher; False where it needs the long way."""
        service, call = self.service, cycle.call
        call.times.read = perf_counter()
        if call.content_length > service.settings.max_body_bytes:
            return False
        try:
            request: Any = parse(cycle.operation.request_model, bytes(cycle.body))
            entry = service.registry.entries.get(request.vocabulary)
            if entry is None:
                return False
            check_digest(entry, request.if_digest)
            if call.timeout_ms is not None:
                call.timeout_s = timeout_s(call.timeout_ms)
            CLIENT.set(cycle.client)
            work, cycle.render = cycle.operation.plan(service, call, entry, request)
        except ServiceError:
            return False
        service.metrics.received()
        cycle.future = self._accepted(cycle, work)
        cycle.future.add_done_callback(lambda future: self._answer(cycle, future))
        return True

    def _accepted(self, cycle: HotCycle, work: Work) -> asyncio.Future[Result]:
        """The future of the work, which has failed where it was refused."""
        try:
            self.service.guard.limits.admit(cycle.client)
            return self.service.batcher.submit(work)
        except ServiceError as error:
            refused: asyncio.Future[Result] = self.loop.create_future()
            refused.set_exception(error)
            return refused

    def _leave_to_uvicorn(self, cycle: HotCycle) -> None:
        """Begin the request anew as uvicorn's own, with the body that was read."""
        self.cycle = None  # type: ignore[assignment]
        super().on_headers_complete()
        self.cycle.body += cycle.body
        super().on_message_complete()

    def _answer(self, cycle: HotCycle, future: asyncio.Future[Result]) -> None:
        """Write the answer, or the refusal, in one piece."""
        service, call = self.service, cycle.call
        if future.cancelled() or cycle.disconnected:
            call.is_gone = True
            finish(service, call, cycle.path, CLIENT_CLOSED)
            return
        status, headers, body = self._outcome(cycle, future)
        headers = (*self.server_state.default_headers, *headers, *answer_headers(service, call))
        fields = [b"%b: %b\r\n" % pair for pair in headers]
        if not cycle.keep_alive:
            fields.append(b"connection: close\r\n")
        length = b"content-length: %d\r\n\r\n" % len(body)
        self.transport.write(b"".join((status_line(status), *fields, length, body)))
        cycle.response_complete = True
        if not cycle.keep_alive:
            self.transport.close()
        self.on_response_complete()
        finish(service, call, cycle.path, status)

    def _outcome(self, cycle: HotCycle, future: asyncio.Future[Result]) -> tuple[int, Any, bytes]:
        assert cycle.render is not None
        begin, call = perf_counter(), cycle.call
        try:
            body = b"".join(cycle.render(future.result()))
            serialized(self.service, call, perf_counter() - begin)
            return 200, JSON_TYPE, body
        except Exception as error:
            REQUEST_ID.set(call.request_id.decode())  # Of this callback's own context.
            refusal = as_service_error(error)
            call.refusal = refusal.code
            status, headers, body = problem(refusal)
            return status, [h for h in headers if h[0] != b"content-length"], body


@cache
def status_line(status: int) -> bytes:
    """The first line of an answer."""
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode()


def hot_protocol(service: Service) -> type[HotProtocol]:
    """A protocol class for uvicorn that belongs to one service."""
    return type("HotProtocol", (HotProtocol,), {"service": service})
