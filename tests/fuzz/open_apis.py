"""Runs the APIs in this process and sends messages to them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote_to_bytes

import uvicorn
from uvicorn.server import ServerState

from service.apis.grpc.server import GrpcServer
from service.core.settings import Settings
from service.engines.base import Engine
from service.http.connection.protocol import make_protocol
from service.http.streaming_response import BrokenStream
from service.server.app import create_app
from tests.fuzz.faults import Answer, Lines, logged
from tests.fuzz.inputs.messages import Message
from tests.fuzz.inputs.uploads import chat_upload

PATIENCE_S = 0.5
PIECES = 3  # Into how many a body is cut.
LIMITS: dict[str, Any] = {
    "preload": "gpt2,gpn,hyenadna,mtdna6,evo_bytes,dnabert1_3mer",
    "max_body_bytes": 1 << 20,
    "max_text_bytes": 1 << 18,
    "max_vocabulary_bytes": 1 << 20,
    "max_vocabularies": 64,
    "loaded_vocabulary_bytes": 256 << 20,
    "max_padded_ids": 1 << 20,
    "max_window_ids": 1 << 20,
    "request_timeout_ms": 5_000,
    "stream_idle_timeout_s": 5.0,
    "chat_template_timeout_ms": 300,
    "shared_memory": True,
    "log_level": "debug",
}
"""Small enough that memory which is taken for nothing is seen."""


class Apis:
    """A service in this process.

    Attributes:
        log: what it has logged.
    """

    def __init__(self, app: Any, log: Lines) -> None:
        self.app, self.log = app, log
        server = GrpcServer(app.oip)
        self._grpc = server._handlers()
        self._protocol = make_protocol(app.service)
        self._config = uvicorn.Config(app, log_config=None, lifespan="off")
        self._config.load()

    async def send(self, message: Message) -> Answer:
        """Send a message to its API."""
        if message.method == "gRPC":
            return await self.call(message)
        return await self.request(message)

    async def request(self, message: Message, *, leaves: bool = False) -> Answer:
        """Send a request over ASGI in pieces; with `leaves` the client disconnects midway."""
        content = message.content
        size = len(content) // PIECES + 1
        pieces = [content[begin : begin + size] for begin in range(0, len(content), size)] or [b""]
        if leaves:
            pieces = pieces[: len(pieces) // 2]
        waiting = iter(pieces)
        left = len(pieces)
        gone = asyncio.Event()

        async def receive() -> dict[str, Any]:
            nonlocal left
            piece = next(waiting, None)
            if piece is None:
                if not leaves:
                    await gone.wait()
                return {"type": "http.disconnect"}
            left -= 1
            more = left > 0 or leaves
            return {"type": "http.request", "body": piece, "more_body": more}

        sent: list[dict[str, Any]] = []

        async def send(part: Any) -> None:
            sent.append(dict(part))

        broken = False
        try:
            await self.app(_scope(message, len(content)), receive, send)
        except BrokenStream:
            broken = True
        finally:
            gone.set()
        body = b"".join(bytes(part.get("body", b"")) for part in sent[1:])
        if not sent:
            return Answer(499, {}, b"")
        return Answer(sent[0]["status"], dict(sent[0]["headers"]), body, broken)

    async def call(self, message: Message) -> Answer:
        """Make a gRPC call as the library does once it has the bytes."""
        details = SimpleNamespace(method=message.path, invocation_metadata=())
        found = [handler.service(details) for handler in self._grpc]
        handler = next(each for each in found if each is not None)
        context = Context()
        arrived = [*map(handler.request_deserializer, message.bodies)]
        requests = _each(arrived) if handler.request_streaming else arrived[0]
        function = (
            handler.stream_stream
            if handler.response_streaming
            else (handler.stream_unary if handler.request_streaming else handler.unary_unary)
        )
        try:
            answer = await function(requests, context)
        except Aborted as aborted:
            return Answer(aborted.code, {}, aborted.message.encode())
        if answer is not None:
            context.written.append(answer)
        return Answer(0, {}, b"".join(bytes(each)[:1000] for each in context.written))

    async def connect(self, data: bytes, pieces: int) -> Answer:
        """Send bytes to the HTTP parser."""
        state, loop = ServerState(), asyncio.get_running_loop()
        protocol: Any = self._protocol(self._config, state, {}, loop)
        transport = Transport(protocol)
        protocol.connection_made(transport)
        size = len(data) // pieces + 1
        for begin in range(0, len(data), size):
            if not transport.is_closed:
                protocol.data_received(data[begin : begin + size])
            await asyncio.sleep(0)
        if state.tasks:
            await asyncio.wait(state.tasks, timeout=PATIENCE_S)  # A body may have been cut short.
        cycle = protocol.cycle
        future = getattr(cycle, "future", None)
        if future is not None and not future.done():
            await asyncio.wait([future], timeout=PATIENCE_S)
        protocol.connection_lost(None)
        for _ in range(3):
            await asyncio.sleep(0)
        while state.tasks:
            await asyncio.wait(state.tasks)
        return _parsed(bytes(transport.written))


def _parsed(written: bytes) -> Answer:
    """Parse the first answer on a connection; its status is 499 if there is none."""
    head, _, body = written.partition(b"\r\n\r\n")
    if not head:
        return Answer(499, {}, b"")
    first, *lines = head.split(b"\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(b": ") for line in lines)}
    size = int(headers.get(b"content-length", len(body)))
    return Answer(int(first.split()[1]), headers, body[:size])


class Transport(asyncio.Transport):
    """A transport that keeps the written bytes."""

    def __init__(self, protocol: Any) -> None:
        super().__init__()
        self.written, self.is_closed, self.protocol = bytearray(), False, protocol

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        """Do nothing: the test feeds the bytes."""

    def resume_reading(self) -> None:
        """Do nothing: the test feeds the bytes."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else default


class Aborted(Exception):
    """A gRPC call was refused."""

    def __init__(self, code: int, message: str) -> None:
        self.code, self.message = code, message


class Context:
    """The context of a gRPC call, as the library makes it."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()

    def time_remaining(self) -> float | None:
        return None

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def set_trailing_metadata(self, metadata: Any) -> None:
        """Ignore the metadata."""

    async def write(self, message: bytes) -> None:
        self.written.append(message)

    async def abort_with_status(self, status: Any) -> None:
        raise Aborted(status.code.value[0], status.details)


async def _each(arrived: Sequence[Any]) -> AsyncIterator[Any]:
    for each in arrived:
        yield each


def _scope(message: Message, length: int) -> dict[str, Any]:
    place, _, query = message.path.partition("?")
    headers = list(message.headers)
    if message.encoding:
        headers.append((b"content-encoding", message.encoding.encode()))
    if all(name != b"content-length" for name, _ in headers):
        headers.append((b"content-length", b"%d" % length))
    path = unquote_to_bytes(place).decode(errors="replace")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": message.method,
        "scheme": "http",
        "path": path,
        "raw_path": place.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }


@contextlib.asynccontextmanager
async def open_apis(engine: Engine | None = None, **settings: Any) -> AsyncIterator[Apis]:
    """Run a service with its vocabularies loaded, one of them with a chat template."""
    app = create_app(Settings(**{"grpc": False, **LIMITS, **settings}), engine)
    with logged() as log:
        async with app.running():
            while not app.service.preloaded:
                await asyncio.sleep(0.05)
            apis = Apis(app, log)
            made = await apis.request(chat_upload())
            assert made.status in (200, 201), made.body
            log.lines.clear()
            yield apis
