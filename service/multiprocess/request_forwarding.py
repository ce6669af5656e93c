"""Forwards requests about state that all front ends share to the engine process.

    front end   access, limits ─► request ──link──► engine process: the same FastAPI application
                answer or refusal ◄─── link ◄───

These are requests that change or describe vocabularies, training jobs and engines, and requests of
the Open Inference Protocol, whose statistics and shared memory regions are common to the whole
service. docs/decisions/processes/0057 explains why this is not an HTTP proxy.
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
from service.multiprocess.upload_spool import Spool, make_file_receive

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

FORWARDED = re.compile(
    r"/v1/(vocabularies|aliases|training-jobs)(/.*)?|/v1/info|/v2(?!/health/)(/.*)?", re.DOTALL
)
UPLOAD = ("POST", "/v1/training-jobs")  # Its body may be larger than the memory.
FORM_BYTES = 1 << 20  # The bytes of a form with several files beside the files.


class Forwarding:
    """An ASGI application of a front end that forwards some requests to the engine process.

    Args:
        app: answers all other requests.
        engine: the engine process.
        settings: the settings of the service.
    """

    def __init__(self, app: ASGIApp, engine: RemoteEngine, settings: Settings) -> None:
        self.app = app
        self.engine = engine
        largest = max(settings.max_body_bytes, settings.max_vocabulary_bytes)
        self.max_bytes = largest + FORM_BYTES
        self.spool = Spool(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or forward a request; its API key has already been checked."""
        if scope["type"] != "http" or not FORWARDED.fullmatch(scope["path"]):
            await self.app(scope, receive, send)
            return
        try:
            async with self._make_message(scope, receive) as message:
                answer = await self.engine.call(message)
        except ServiceError as error:
            await make_error_response(scope["path"], error)(scope, receive, send)
            return
        # The metrics count requests by the template of their route, not by their path.
        scope["route"] = SimpleNamespace(path_format=answer.values["route"])
        call = get_call(scope)
        call.refusal = answer.values["refusal"]
        call.vocabulary = answer.values["vocabulary"]
        call.num_bytes = answer.values["num_bytes"]
        headers = _read_headers(answer.values["headers"])
        status = answer.values["status"]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        body = memoryview(answer.arrays[0].data)
        for begin in range(0, len(body), SEND_BYTES):
            piece = bytes(body[begin : begin + SEND_BYTES])
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    @asynccontextmanager
    async def _make_message(self, scope: Scope, receive: Receive) -> AsyncIterator[Message]:
        """Read a body and make the request's message; a file contains a large body meanwhile."""
        values = {
            "method": scope["method"],
            "path": scope["path"],
            "raw_path": scope["raw_path"].decode("latin-1"),
            "query": scope["query_string"].decode("latin-1"),
            "headers": _write_headers(_set_request_id(scope)),
        }
        if (scope["method"], scope["path"]) == UPLOAD:
            async with self.spool.write_body(receive) as path:
                yield Message("request", values | {"file": str(path)}, [np.zeros(0, np.uint8)])
            return
        body = await read_body(receive, self.max_bytes)
        yield Message("request", values, [np.frombuffer(body, np.uint8)])


async def answer_forwarded(app: ASGIApp, message: Message) -> Message:
    """Answer a forwarded request with the application of the engine process."""
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
        "headers": _read_headers(values["headers"]),
        "client": None,
        "server": None,
        "state": {},
    }
    path = values.get("file")
    receive = _make_receive(message) if path is None else make_file_receive(Path(path))
    start: dict[str, Any] = {}
    body: list[bytes] = []

    async def send(part: Any) -> None:
        if part["type"] == "http.response.start":
            start.update(part)
        else:
            body.append(part.get("body", b""))

    REQUEST_ID.set(get_call(scope).request_id.decode())
    await app(scope, receive, send)
    call = get_call(scope)
    answer = {
        "status": start["status"],
        "headers": _write_headers(start.get("headers", [])),
        "route": getattr(scope.get("route"), "path_format", "unmatched"),
        "refusal": call.refusal,
        "vocabulary": call.vocabulary,
        "num_bytes": call.num_bytes,
    }
    return Message("answer", answer, [np.frombuffer(b"".join(body), np.uint8)])


def _set_request_id(scope: Scope) -> list[tuple[bytes, bytes]]:
    """Return the headers of a request, with the id that it has in this process."""
    headers = [(name, value) for name, value in scope["headers"] if name != b"x-request-id"]
    return [*headers, (b"x-request-id", get_call(scope).request_id)]


def _make_receive(message: Message) -> Callable[[], Awaitable[dict[str, Any]]]:
    """Make an ASGI `receive` that returns a message's body."""
    parts = [message.arrays[0].tobytes()]

    async def receive() -> dict[str, Any]:
        if not parts:  # The caller waits for a disconnect; the front end cancels the call then.
            await asyncio.Future()
        return {"type": "http.request", "body": parts.pop(), "more_body": False}

    return receive


def _write_headers(headers: Any) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]


def _read_headers(values: list[list[str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in values]
