"""The shortest path of a request: small calls are answered in the callbacks of the HTTP parser.

uvicorn's protocol creates a task, an event and a cycle object for each request, and writes the head
and the body of an answer separately. A small POST request to a path of the fast path needs none of
these, if it has no unusual options:

    headers complete ─ plain, small, of the fast path? ─no──► uvicorn ─► asgi_fast_path ─► FastAPI
                         │yes: the connection's cycle is a DirectCall
    message complete ─ parse, plan ─ anything unusual? ─► uvicorn, with the body that was read
                         │
                       batcher.submit ─► result ─► one write

A head that arrived on the connection before is recognized by its bytes (direct_call.py), and the
request is not parsed.

A request that is refused before it enters the queue is passed to uvicorn, where the application
refuses it again, so that only one place writes refusals. uvicorn implements keep-alive, pipelining
and shutdown, and uses a DirectCall like its own cycle objects. A test compares the answers of all
paths byte by byte.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import select
import socket
import sys
import weakref
from collections.abc import Callable
from time import perf_counter
from typing import Any

from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from service.core.call import SCOPE_KEY, Call, read_call, read_timeout
from service.core.context_vars import CLIENT
from service.core.errors import BodyTimeout, ServiceError, TooManyConnections
from service.http.access import REFUSAL_KEY
from service.http.asgi_fast_path import DIRECT_CALLS
from service.http.body.pace import BodyPace
from service.http.body.takeover import PROTOCOL
from service.http.connection.connection_limits import ConnectionLimits
from service.http.connection.direct_call import (
    AnswerHead,
    DirectCall,
    HeadCache,
    ResponseWriter,
    do_nothing,
)
from service.http.connection.upgrade_filter import UpgradeFilter
from service.operations.context import Service
from service.operations.operation import check_digest, parse
from service.security.scopes import PROBES, find_key, find_path_scope

MAX_DIRECT_BYTES = 65_536  # asgi_fast_path streams the answers to larger bodies.
MAX_HEAD_BYTES = 1 << 20  # Four times the maximum size of one read.
DIRECT_URLS = {path.encode(): (path, call) for path, call in DIRECT_CALLS.items()}
JSON = b"application/json"
UNREAD_S = 0.1  # Restart time of a timer while data are unread.
LINGER_S = 1  # How long idle connections stay open after the port has closed.


class _Trailers(list[tuple[bytes, bytes]]):
    """Ignores the trailer fields after a body, which are not part of the head."""

    @override
    def append(self, field: tuple[bytes, bytes]) -> None:
        pass


def is_unix_socket(transport: asyncio.BaseTransport) -> bool:
    """Return whether a transport belongs to a connection on a Unix socket."""
    family = getattr(transport.get_extra_info("socket"), "family", None)
    return family == socket.AF_UNIX


def has_unread(transport: asyncio.BaseTransport) -> bool:
    """Return whether an open connection has received data that the loop has not read yet.

    A loop that was busy runs expired timers before it reads again.
    """
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(poll.poll(0))


class IdleTimer:
    """Calls a function after some seconds, unless it is cancelled before.

    Args:
        loop: the event loop of the connection.
        idle_s: the number of seconds to wait.
        call: the function.
    """

    __slots__ = ("_call", "_handle", "_idle_s", "_loop")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, idle_s: float, call: Callable[[], object]
    ) -> None:
        self._loop = loop
        self._idle_s = idle_s
        self._call = call
        self._handle: asyncio.TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        """Whether the timer was started and has neither been cancelled nor expired."""
        return self._handle is not None

    def start(self, seconds: float | None = None) -> None:
        """Start or restart the timer with `seconds`, or with `idle_s` if None."""
        self.cancel()
        self._handle = self._loop.call_later(
            self._idle_s if seconds is None else max(0.0, seconds), self._run
        )

    def _run(self) -> None:
        self._handle = None
        self._call()

    def cancel(self) -> None:
        """Stop the timer."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def close(self) -> None:
        """Stop the timer for good, and drop the reference to the function."""
        self.cancel()
        self._call = do_nothing


def _close_unread(cycle: RequestResponseCycle, app: Any) -> Any:
    """Return an application whose answer closes the connection if no 100 has asked for the body.

    The client may then send the body or not, so where the next request would begin is unknown.
    """

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        async def send_last(message: Any) -> None:
            if cycle.waiting_for_100_continue:
                cycle.keep_alive = False
            await send(message)

        await app(scope, receive, send_last)

    return answer


class FastPathProtocol(HttpToolsProtocol):
    """uvicorn's protocol, extended to answer small calls of the fast path itself.

    It also limits the time for a head, the pace of a direct call's body, and the time in which the
    client reads nothing. asgi_fast_path.py limits the bodies that routes read.

    Args:
        service: the service that answers the calls.
        answer_head: the start of answers, shared by all connections.
        limits: the limits on connections, shared by all connections.

    Attributes:
        address: the address at the other end; "" if it has none.
        is_proxied: whether that address belongs to a trusted proxy.
        rules: the rules for the heads of requests.
        allows_cors: whether web pages of other origins may read answers.
        exceeded: the setting that the number of connections exceeds; "" if it exceeds none.
        in_head: whether the head of a request has begun and not ended.
        head_bytes: the number of bytes that arrived after the data in which that head began.
        head_deadline: the loop's time at which the head must have ended; 0 if none is awaited.
        pace: the pace of a direct call's body that has arrived in part; None if there is none.
        fed_at: the loop's time at which the last part of that body arrived.
        between_messages: whether the last request that began has ended.
        has_waited: whether the request that is being answered arrived before the answer to the
            previous one.
        is_pipelining: whether a request has arrived while such a request was being answered: the
            client sends further requests without waiting for all answers.
        waiting_since: the loop's time at the end of the last answer, or at the connection's start.
        running: the last request that uvicorn has begun to answer; others may wait after it.
    """

    writer: ResponseWriter
    reading: IdleTimer
    writing: IdleTimer

    def __init__(
        self,
        *arguments: Any,
        service: Service,
        answer_head: AnswerHead,
        limits: ConnectionLimits,
        **named: Any,
    ) -> None:
        super().__init__(*arguments, **named)
        self.service = service
        self.answer_head = answer_head
        self.limits = limits
        self.address = ""
        self.rules = service.heads
        self.allows_cors = service.settings.allows_cors
        self.is_proxied = False
        self.exceeded = ""
        self.has_sent_head = False
        self.heads = HeadCache()
        self.upgrades = UpgradeFilter()
        self.in_head = False
        self.head_bytes = 0
        self.head_deadline = 0.0
        self.pace: BodyPace | None = None
        self.fed_at = 0.0
        self.between_messages = False
        self.has_waited = False
        self.is_pipelining = False
        self.waiting_since = 0.0
        self.running: RequestResponseCycle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.waiting_since = self.loop.time()
        settings = self.service.settings
        self.reading = IdleTimer(self.loop, settings.head_timeout_s, self._nothing_came)
        self.writing = IdleTimer(self.loop, settings.stream_idle_timeout_s, self._nothing_read)
        self.address = self.client[0] if self.client else ""
        if is_unix_socket(transport):
            self.rules = self.service.unix_heads
        self.is_proxied = self.address in self.limits.proxies
        self.exceeded = self.limits.add(self)
        self.head_deadline = self.loop.time() + settings.head_timeout_s
        self.reading.start()
        self.writer = ResponseWriter(
            transport,
            self.server_state,
            self.service,
            self.answer_head,
            self.close_if_last,
            self._on_direct_complete,
        )

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.limits.remove(self)
        # uvicorn informs only the last request that has arrived.
        if self.running is not None and not self.running.response_complete:
            self.running.disconnected = True
            self.running.message_event.set()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        # Remove the reference cycles, so that the protocol is freed at once. With a thousand new
        # connections per second, the garbage collector would stop the loop for 100 ms.
        self.writing.close()
        self.reading.close()
        self.writer.close()
        for cycle, _ in self.pipeline:  # They never run.
            cycle.on_response = do_nothing
        self.pipeline.clear()

    @override
    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self.running = cycle
        if cycle.waiting_for_100_continue:
            app = _close_unread(cycle, app)
        super()._start_asgi_task(cycle, app)

    def abort(self) -> None:
        """Close the connection, and discard unsent bytes."""
        self.transport.abort()

    def _nothing_read(self) -> None:
        """Close the connection, whose client has read nothing for too long."""
        self.service.closed_connections.note("slow_read", self.address)
        self.transport.abort()

    def _limit_last_write(self) -> None:
        """Limit the wait for the client to read the rest, if the connection is being closed."""
        is_unread = self.transport.is_closing() and self.transport.get_write_buffer_size()
        if is_unread and not self.writing.is_running:
            self.writing.start()

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        self.writing.start()

    @override
    def resume_writing(self) -> None:
        super().resume_writing()
        self.writing.cancel()

    @override
    def data_received(self, data: bytes) -> None:
        if self.heads.first is not None and self.try_repeated_request(data):
            return
        last_cycle, received = self.cycle, data
        while data:  # Any of several requests may offer an upgrade to decline.
            self.upgrades.begin(data)
            self._feed(data)
            data = self.upgrades.pop_rewritten()
        cycle: Any = self.cycle
        if cycle is not last_cycle and type(cycle) is DirectCall and self.between_messages:
            self.heads.remember(received, cycle, self.service.guard.generation)

    def try_repeated_request(self, data: bytes) -> bool:
        """Submit the request if its head equals the cached one; return whether it did."""
        is_free = self.between_messages and self.cycle is not None and self.cycle.response_complete
        if not is_free or self.flow.write_paused:
            return False
        body = self.heads.find_body(data, self.service.guard.generation)
        if not body or len(body) > MAX_DIRECT_BYTES:
            return False
        direct = self.heads.make_call(len(body))
        last_cycle = self.cycle
        self.cycle = direct  # type: ignore[assignment]
        if self._submit(direct, body):
            self.head_deadline = 0.0
            return True
        self.cycle = last_cycle
        return False

    def _feed(self, data: bytes) -> None:
        """Pass data to the parser, and limit the wait for the rest of the request."""
        self.reading.cancel()
        if self.in_head:
            self.head_bytes += len(data)
            if self.head_bytes > MAX_HEAD_BYTES:
                self._refuse_head()
                return
        super().data_received(data)
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if not (is_answering and self.between_messages) and not self.transport.is_closing():
            self._limit_wait(len(data))

    def _limit_wait(self, num_bytes: int) -> None:
        """Limit the wait for the rest of a head or body that the client has begun.

        Args:
            num_bytes: the size of the data that have arrived.
        """
        if self._awaits_head():
            now = self.loop.time()
            if not self.head_deadline:
                self.head_deadline = now + self.service.settings.head_timeout_s
            self.reading.start(self.head_deadline - now)
        elif self._awaits_body():
            now = self.loop.time()
            if self.pace is None:
                self.pace = BodyPace(self.service.settings, self._start_body())
            else:
                self.pace.add(num_bytes, now - self.fed_at)
            self.fed_at = now
            self.reading.start(0.0 if self.pace.is_too_slow else self.pace.wait_s)

    def _start_body(self) -> Call:
        """Return the call whose body is awaited; an invalid timeout is refused after the body."""
        cycle: Any = self.cycle
        if type(cycle) is not DirectCall:
            return Call()
        call: Call = cycle.call
        with contextlib.suppress(ServiceError):
            read_timeout(call)
        return call

    @override
    def on_message_begin(self) -> None:
        self.between_messages = False
        self.in_head = True
        self.head_bytes = 0
        super().on_message_begin()

    @override
    def on_headers_complete(self) -> None:
        self.in_head = False
        self.head_deadline = 0.0
        self.pace = None
        if self.upgrades.is_offer(self.parser):
            return  # The request is parsed again without the offer.
        if not self.has_sent_head:
            self.has_sent_head = True
            self.limits.note_head(self)
        version = self.parser.get_http_version()
        refusal = self.rules.find_fault(version, self.url, self.headers)
        if refusal is None and not self.exceeded:
            direct = self._make_direct_call(version)
            if direct is not None:
                self.cycle = direct  # type: ignore[assignment]
                return
        self.scope["extensions"] = {PROTOCOL: weakref.ref(self)}  # type: ignore[dict-item]
        super().on_headers_complete()
        if self.pipeline and self.has_waited:
            self.is_pipelining = True
        if self.exceeded:
            refusal = refusal or self._find_surplus_refusal()
            self.cycle.keep_alive = False
        if refusal is not None:
            self.scope[REFUSAL_KEY] = refusal  # type: ignore[literal-required]
        self.headers = _Trailers()

    def _find_surplus_refusal(self) -> ServiceError | None:
        """Return the refusal of a request on a surplus connection; None if it is a probe."""
        if self.scope["path"].removesuffix("/") in PROBES:
            return None
        self.service.closed_connections.note("no_room", self.address)
        return TooManyConnections(f"too many connections are open ({self.exceeded})")

    def _make_direct_call(self, version: str) -> DirectCall | None:
        """Create the call of a plain small POST to a fast path; None for other requests."""
        found = DIRECT_URLS.get(self.url)
        if found is None or self.parser.get_method() != b"POST":
            return None
        is_free = self.cycle is None or self.cycle.response_complete
        if not is_free or self.flow.write_paused or self.expect_100_continue:
            return None
        if version != "1.1" or not self.parser.should_keep_alive():
            return None
        if self.allows_cors and any(name == b"origin" for name, _ in self.headers):
            return None  # From a web page; its answer needs CORS headers.
        path, operation = found
        key = self._find_key(path) if self.service.guard.has_keys else ""
        if key is None:
            return None
        call = read_call(self.headers)
        call.key = key
        call.address = self.address
        if self.is_proxied:
            call.address = self.limits.proxies.find_client(self.address, self.headers)
        if call.encoding is None and 0 < call.content_length <= MAX_DIRECT_BYTES:
            if call.media_type == JSON:
                return DirectCall(path, operation, call, self.writer)
        self.scope[SCOPE_KEY] = call  # type: ignore[literal-required]
        return None

    def _find_key(self, path: str) -> str | None:
        """Return the name of the client's key; None if the key does not allow the path."""
        needed_scope = find_path_scope("POST", path)
        try:
            return self.service.guard.check(find_key(self.headers), needed_scope or "any")
        except ServiceError:
            return None

    @override
    def on_message_complete(self) -> None:
        self.between_messages = True
        if self.upgrades.is_offer(self.parser):
            return
        cycle: Any = self.cycle
        if type(cycle) is not DirectCall:
            super().on_message_complete()
        elif not self._submit(cycle, bytes(cycle.body)):
            self._leave_to_uvicorn(cycle)

    def _submit(self, direct: DirectCall, body: bytes) -> bool:
        """Submit the call's work item to the batcher; return False if uvicorn must answer."""
        service, call = self.service, direct.call
        call.times.read = perf_counter()
        if call.content_length > service.settings.max_body_bytes:
            return False
        try:
            request: Any = parse(direct.operation.request_model, body)
            registry, name = service.registry, request.vocabulary
            entry = registry.entries.get(name) or registry.entries.get(
                registry.aliases.get(name, "")
            )
            if entry is None:
                return False
            call.vocabulary = entry.name
            if request.if_digest is not None:
                check_digest(entry, request.if_digest)
            if call.timeout_ms is not None:
                read_timeout(call)
            CLIENT.set(call.key)
            work, direct.render = direct.operation.plan(service, call, entry, request)
        except ServiceError:
            return False
        service.metrics.count_received()
        work.future = direct
        try:
            if call.key:  # Only keys have rates.
                service.guard.limits.admit(call.key)
            service.batcher.submit(work)
        except ServiceError as error:
            direct.set_exception(error)
        return True

    def _leave_to_uvicorn(self, direct: DirectCall) -> None:
        """Pass a request to uvicorn, with its head and the body that was read."""
        self.cycle = None  # type: ignore[assignment]
        self.scope[SCOPE_KEY] = direct.call  # type: ignore[literal-required]
        self.scope["extensions"] = {PROTOCOL: weakref.ref(self)}  # type: ignore[dict-item]
        super().on_headers_complete()
        self.cycle.body += direct.body
        super().on_message_complete()

    def _awaits_head(self) -> bool:
        """Return whether a head, or its rest, is awaited and no other timer limits the wait."""
        cycle: Any = self.cycle
        if self.in_head or cycle is None:
            return True
        is_idle = self.between_messages and cycle.response_complete
        return is_idle and self.timeout_keep_alive_task is None

    def _awaits_body(self) -> bool:
        """Return whether the rest of a body is awaited that no route reads."""
        cycle: Any = self.cycle
        if self.between_messages or self.in_head or cycle is None:
            return False
        return type(cycle) is DirectCall or cycle.response_complete

    def _nothing_came(self) -> None:
        """End a request that has not arrived in time, unless there is a reason to wait longer."""
        if self.transport.is_closing():
            return
        if has_unread(self.transport):
            self.reading.start(UNREAD_S)
        elif self.in_head and self.cycle is not None and not self.cycle.response_complete:
            self.reading.start()  # The previous request is being answered.
        elif self._awaits_head():
            self.service.closed_connections.note(
                "slow_head" if self.in_head else "silent", self.address
            )
            self.transport.close()
        elif self._awaits_body():
            self._refuse_body()

    def _refuse_body(self) -> None:
        """Refuse a direct call whose body arrives too slowly, and close the connection."""
        cycle: Any = self.cycle
        assert self.pace is not None
        refusal = self.pace.make_refusal()
        if isinstance(refusal, BodyTimeout):
            self.service.closed_connections.note("slow_body", self.address)
        if type(cycle) is DirectCall and not cycle.response_complete:
            self.service.metrics.count_received()
            cycle.set_exception(refusal)
        self.transport.close()
        self._limit_last_write()

    def _refuse_head(self) -> None:
        """Refuse a head that is too long; close the connection if an answer is in progress."""
        message = f"The head of the request has more than {MAX_HEAD_BYTES} bytes."
        if self.cycle is None or self.cycle.response_complete:
            self.send_400_response(message)
        else:
            self.service.closed_connections.note("bad_head", self.address)
            self.transport.close()

    @override
    def _unsupported_upgrade_warning(self) -> None:
        # uvicorn calls this when it handles HttpParserUpgrade(end of the head).
        error = sys.exception()
        if error is not None and self.upgrades.is_offer(self.parser):
            self.upgrades.decline(self.parser, self.url, self.headers, error.args[0])
            self.parser = type(self.parser)(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

    @override
    def on_response_complete(self) -> None:
        self.has_waited = bool(self.pipeline)
        super().on_response_complete()
        if not self.cycle.keep_alive:
            self._limit_last_write()
        self.waiting_since = self.loop.time()

    def _on_direct_complete(self) -> None:
        """Wait for the next request; the keep-alive timer kept running during the call.

        uvicorn stops its timer when data arrive, and starts another one after each answer. A direct
        call does neither: when the timer expires, it restarts for the time that remains since the
        last answer.
        """
        if self.timeout_keep_alive_task is None or self.pipeline or self.transport.is_closing():
            self.on_response_complete()
            return
        self.server_state.total_requests += 1
        self.waiting_since = self.loop.time()
        self.flow.resume_reading()

    def close_if_last(self) -> None:
        """Close the connection with the answer that begins, unless another request has arrived.

        Called before each answer while the service drains. Clients then send their next request on
        a new connection, which a load balancer assigns to another replica. A connection that may be
        receiving a request stays open, as the request would be lost. So does one whose client sends
        requests without waiting for all answers, until new requests are refused: a request that
        arrives at a closed connection makes the system discard answers that are not yet sent.
        """
        if self.is_pipelining and not self.service.batcher.is_draining:
            return
        if self.between_messages and not self.pipeline and not has_unread(self.transport):
            self.cycle.keep_alive = False

    @override
    def shutdown(self) -> None:
        """Close the connection as soon as it has been idle for LINGER_S.

        Called after the port has closed. A client that has just connected, or has just received an
        answer without `Connection: close`, may be sending a request.
        """
        self.timeout_keep_alive = LINGER_S
        if self.cycle is not None and not self.cycle.response_complete:
            return  # The answer closes the connection, or starts the timer.
        if self.in_head:
            self.waiting_since = self.loop.time()
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_handler()

    @override
    def send_400_response(self, msg: str) -> None:
        self.service.closed_connections.note("bad_head", self.address)
        super().send_400_response(msg)
        self._limit_last_write()

    @override
    def timeout_keep_alive_handler(self) -> None:
        self.timeout_keep_alive_task = None
        if self.cycle is not None and not self.cycle.response_complete:
            return  # The end of the answer starts the timer.
        remaining_s = self.waiting_since + self.timeout_keep_alive - self.loop.time()
        if remaining_s <= 0 and not self.transport.is_closing() and has_unread(self.transport):
            remaining_s = UNREAD_S  # The next request has arrived, and will stop the timer.
        if remaining_s > 0:
            handler = self.timeout_keep_alive_handler
            self.timeout_keep_alive_task = self.loop.call_later(remaining_s, handler)
        else:
            super().timeout_keep_alive_handler()
            self._limit_last_write()


def make_protocol(service: Service) -> functools.partial[FastPathProtocol]:
    """Return the function that uvicorn calls to create the protocol of each connection."""
    limits = ConnectionLimits(service.settings, service.closed_connections)
    service.metrics.gauges.connections = lambda: (limits.num_open, limits.limit)
    return functools.partial(
        FastPathProtocol, service=service, answer_head=AnswerHead(), limits=limits
    )
