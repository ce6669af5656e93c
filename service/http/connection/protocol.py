"""The shortest way in: small hot calls answered in the HTTP parser's own callbacks.

uvicorn's protocol makes a task, an event and a cycle for each request and writes an answer twice,
head and body. A plain small POST to a hot path needs none of it:

    headers complete ─ plain, small, to a hot path? ─no──► uvicorn ─► hot_routes ─► FastAPI
                         │yes: HotCycle takes the body's place in the connection
    message complete ─ parse, plan ─ anything unusual? ─► uvicorn, with the body that was read
                         │
                       batcher.submit ─► result ─► one write

A head that a connection has sent before is known by its bytes (head_cache.py), and then not
even the parser sees the request.

All refusals found before the queue go uvicorn's way and are found there again, so that there
is one place that words them. Keep-alive, pipelining, time-outs and shutdown stay uvicorn's: it
sees the HotCycle as one of its own cycles. A test holds the answers of all ways byte-equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from service.core.context_vars import CLIENT, REQUEST_ID
from service.core.errors import ServiceError, nothing_came
from service.core.problem_details import as_service_error, problem
from service.core.request_head import header_call, read_timeout, repeated_call
from service.http.asgi_fast_path import FAST_PATH_CALLS
from service.http.body_takeover import PROTOCOL
from service.http.connection.h2c_upgrade import DecliningProtocol
from service.http.connection.head_cache import RepeatedHead
from service.http.connection.inline_call import HotCycle
from service.operations.operation import check_digest, parse
from service.security.scopes import key_of, scope_of_path

if TYPE_CHECKING:
    from service.operations.context import Service

MAX_INLINE_BYTES = 65_536  # Longer bodies take the way that streams their answers.
HOT_URLS = {path.encode(): (path, operation) for path, operation in FAST_PATH_CALLS.items()}
JSON = b"application/json"
JSON_TYPE = (b"content-type", JSON)
CLOSE = (b"connection", b"close")


class HotProtocol(DecliningProtocol):
    """uvicorn's protocol with the short way for hot calls; `service` is set by hot_protocol."""

    # The head of answers for as long as uvicorn's own fields, such as the date, are the same ones.
    answer_head: tuple[list[tuple[bytes, bytes]], bytes] = ([], b"")

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.between_messages = False
        self.known: tuple[RepeatedHead, HotCycle, int] | None = None

    def data_received(self, data: bytes) -> None:
        """Take a hot call whose head was sent before; leave everything else to the parser."""
        if self.known is not None and self._is_repeated(data, *self.known):
            return
        before = self.cycle
        super().data_received(data)
        cycle: Any = self.cycle
        if cycle is not before and type(cycle) is HotCycle and self.between_messages:
            head = RepeatedHead.of(data)
            if head is not None and head.body_of(data) == bytes(cycle.body):
                self.known = head, cycle, self.service.guard.generation

    def _is_repeated(self, data: bytes, head: RepeatedHead, first: HotCycle, keys: int) -> bool:
        """Whether the data were one more call with a known head, which is now on its way."""
        is_free = self.between_messages and self.cycle is not None and self.cycle.response_complete
        if not is_free or self.flow.write_paused or keys != self.service.guard.generation:
            return False
        body = head.body_of(data)
        if not body or len(body) > MAX_INLINE_BYTES:
            return False
        call = repeated_call(first.call, len(body))
        cycle = HotCycle(first.path, first.operation, call, first.client, self)
        before, self.cycle = self.cycle, cycle  # type: ignore[assignment]
        if self._submit(cycle, body):
            return True
        self.cycle = before
        return False

    def on_message_begin(self) -> None:
        """A request begins."""
        self.between_messages = False
        super().on_message_begin()

    def awaits_more(self) -> bool:
        """Whether a head, or a hot call's body, has not ended."""
        cycle: Any = self.cycle
        return self.in_head or (type(cycle) is HotCycle and not self.between_messages)

    def give_up(self) -> None:
        """Refuse a hot call whose body does not come; a head alone is no request yet."""
        cycle: Any = self.cycle
        if not self.in_head:
            self.service.metrics.received()
            cycle.set_exception(nothing_came(self.service.settings.stream_idle_timeout_s))
        super().give_up()

    def on_headers_complete(self) -> None:
        """Take a plain small POST to a hot path; leave everything else to uvicorn."""
        self.in_head = False
        cycle = self._hot_cycle()
        if cycle is None:
            self.scope["extensions"] = {PROTOCOL: self}  # type: ignore[dict-item]
            super().on_headers_complete()
        else:
            self.cycle = cycle  # type: ignore[assignment]

    def _hot_cycle(self) -> HotCycle | None:
        known = HOT_URLS.get(self.url)
        if known is None or self.parser.get_method() != b"POST" or self.is_declined:
            return None
        is_free = self.cycle is None or self.cycle.response_complete
        if not is_free or self.flow.write_paused or self.expect_100_continue:
            return None
        if self.parser.get_http_version() != "1.1" or not self.parser.should_keep_alive():
            return None
        client = self._client(self.url.decode()) if self.service.guard.has_keys else ""
        if client is None:
            return None
        call = header_call(self.headers)
        if call.encoding is not None or not 0 < call.content_length <= MAX_INLINE_BYTES:
            return None
        return HotCycle(*known, call, client, self) if call.media_type == JSON else None

    def _client(self, path: str) -> str | None:
        """The name of a key that may make this call, or None: the long way says why not."""
        scope = scope_of_path("POST", path)
        try:
            return self.service.guard.check(key_of(self.headers), scope or "any")
        except ServiceError:
            return None

    def on_message_complete(self) -> None:
        """Submit a hot call whose body is whole."""
        self.between_messages = True
        cycle: Any = self.cycle
        if type(cycle) is not HotCycle or self.is_declined:
            super().on_message_complete()
        elif not self._submit(cycle, bytes(cycle.body)):
            self._leave_to_uvicorn(cycle)

    def _submit(self, cycle: HotCycle, body: bytes) -> bool:
        """Hand the call's work to the batcher; False where it needs the long way."""
        service, call = self.service, cycle.call
        call.times.read = perf_counter()
        if call.content_length > service.settings.max_body_bytes:
            return False
        try:
            request: Any = parse(cycle.operation.request_model, body)
            entry = service.registry.entries.get(request.vocabulary)
            if entry is None:
                return False
            if request.if_digest is not None:
                check_digest(entry, request.if_digest)
            if call.timeout_ms is not None:
                read_timeout(call)
            CLIENT.set(cycle.client)
            work, cycle.render = cycle.operation.plan(service, call, entry, request)
        except ServiceError:
            return False
        service.metrics.received()
        work.future = cycle
        try:
            service.guard.limits.admit(cycle.client)
            service.batcher.submit(work)
        except ServiceError as error:
            cycle.set_exception(error)
        return True

    def _leave_to_uvicorn(self, cycle: HotCycle) -> None:
        """Begin the request anew as uvicorn's own, with the body that was read."""
        self.cycle = None  # type: ignore[assignment]
        super().on_headers_complete()
        self.cycle.body += cycle.body
        super().on_message_complete()

    def answer(self, cycle: HotCycle, body: bytes) -> None:
        """Write an answer in one piece."""
        fields, head = self.answer_head
        if fields is not self.server_state.default_headers:
            fields = self.server_state.default_headers
            head = head_of(200, (*fields, JSON_TYPE))
            type(self).answer_head = fields, head
        self._write(cycle, 200, head, body)

    def refuse(self, cycle: HotCycle, error: BaseException) -> None:
        """Write a refusal in one piece."""
        token = REQUEST_ID.set(cycle.call.request_id.decode())
        refusal = as_service_error(cast(Exception, error))
        REQUEST_ID.reset(token)
        cycle.call.refusal = refusal.code
        status, headers, body = problem(refusal)
        own = [field for field in headers if field[0] != b"content-length"]
        self._write(
            cycle, status, head_of(status, (*self.server_state.default_headers, *own)), body
        )

    def _write(self, cycle: HotCycle, status: int, head: bytes, body: bytes) -> None:
        own = b"".join(
            [b"%b: %b\r\n" % field for field in self.service.observer.answer_headers(cycle.call)]
        )
        if not cycle.keep_alive:
            own += b"%b: %b\r\n" % CLOSE
        self.transport.write(b"%b%bcontent-length: %d\r\n\r\n%b" % (head, own, len(body), body))
        cycle.response_complete = True
        if not cycle.keep_alive:
            self.transport.close()
        self.on_unseen_response_complete()
        self.service.observer.finish(cycle.call, cycle.path, status)


def head_of(status: int, fields: Sequence[tuple[bytes, bytes]]) -> bytes:
    """The first line of an answer and its fields, but for its length."""
    line = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode()
    return b"".join((line, *(b"%b: %b\r\n" % field for field in fields)))


def hot_protocol(service: Service) -> type[HotProtocol]:
    """A protocol class for uvicorn that belongs to one service."""
    return type("HotProtocol", (HotProtocol,), {"service": service})
