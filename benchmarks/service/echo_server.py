"""Servers that send received bytes back unchanged, as the limit of bulk APIs.

    python -m benchmarks.service.echo_server PORT GRPC_PORT

TCP on one port: uvloop, received into one buffer and sent from it, half duplex as a whole body is.
gRPC on the other: the method /echo/Stream of grpc.aio, messages as they came.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
import uvloop

SEND_BYTES = 1 << 20
HEAD_BYTES = 8  # How many bytes come, as a number.


buffers: dict[int, bytearray] = {}
"""Kept, or clearing the pages of new ones would be measured."""


class Echo(asyncio.BufferedProtocol):
    """A connection that receives a number and then as many bytes, and sends these back."""

    def __init__(self) -> None:
        self.buffer = bytearray(HEAD_BYTES)
        self.size = 0
        self.has_head = False

    def connection_made(self, transport: Any) -> None:
        """Keep the transport."""
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory that the next bytes go to."""
        return memoryview(self.buffer)[self.size :]

    def buffer_updated(self, num_bytes: int) -> None:
        """Allocate the announced bytes after the head, or send the whole body back."""
        self.size += num_bytes
        if self.size < len(self.buffer):
            return
        if self.has_head:
            view = memoryview(self.buffer)
            for begin in range(0, len(view), SEND_BYTES):
                self.transport.write(view[begin : begin + SEND_BYTES])
            self.transport.close()
            return
        self.has_head = True
        self.size = 0
        num_expected = int.from_bytes(self.buffer, "little")
        if num_expected not in buffers:
            buffers[num_expected] = bytearray(num_expected)
        self.buffer = buffers[num_expected]


async def stream(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    """Send the messages back as they came."""
    async for request in requests:
        yield request


async def main() -> None:
    """Serve until the process is ended."""
    ports = [int(port) for port in sys.argv[1:]]
    handlers = {"Stream": grpc.stream_stream_rpc_method_handler(stream)}
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("echo", handlers),))
    server.add_insecure_port(f"127.0.0.1:{ports[1]}")
    await server.start()
    tcp = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", ports[0])
    await tcp.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
