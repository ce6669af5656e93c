"""Requests that a front end hands to the engine process: what belongs to all front ends at once.

    front end   access, limits ─► request ──link──► engine process: the same FastAPI application
                answer or refusal ◄─── link ◄───

That is whatever changes or describes vocabularies and engines, and the Open Inference Protocol,
whose statistics and regions of shared memory are one for the whole service. Why no HTTP proxy does
it is in docs/decisions/0057.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from service.core.call import get_call
from service.core.context_vars import REQUEST_ID
from service.core.errors import ServiceError
from service.core.settings import Settings
from service.http.asgi_fast_path import read_body
from service.http.backpressure import SEND_BYTES
from service.http.error_responses import make_error_response
from service.multiprocess.link.frames import Message
from service.multiprocess.remote_engine import RemoteEngine
from service.multiprocess.upload_spool import Spool, received_from

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

FORWARDED = re.compile(
    r"/v1/(vocabularies|training-jobs)(/.*)?|/v1/info|/v2(?!/health/)(/.*)?", re.DOTALL
)
UPLOAD = ("POST", "/v1/training-jobs")  # Its body may be larger than the memory.
FORM_BYTES = 1 << 20  # What a form with several files takes beside the files.


class Forwarding:
    """An application in a front end, in front of which some requests go to the engine process."""

    def __init__(self, app: ASGIApp, engine: RemoteEngine, settings: Settings) -> None:
        self.app, self.engine = app, engine
        largest = max(settings.max_body_bytes, settings.max_vocabulary_bytes)
        self.max_bytes = largest + FORM_BYTES
        self.spool = Spool(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, whose key was checked before."""
        if scope["type"] != "http" or not FORWARDED.fullmatch(scope["path"]):
            await self.app(scope, receive, send)
            return
        try:
            async with self._message(scope, receive) as message:
                answer = await self.engine.call(message)
        except ServiceError as error:
            await make_error_response(scope["path"], error)(scope, receive, send)
            return
        # The metrics count under the route's template and not under each path.
        scope["route"] = SimpleNamespace(path=answer.values["route"])
        get_call(scope).refusal = answer.values["refusal"]
        headers = _headers_of(answer.values["headers"])
        status = answer.values["status"]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        body = memoryview(answer.arrays[0].data)
        for begin in range(0, len(body), SEND_BYTES):
            piece = bytes(body[begin : begin + SEND_BYTES])
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    @asynccontextmanager
    async def _message(self, scope: Scope, receive: Receive) -> AsyncIterator[Message]:
        values = {
            "method": scope["method"],
            "path": scope["path"],
            "raw_path": scope["raw_path"].decode("latin-1"),
            "query": scope["query_string"].decode("latin-1"),
            "headers": _header_values(_with_id(scope)),
        }
        if (scope["method"], scope["path"]) == UPLOAD:
            async with self.spool.filled(receive) as path:
                yield Message("request", values | {"file": str(path)}, [np.zeros(0, np.uint8)])
            return
        body = await read_body(receive, self.max_bytes)
        yield Message("request", values, [np.frombuffer(body, np.uint8)])


async def answer_forwarded(app: ASGIApp, message: Message) -> Message:
    """In the engine process: the application's answer to a forwarded request."""
    values = message.values
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": "http",
        "method": values["method"],
        "path": values["path"],
        "raw_path": values["raw_path"].encode("latin-1"),
        "root_path": "",
        "query_string": values["query"].encode("latin-1"),
        "headers": _headers_of(values["headers"]),
        "client": None,
        "server": None,
        "state": {},
    }
    path = values.get("file")
    receive = _received(message) if path is None else received_from(Path(path))
    start: dict[str, Any] = {}
    body: list[bytes] = []

    async def send(part: Any) -> None:
        if part["type"] == "http.response.start":
            start.update(part)
        else:
            body.append(part.get("body", b""))

    REQUEST_ID.set(get_call(scope).request_id.decode())
    await app(scope, receive, send)
    answer = {
        "status": start["status"],
        "headers": _header_values(start.get("headers", [])),
        "route": getattr(scope.get("route"), "path", "unmatched"),
        "refusal": get_call(scope).refusal,
    }
    return Message("answer", answer, [np.frombuffer(b"".join(body), np.uint8)])


def _with_id(scope: Scope) -> list[tuple[bytes, bytes]]:
    """The headers with the id that the request has here."""
    headers = [(name, value) for name, value in scope["headers"] if name != b"x-request-id"]
    return [*headers, (b"x-request-id", get_call(scope).request_id)]


def _received(message: Message) -> Callable[[], Awaitable[dict[str, Any]]]:
    """An ASGI `receive` that gives a message's body."""
    parts = [message.arrays[0].tobytes()]

    async def receive() -> dict[str, Any]:
        if not parts:  # Who waits for a client that leaves: the front end's end cancels us.
            await asyncio.Future()
        return {"type": "http.request", "body": parts.pop(), "more_body": False}

    return receive


def _header_values(headers: Any) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]


def _headers_of(values: list[list[str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in values]
