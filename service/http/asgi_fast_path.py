"""The fast path: pure ASGI in front of FastAPI for the most frequent calls.

    request ─► path of the fast path? ─no───────► FastAPI (everything else)
                  │yes
               POST, JSON? ─no──────────────────► FastAPI (bulk bodies)
                  │yes
               read body ─► operation ─► send

FastAPI declares the same paths for openapi.json, and answers requests with other bodies. The record
"ASGI fast path" in docs/decisions reports the time that this saves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from service.batching.work import ClientGone
from service.core.call import Call, get_call, read_timeout
from service.core.context_vars import REQUEST_ID
from service.core.errors import BodyTimeout, ServiceError, TooLarge, make_late_refusal
from service.core.problem_details import as_service_error, problem
from service.http.access import REFUSAL_KEY, check_access
from service.http.body.pace import PACE_KEY, BodyPace
from service.http.body.request_body import RequestBody, collect
from service.http.body.takeover import find_protocol
from service.http.cors import Cors
from service.http.error_responses import make_error_response
from service.http.query_options import refuse_options
from service.operations.chunks import CHUNKS
from service.operations.context import Service
from service.operations.decode import DECODE, DECODE_BATCH
from service.operations.encode import COUNT, ENCODE, ENCODE_BATCH
from service.operations.operation import LARGE_BYTES, Operation, answer
from service.operations.windows import WINDOWS
from service.security.scopes import OPEN_PREFIX

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

DIRECT_CALLS: dict[str, Operation] = {
    "/v1/encode": ENCODE,
    "/v1/encode/batch": ENCODE_BATCH,
    "/v1/count": COUNT,
    "/v1/decode": DECODE,
    "/v1/decode/batch": DECODE_BATCH,
}
"""Calls that a connection answers itself, because small bodies have small answers."""
FAST_PATH_CALLS = DIRECT_CALLS | {"/v1/windows": WINDOWS, "/v1/chunks": CHUNKS}
FOLDERS = ("/", OPEN_PREFIX)
"""Paths that end with a slash; it is removed from all other paths."""
JSON_TYPE = (b"content-type", b"application/json")
GRACE_S = 0.2  # Extra time for code that refuses late requests itself.
WHOLE_BYTES = 65_536  # The largest answer that is sent whole, with its length.


class AsgiFastPath:
    """An ASGI application that answers the fast path's calls, and passes others to FastAPI."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app = app
        self.service = service
        settings = service.settings
        self.cors = Cors(app, settings, service.heads) if settings.allows_cors else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        service, call, status = self.service, get_call(scope), 500
        call.address = scope["client"][0] if scope.get("client") else ""
        service.metrics.count_received()
        REQUEST_ID.set(call.request_id.decode())

        async def send_and_note(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                call.times.head = perf_counter()
                if service.draining and (protocol := find_protocol(scope)) is not None:
                    protocol.close_if_last()
                headers = message.get("headers", ())
                message["headers"] = [*headers, *service.observer.answer_headers(call)]
            else:
                pace.renew()
            await send(message)

        route = "unmatched"
        pace = scope[PACE_KEY] = BodyPace(service.settings, call)
        receive = _limit_wait(receive, pace)
        if scope["path"].endswith("/") and scope["path"] not in FOLDERS:
            scope["path"] = scope["path"][:-1]  # Same answer without the slash.
        try:
            if call.timeout_ms is None:
                route = await self._answer(scope, call, receive, send_and_note)
            else:
                route = await self._answer_in_time(scope, call, receive, send_and_note)
        except BaseException:
            status = 500
            raise
        finally:
            call.receive = None  # Break a cycle: it refers to the call.
            if call.refusal == BodyTimeout.code:
                service.closed_connections.note("slow_body", call.address)
            # Requests of FastAPI's routes are counted by the route's template, not by the path.
            template = getattr(scope.get("route"), "path_format", route)
            service.observer.finish(call, template, status)

    async def _answer_in_time(self, scope: Scope, call: Call, receive: Receive, send: Send) -> str:
        """Answer a request as `_answer` does; refuse it if its deadline passes before that.

        The reader of the body and the batcher refuse late requests themselves, with a more precise
        reason; this deadline limits all other waits, such as that for a vocabulary to be loaded.
        """
        with suppress(ServiceError):  # Refused when it is read again.
            read_timeout(call)

        async def send_and_stay(message: Any) -> None:
            limit.reschedule(None)
            await send(message)

        try:
            loop_s = asyncio.get_running_loop().time() - perf_counter()
            end_s = None if call.ends_at == inf else call.ends_at + GRACE_S + loop_s
            async with asyncio.timeout_at(end_s) as limit:
                return await self._answer(scope, call, receive, send_and_stay)
        except TimeoutError:
            if not limit.expired():
                raise
            refusal = make_late_refusal("the answer began")
            call.refusal = refusal.code
            await make_error_response(scope["path"], refusal)(scope, receive, send)
            return "late"

    async def _answer(self, scope: Scope, call: Call, receive: Receive, send: Send) -> str:
        """Answer a request; return its path in the metrics, used if FastAPI has no route for it."""
        if self.cors is not None and REFUSAL_KEY not in scope:
            if await self.cors.answer_preflight(scope, receive, send):
                return "preflight"
            send = self.cors.wrap(scope, send)
        try:
            check_access(self.service, scope)
        except ServiceError as error:
            error.__traceback__ = None  # Break a cycle: scope, error.
            await make_error_response(scope["path"], error)(scope, receive, send)
            return "refused"
        operation = FAST_PATH_CALLS.get(scope["path"])
        is_json = call.media_type == b"application/json"
        if operation is None or scope["method"] != "POST" or not is_json:
            await self._pass_on(scope, receive, send)
            return "unmatched"
        call.receive = receive
        try:
            await respond(self.service, operation, call, receive, send)
        except ClientGone:
            call.is_gone = True
        return cast(str, scope["path"])

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to FastAPI; suppress exceptions that it raises after a complete answer.

        Such exceptions have been logged.
        """
        is_whole = False

        async def send_and_note(message: Any) -> None:
            nonlocal is_whole
            await send(message)
            is_whole = message["type"] == "http.response.body" and not message.get("more_body")

        try:
            await self.app(scope, receive, send_and_note)
        except Exception:
            if not is_whole:  # The server then ends the connection.
                raise


def _limit_wait(receive: Receive, pace: BodyPace) -> Receive:
    """Wrap `receive` so that it raises BodyTimeout if the body arrives too slowly."""
    is_whole = False

    async def receive_in_time() -> Message:
        nonlocal is_whole
        if is_whole:  # After the body only a disconnect can follow, at any time.
            return await receive()
        begin = perf_counter()
        try:
            async with asyncio.timeout(pace.wait_s):
                message = await receive()
        except TimeoutError as error:
            raise pace.make_refusal() from error
        is_whole = not message.get("more_body", False)
        if not is_whole:
            pace.add(len(message.get("body", b"")), perf_counter() - begin)
            if pace.is_too_slow:
                raise pace.make_refusal()
        return message

    return receive_in_time


async def read_body(receive: Receive, max_bytes: int, setting: str = "max_body_bytes") -> bytes:
    """Read a whole request body.

    Args:
        receive: the ASGI callable.
        max_bytes: the maximum size of the body.
        setting: the name of the setting for this limit, for the refusal.

    Raises:
        TooLarge: the body is longer than `max_bytes`; the rest was not read.
        ClientGone: the client disconnected before the end of the body.
    """
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGone
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False) and len(body) <= max_bytes:
        return body
    pieces, size = [body], len(body)
    while True:
        if size > max_bytes:
            raise TooLarge(f"the body has more than {max_bytes} bytes (setting {setting})")
        if not message.get("more_body", False):
            return b"".join(pieces)
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])


async def respond(
    service: Service,
    operation: Operation,
    call: Call,
    receive: Receive,
    send: Send,
) -> None:
    """Read the body of one call, and send its answer, or a problem document if it is refused."""
    try:
        max_bytes = service.settings.max_body_bytes
        if call.content_length > max_bytes:
            limit = f"max_body_bytes is {max_bytes}"
            raise TooLarge(f"the body has {call.content_length} bytes; {limit}")
        if call.encoding is None:
            body = await read_body(receive, max_bytes)
        else:
            compressed = RequestBody(receive, call.encoding, max_bytes)
            body = bytes(await collect(compressed, call.content_length))
        read_timeout(call)
        refuse_options(call.query, (), "options of a JSON body stand in the body")
        pieces = await answer(service, operation, body, call)
        is_large = len(body) > LARGE_BYTES
        service.observer.add_serialize_time(call, await send_pieces(send, pieces, is_large))
    except (ClientGone, asyncio.CancelledError):
        raise
    except Exception as error:
        await send_problem(send, call, error)


async def send_problem(send: Send, call: Call, error: Exception) -> None:
    """Send the problem document of an exception, and record its error code in the call."""
    refusal = as_service_error(error)
    call.refusal = refusal.code
    status, headers, document = problem(refusal)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": document})
    # Break a cycle: the traceback refers to the text, whose work item refers to the error.
    error.__traceback__ = None


async def send_pieces(send: Send, pieces: Iterable[bytes], is_large: bool = False) -> float:
    """Send a small answer whole, with its length, and a large one in pieces.

    Args:
        send: the ASGI callable.
        pieces: an iterator that computes the pieces of the answer.
        is_large: compute the pieces in a thread, as each may take long.

    Returns:
        The seconds that computing the pieces took.
    """
    iterator, seconds = iter(pieces), 0.0

    async def next_body() -> bytes:
        nonlocal seconds
        begin = perf_counter()
        body = await asyncio.to_thread(_gather, iterator) if is_large else _gather(iterator)
        seconds += perf_counter() - begin
        return body

    body = await next_body()
    rest = await next_body() if len(body) > WHOLE_BYTES else b""
    start: dict[str, Any] = {"type": "http.response.start", "status": 200, "headers": [JSON_TYPE]}
    if not rest:
        start["headers"].append((b"content-length", b"%d" % len(body)))
        await send(start)
        await send({"type": "http.response.body", "body": body})
        return seconds
    await send(start)
    await send({"type": "http.response.body", "body": body, "more_body": True})
    while rest:
        await send({"type": "http.response.body", "body": rest, "more_body": True})
        await asyncio.sleep(0)
        rest = await next_body()
    await send({"type": "http.response.body", "body": b""})
    return seconds


def _gather(iterator: Iterator[bytes]) -> bytes:
    """Join the next pieces until they exceed WHOLE_BYTES; return b"" at the end."""
    gathered: list[bytes] = []
    size = 0
    for piece in iterator:
        gathered.append(piece)
        size += len(piece)
        if size > WHOLE_BYTES:
            break
    return b"".join(gathered)
