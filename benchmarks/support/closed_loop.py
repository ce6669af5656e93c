"""A closed-loop HTTP/1.1 load over loopback: each connection waits for an answer, then sends again.

The client does little, so that on two cores the server is the limit: requests are bytes made
beforehand, and only the status and the length of an answer are read.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import cast


def post(path: str, body: bytes, port: int, key: str | None = None) -> bytes:
    """Make the bytes of a POST, with an API key if one is given."""
    fields = [f"POST {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Content-Type: application/json"]
    if key is not None:
        fields.append(f"Authorization: Bearer {key}")
    fields += [f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(fields).encode() + body


@dataclass(slots=True)
class Load:
    """The counts and latencies of one run.

    Attributes:
        seconds: wall time between the first and the last counted answer.
        latencies: seconds of each counted request.
        failures: answers with a status other than 200.
        num_answers: all answers, those of the warm-up included.
    """

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    failures: int = 0
    num_answers: int = 0


class Connection(asyncio.Protocol):
    """One keep-alive connection that cycles through the requests."""

    def __init__(self, requests: list[bytes], first: int, load: Load, stop_at: list[float]) -> None:
        self.requests = requests
        self.next = first
        self.load = load
        self.stop_at = stop_at
        self.closed = asyncio.get_running_loop().create_future()
        self.pending = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        self.transport = cast(asyncio.Transport, transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._send()

    def _send(self) -> None:
        self.sent = perf_counter()
        self.transport.write(self.requests[self.next])
        self.next = (self.next + 1) % len(self.requests)

    def data_received(self, data: bytes) -> None:
        """Count a whole answer and send the next request."""
        self.pending += data
        head_end = self.pending.find(b"\r\n\r\n")
        if head_end < 0:
            return
        head = self.pending[:head_end].lower()
        at = head.index(b"content-length:") + 15
        line_end = head.find(b"\r\n", at)
        size = int(head[at : line_end if line_end > 0 else None])
        if len(self.pending) < head_end + 4 + size:
            return
        now = perf_counter()
        self.load.failures += head[9:12] != b"200"
        self.load.latencies.append(now - self.sent)
        self.load.num_answers += 1
        self.pending = self.pending[head_end + 4 + size :]
        if now < self.stop_at[0]:
            self._send()
        else:
            self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        """Report to the run that this connection is closed."""
        if not self.closed.done():
            self.closed.set_result(None)


async def measure(
    port: int, requests: list[bytes], num_connections: int, warmup_s: float, seconds: float
) -> Load:
    """Send requests to a server on loopback; only answers after the warm-up are counted."""
    load = Load()
    stop_at = [perf_counter() + warmup_s + seconds]
    loop = asyncio.get_running_loop()
    connections = []
    for i in range(num_connections):
        made = partial(Connection, requests, i * 7919 % len(requests), load, stop_at)
        _, connection = await loop.create_connection(made, "127.0.0.1", port)
        connections.append(connection)
    await asyncio.sleep(warmup_s)
    load.latencies, load.failures = [], 0
    begin = perf_counter()
    await asyncio.gather(*(connection.closed for connection in connections))
    load.seconds = perf_counter() - begin
    return load
