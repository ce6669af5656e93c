"""The short way in: pure ASGI in front of FastAPI for the calls that come by the thousand.

    request ─► path in HOT? ─no─────────────────► FastAPI (everything else, and the reference)
                  │yes
               POST, JSON? ─no──────────────────► FastAPI
                  │yes
               read body ─► *_answers ─► send

FastAPI declares the same paths and calls the same functions; a test holds both answers byte-equal.
What this saves is measured by benchmarks/http.py (see README.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from time import perf_counter
from typing import TYPE_CHECKING, Any

from service.access import key_of, scope_of_path
from service.bodies import Body, collect
from service.calls import Call, Operation, answer
from service.decode_answers import DECODE, DECODE_BATCH
from service.encode_answers import COUNT, ENCODE, ENCODE_BATCH
from service.errors import InvalidRequest, ServiceError, TooLarge, problem
from service.refusals import refused
from service.state import Service
from service.work import CLIENT, ClientGone

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = [
    "HOT",
    "HotRoutes",
    "admit",
    "count_gone",
    "header_call",
    "json_call",
    "read_body",
    "respond",
    "send_pieces",
    "timeout_s",
]

HOT: dict[str, Operation] = {
    "/v1/encode": ENCODE,
    "/v1/encode/batch": ENCODE_BATCH,
    "/v1/count": COUNT,
    "/v1/decode": DECODE,
    "/v1/decode/batch": DECODE_BATCH,
}
JSON_TYPE = (b"content-type", b"application/json")
CONTROL = frozenset(map(chr, (*range(32), 127)))
GONE_MARK = "warptok.gone"
WHOLE_BYTES = 65_536  # An answer up to this size is sent at once, with its length.


class HotRoutes:
    """Answers the hot calls itself and hands everything else to the application behind it."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One ASGI connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            self.service.metrics.received()
            check_access(self.service, scope)
        except ServiceError as error:
            await refused(scope["path"], error)(scope, receive, send)
            self.service.metrics.requests("refused", error.status, 0.0)
            return
        operation = HOT.get(scope["path"])
        call = None
        if operation is not None and scope["method"] == "POST":
            call = json_call(scope["headers"])
        if operation is None or call is None:
            await self._other(scope, receive, send)
            return
        begin = perf_counter()
        call.receive = receive
        try:
            status = await respond(self.service, operation, call, receive, send)
        except ClientGone:
            self.service.metrics.cancelled()
            return
        self.service.metrics.requests(scope["path"], status, perf_counter() - begin)

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        """FastAPI's answer, counted under its route's template and not under each path."""
        begin, status = perf_counter(), 500

        async def send_and_note(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, send_and_note)
        except BaseException:
            status = 500
            raise
        finally:
            route = getattr(scope.get("route"), "path", "unmatched")
            if not scope.get(GONE_MARK):
                self.service.metrics.requests(route, status, perf_counter() - begin)


def count_gone(service: Service, scope: Scope) -> None:
    """Count a request whose client left; it is then not counted as answered."""
    scope[GONE_MARK] = True
    service.metrics.cancelled()


def admit(service: Service, client: str) -> None:
    """Raises RateLimited where a client has asked for too much; counts the request."""
    try:
        service.guard.limits.admit(client)
    except ServiceError as error:
        service.metrics.rejected(error.code)
        raise


def check_access(service: Service, scope: Scope) -> None:
    """Raises ServiceError where a request may not be made with the key that it has, or has not."""
    path = scope["path"]
    if not CONTROL.isdisjoint(path):  # Routes and scopes would not read it alike.
        raise InvalidRequest("has a control character", "path")
    needed = scope_of_path(scope["method"], path)
    if needed is not None:
        client = service.guard.check(key_of(scope["headers"]), needed)
        admit(service, client)
        CLIENT.set(client)


def json_call(headers: list[tuple[bytes, bytes]]) -> Call | None:
    """What the headers of a POST say, or None where its body is no JSON."""
    call = header_call(headers)
    return call if call.media_type == b"application/json" else None


def header_call(headers: list[tuple[bytes, bytes]]) -> Call:
    """What the headers of a POST say."""
    call = Call()
    for name, value in headers:
        if name == b"content-type":
            call.media_type = value.split(b";")[0].strip().lower()
        elif name == b"content-length":
            call.content_length = int(value) if value.isdigit() else 0
        elif name == b"content-encoding" and value.lower() != b"identity":
            call.encoding = value.decode("latin-1")
        elif name == b"x-request-timeout-ms":
            call.timeout_ms = value
    return call


async def read_body(receive: Receive, max_bytes: int, setting: str = "max_body_bytes") -> bytes:
    """A whole request body.

    Raises:
        TooLarge: it is longer than `max_bytes`; the rest was not read.
        ClientGone: the connection ended before the body did.
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
            raise TooLarge(f"the body has more than {max_bytes} bytes ({setting})")
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
) -> int:
    """Read, answer and send one call; every refusal is a problem document.

    Returns:
        The HTTP status that was sent.
    """
    try:
        max_bytes = service.settings.max_body_bytes
        if call.content_length > max_bytes:
            limit = f"max_body_bytes is {max_bytes}"
            raise TooLarge(f"the body has {call.content_length} bytes; {limit}")
        if call.encoding is None:
            body = await read_body(receive, max_bytes)
        else:
            packed = Body(receive, call.encoding, max_bytes)
            body = bytes(await collect(packed, call.content_length))
        if call.timeout_ms is not None:
            call.timeout_s = timeout_s(call.timeout_ms)
        answered = await answer(service, operation, body, call)
        begin = perf_counter()
        await send_pieces(send, answered)
        service.metrics.stage("serialize", perf_counter() - begin)
    except (ClientGone, asyncio.CancelledError):
        raise
    except Exception as error:
        status, headers, document = problem(error)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": document})
        return status
    return 200


def timeout_s(value: bytes) -> float:
    """The client's deadline from ``X-Request-Timeout-Ms``.

    Raises:
        InvalidRequest: it is not a positive whole number.
    """
    if not value.isdigit() or len(value) > 15 or int(value) == 0:
        raise InvalidRequest("must be a positive number of milliseconds", "X-Request-Timeout-Ms")
    return int(value) / 1000


async def send_pieces(send: Send, pieces: Iterable[bytes]) -> None:
    """A small answer whole, with its length; a large one piece by piece, the loop kept free."""
    gathered: list[bytes] = []
    size = 0
    iterator = iter(pieces)
    for piece in iterator:
        gathered.append(piece)
        size += len(piece)
        if size > WHOLE_BYTES:
            break
    body = b"".join(gathered)
    start: dict[str, Any] = {"type": "http.response.start", "status": 200}
    rest = next(iterator, None) if size > WHOLE_BYTES else None
    if rest is None:
        start["headers"] = [JSON_TYPE, (b"content-length", b"%d" % size)]
        await send(start)
        await send({"type": "http.response.body", "body": body})
        return
    start["headers"] = [JSON_TYPE]
    await send(start)
    await send({"type": "http.response.body", "body": body, "more_body": True})
    while rest is not None:
        await send({"type": "http.response.body", "body": rest, "more_body": True})
        await asyncio.sleep(0)
        rest = next(iterator, None)
    await send({"type": "http.response.body", "body": b""})
