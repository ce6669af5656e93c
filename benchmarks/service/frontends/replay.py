"""A server that answers a stream from memory, as the limit of a front end.

    python -m benchmarks.service.frontends.replay PORT REQUEST_FILE ANSWER_FILE

It receives a request of as many bytes as the first file has, into memory that it keeps, and sends
the second file, always as large a part of it as has come of the request. Several processes share
the port, as front ends do. What is left out is what the service does with the bytes: reading
Arrow, passing texts to the engine, encoding, and writing Arrow.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import uvloop

BLOCK_BYTES = 1 << 22  # After each of them the next part of the answer is sent.
SEND_BYTES = 1 << 20
READY = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class Replay(asyncio.BufferedProtocol):
    """A connection that sends the parts of an answer as its request comes.

    Args:
        request_bytes: the size of the request; a GET is answered at once.
        answer: the whole answer.
    """

    def __init__(self, request_bytes: int, answer: memoryview) -> None:
        self._request_bytes = request_bytes
        self._answer = answer
        self._block = memoryview(bytearray(BLOCK_BYTES))
        self._received = self._sent = 0

    def connection_made(self, transport: Any) -> None:
        """Keep the transport."""
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory for the next bytes of the block."""
        return self._block[self._received % BLOCK_BYTES :]

    def buffer_updated(self, num_bytes: int) -> None:
        """Send the next part of the answer after each block, and the rest at the end."""
        if not self._received and self._block[:3].tobytes() == b"GET":
            self._transport.write(READY)
            self._transport.close()
            return
        self._received += num_bytes
        is_complete = self._received >= self._request_bytes
        if self._received % BLOCK_BYTES and not is_complete:
            return
        end = len(self._answer) * self._received // self._request_bytes
        for begin in range(self._sent, end, SEND_BYTES):
            self._transport.write(self._answer[begin : min(begin + SEND_BYTES, end)])
        self._sent = end
        if is_complete:
            self._transport.close()


async def serve(port: int, request_bytes: int, answer: memoryview) -> None:
    """Serve until the process is ended."""
    server = await asyncio.get_running_loop().create_server(
        lambda: Replay(request_bytes, answer), "127.0.0.1", port, reuse_port=True, backlog=1024
    )
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(
        serve(
            int(sys.argv[1]),
            Path(sys.argv[2]).stat().st_size,
            memoryview(Path(sys.argv[3]).read_bytes()),
        )
    )
