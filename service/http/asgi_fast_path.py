"""The fast path: pure ASGI in front of FastAPI for the calls that come by the thousand.

    request ─► path of the fast path? ─no───────► FastAPI (everything else)
                  │yes
               POST, JSON? ─no──────────────────► FastAPI (bulk bodies)
                  │yes
               read body ─► operation ─► send

FastAPI declares the same paths for openapi.json and answers their other bodies. What this saves
stands in docs/decisions (ASGI fast path).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from service.batching.work import ClientGone
from service.core.call import Call, get_call, read_timeout
from service.core.context_vars import REQUEST_ID
from service.core.errors import ServiceError, TooLarge, make_body_timeout
from service.core.problem_details import as_service_error, problem
from service.http.access import check_access
from service.http.error_responses import make_error_response
from service.http.query_options import refuse_options
from service.http.request_body import RequestBody, collect
from service.operations.context import Service
from service.operations.decode import DECODE, DECODE_BATCH
from service.operations.encode import COUNT, ENCODE, ENCODE_BATCH
from service.operations.operation import LARGE_BYTES, Operation, answer
from service.operations.windows import WINDOWS

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

INLINE_CALLS: dict[str, Operation] = {
    "/v1/encode": ENCODE,
    "/v1/encode/batch": ENCODE_BATCH,
    "/v1/count": COUNT,
    "/v1/decode": DECODE,
    "/v1/decode/batch": DECODE_BATCH,
}
"""Calls whose answer is small where the body is: a connection answers them itself."""
FAST_PATH_CALLS = INLINE_CALLS | {"/v1/windows": WINDOWS}
JSON_TYPE = (b"content-type", b"application/json")
WHOLE_BYTES = 65_536  # An answer up to this size is sent at once, with its length.


class AsgiFastPath:
    """Answers its calls itself and hands everything else to the application behind it."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app = app
        self.service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One ASGI connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        service, call, status = self.service, get_call(scope), 500
        service.metrics.received()
        REQUEST_ID.set(call.request_id.decode())

        async def send_and_note(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status, call.times.head = message["status"], perf_counter()
                headers = message.get("headers", ())
                message["headers"] = [*headers, *service.observer.answer_headers(call)]
            await send(message)

        route, receive = "unmatched", _in_time(receive, service.settings.stream_idle_timeout_s)
        try:
            route = await self._answer(scope, call, receive, send_and_note)
        except BaseException:
            status = 500
            raise
        finally:
            # FastAPI's are counted under their templates and not under each path.
            service.observer.finish(call, getattr(scope.get("route"), "path", route), status)

    async def _answer(self, scope: Scope, call: Call, receive: Receive, send: Send) -> str:
        """Answer, and say under which name that is counted unless FastAPI knows one."""
        try:
            check_access(self.service, scope)
        except ServiceError as error:
            await make_error_response(scope["path"], error)(scope, receive, send)
            return "refused"
        operation = FAST_PATH_CALLS.get(scope["path"])
        is_json = call.media_type == b"application/json"
        if operation is None or scope["method"] != "POST" or not is_json:
            await self._answer_behind(scope, receive, send)
            return "unmatched"
        call.receive = receive
        try:
            await respond(self.service, operation, call, receive, send)
        except ClientGone:
            call.is_gone = True
        return cast(str, scope["path"])

    async def _answer_behind(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application's answer; what it raises behind a whole one is in the log already."""
        is_whole = False

        async def send_and_see(message: Any) -> None:
            nonlocal is_whole
            await send(message)
            is_whole = message["type"] == "http.response.body" and not message.get("more_body")

        try:
            await self.app(scope, receive, send_and_see)
        except Exception:
            if not is_whole:  # The server cuts it short.
                raise


def _in_time(receive: Receive, idle_s: float) -> Receive:
    """`receive` with a limit on how long a body may let wait for its next piece.

    Raises:
        BodyTimeout: nothing came of it for `idle_s`.
    """
    is_whole = False

    async def receive_in_time() -> Message:
        nonlocal is_whole
        if is_whole:  # All that can come is that the client leaves.
            return await receive()
        try:
            async with asyncio.timeout(idle_s):
                message = await receive()
        except TimeoutError as error:
            raise make_body_timeout(idle_s) from error
        is_whole = not message.get("more_body", False)
        return message

    return receive_in_time


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
) -> None:
    """Read, answer and send one call; every refusal is a problem document."""
    try:
        max_bytes = service.settings.max_body_bytes
        if call.content_length > max_bytes:
            limit = f"max_body_bytes is {max_bytes}"
            raise TooLarge(f"the body has {call.content_length} bytes; {limit}")
        if call.encoding is None:
            body = await read_body(receive, max_bytes)
        else:
            packed = RequestBody(receive, call.encoding, max_bytes)
            body = bytes(await collect(packed, call.content_length))
        read_timeout(call)
        refuse_options(call.query, (), "options of a JSON body stand in the body")
        answered = await answer(service, operation, body, call)
        is_large = len(body) > LARGE_BYTES
        service.observer.add_serialize_time(call, await send_pieces(send, answered, is_large))
    except (ClientGone, asyncio.CancelledError):
        raise
    except Exception as error:
        await send_problem(send, call, error)


async def send_problem(send: Send, call: Call, error: Exception) -> None:
    """The refusal that an exception means, as a problem document."""
    refusal = as_service_error(error)
    call.refusal = refusal.code
    status, headers, document = problem(refusal)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": document})
    error.__traceback__ = None  # It leads to the text, whose work has the refusal: a circle.


async def send_pieces(send: Send, pieces: Iterable[bytes], is_large: bool = False) -> float:
    """A small answer whole, with its length; a large one piece by piece, the loop kept free.

    Args:
        send: the ASGI callable.
        pieces: of the answer.
        is_large: a thread makes them, for what stands between two of them may take long.

    Returns:
        The seconds in which the pieces were made.
    """
    iterator, seconds = iter(pieces), 0.0

    async def more() -> bytes:
        nonlocal seconds
        begin = perf_counter()
        body = await asyncio.to_thread(_gather, iterator) if is_large else _gather(iterator)
        seconds += perf_counter() - begin
        return body

    body = await more()
    rest = await more() if len(body) > WHOLE_BYTES else b""
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
        rest = await more()
    await send({"type": "http.response.body", "body": b""})
    return seconds


def _gather(iterator: Iterator[bytes]) -> bytes:
    """The next pieces, until they are more than WHOLE_BYTES; b"" at the end."""
    gathered: list[bytes] = []
    size = 0
    for piece in iterator:
        gathered.append(piece)
        size += len(piece)
        if size > WHOLE_BYTES:
            break
    return b"".join(gathered)
