"""An open-loop HTTP/1.1 load over loopback: requests are sent at times drawn beforehand.

A closed loop waits for a slow answer before the next request, and so leaves out the delays of
other requests (coordinated omission). Here arrivals are a Poisson process drawn
beforehand, and a latency is counted from the moment at which its request was due, also when this
client was late or all of its connections were busy.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from service.http.connection.protocol import has_unread

LOST = 0  # In place of a status: the connection ended before the answer did.
LIMIT = 1 << 20
PIECE = 1 << 16  # In one call 100 MB kept this client's loop from its core for up to 50 ms.


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it goes over the wire.

    Attributes:
        kind: the kind under which it is counted.
    """

    kind: str
    head: bytes
    body: bytes

    @classmethod
    def post(cls, kind: str, path: str, body: bytes, headers: Mapping[str, str]) -> Request:
        """Make a POST to loopback."""
        lines = [f"POST {path} HTTP/1.1", "host: 127.0.0.1", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return cls(kind, ("\r\n".join(lines) + "\r\n\r\n").encode(), body)


def json_request(
    kind: str, path: str, value: Any, headers: Mapping[str, str] | None = None
) -> Request:
    """Make a POST of a value as JSON."""
    headers = {"content-type": "application/json", **(headers or {})}
    return Request.post(kind, path, json.dumps(value).encode(), headers)


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a request.

    Attributes:
        due_s: when it was due, from the begin of the load.
        seconds: from then to the answer's last byte.
        status: the HTTP status; LOST if the connection ended first.
        body: the body of the answer if the client keeps bodies.
    """

    kind: str
    due_s: float
    seconds: float
    status: int
    body: bytes = b""


class Connection:
    """One keep-alive connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._is_closed_by_answer = False

    @classmethod
    async def open(cls, port: int) -> Connection:
        """Connect to a port of this machine."""
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=LIMIT))

    async def ask(self, request: Request) -> tuple[int, bytes]:
        """Send a request; return status and body of the answer.

        Raises:
            OSError, EOFError: the connection ended.
        """
        self.writer.write(request.head)
        self.writer.write(request.body)
        return await self.answer()

    async def answer(self) -> tuple[int, bytes]:
        """Read one answer."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        status = int(head[9:12])
        self._is_closed_by_answer = b"\r\nconnection: close\r\n" in head
        if b"transfer-encoding: chunked" in head:
            return status, await self._chunks()
        size = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        return status, await self.reader.readexactly(size)

    async def _chunks(self) -> bytes:
        parts = []
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            parts.append(await self.reader.readexactly(size))
            await self.reader.readexactly(2)
        await self.reader.readexactly(2)
        return b"".join(parts)

    def has_ended(self) -> bool:
        """Return whether the server has closed the connection, even if the end was not read yet."""
        return (
            self._is_closed_by_answer
            or self.writer.transport.is_closing()
            or self.reader.at_eof()
            or has_unread(self.writer.transport)
        )

    def close(self) -> None:
        """Close the connection."""
        self.writer.close()


class Client:
    """Connections to one server, opened as they are needed.

    Args:
        port: the server's port on this machine.
        max_connections: at once; a request for which there is none waits, and its latency grows.
    """

    def __init__(self, port: int, max_connections: int = 256) -> None:
        self.port = port
        self._free: list[Connection] = []
        self._slots = asyncio.Semaphore(max_connections)

    async def ask(self, request: Request) -> tuple[int, bytes]:
        """Send a request; return status and body, or LOST if the connection ended first."""
        async with self._slots:
            try:
                connection = self._kept() or await Connection.open(self.port)
            except OSError:
                return LOST, b""
            try:
                answer = await connection.ask(request)
            except (OSError, EOFError):
                connection.close()
                return LOST, b""
            self._free.append(connection)
            return answer

    def _kept(self) -> Connection | None:
        """Return an idle connection that the server has not closed; None if there is none."""
        while self._free:
            connection = self._free.pop()
            if not connection.has_ended():
                return connection
            connection.close()
        return None

    def close(self) -> None:
        """End all connections."""
        while self._free:
            self._free.pop().close()


async def arrivals(
    client: Client,
    rate: float,
    seconds: float,
    make: Callable[[random.Random], Request],
    chance: random.Random,
) -> list[Answer]:
    """Send a Poisson stream of requests and return their answers.

    Args:
        client: sends the requests.
        rate: the average number of requests per second.
        seconds: the time in which requests are due; the last answers may take longer.
        make: makes the next request.
        chance: the random generator for times and requests.
    """
    answers: list[Answer] = []
    begin = perf_counter()

    async def ask(due_s: float, request: Request) -> None:
        status, body = await client.ask(request)
        kept = body if status != 200 else b""
        answers.append(Answer(request.kind, due_s, perf_counter() - begin - due_s, status, kept))

    due_s = chance.expovariate(rate)
    async with asyncio.TaskGroup() as tasks:
        while due_s < seconds:
            if (early_s := due_s - (perf_counter() - begin)) > 0:
                await asyncio.sleep(early_s)
            tasks.create_task(ask(due_s, make(chance)))
            due_s += chance.expovariate(rate)
    return answers


class Repeated:
    """A thread that sends one request again and again and keeps no answer.

    On the event loop, answers of hundreds of megabytes would delay what else it measures.

    Attributes:
        num_done: whole answers with status 200.
        num_sent: requests.
    """

    def __init__(self, port: int, request: Request) -> None:
        self.num_done = self.num_sent = 0
        self._port = port
        self._request = request
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Repeated:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        buffer = bytearray(PIECE)
        while not self._stopped.is_set():
            with socket.create_connection(("127.0.0.1", self._port)) as connection:
                connection.sendall(self._request.head)
                self.num_sent += 1
                body = memoryview(self._request.body)
                for begin in range(0, len(body), PIECE):
                    connection.sendall(body[begin : begin + PIECE])
                self.num_done += self._is_answered(connection, buffer)

    def _is_answered(self, connection: socket.socket, buffer: bytearray) -> bool:
        """Read a whole answer, or stop reading at the end of the run; return whether it was 200."""
        connection.settimeout(0.2)
        head, size, length = b"", 0, 1
        while size < length:
            try:
                count = connection.recv_into(buffer)
            except TimeoutError:
                if self._stopped.is_set():
                    return False
                continue
            if not count:
                return False
            if b"\r\n\r\n" not in head:
                head += buffer[:count]
                begin, _, rest = head.partition(b"\r\n\r\n")
                if not begin.startswith(b"HTTP/1.1 200"):
                    return False
                length = int(begin.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                count = len(rest)
            size += count
        return True


def quantiles(seconds: list[float]) -> dict[str, float]:
    """Return the 50th, 99th and 99.9th percentile and the maximum in milliseconds."""
    ordered = sorted(seconds)
    if not ordered:
        return {}
    row = {}
    for name, share in (("p50_ms", 0.5), ("p99_ms", 0.99), ("p999_ms", 0.999), ("max_ms", 1.0)):
        place = min(len(ordered) - 1, int(share * len(ordered)))
        row[name] = round(1000 * ordered[place], 2)
    return row
