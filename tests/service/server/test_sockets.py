"""A port that is about to close keeps every connection that has been made, and takes no more."""

from __future__ import annotations

import asyncio
import errno
import select
import socket

from service.server.sockets import accept_waiting
from tests.support.waiting import run


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.read(100))
    writer.close()


def test_connections_of_before_are_accepted_and_later_ones_wait_to_be_refused():
    async def scenario():
        with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as late:
            before = socket.create_connection(listening.getsockname())
            server = await asyncio.start_server(echo, sock=listening)
            await accept_waiting([listening])
            late.setblocking(False)
            assert late.connect_ex(listening.getsockname()) == errno.EINPROGRESS
            assert select.select([], [late], [], 0.1) == ([], [], [])
            server.close()
        reader, writer = await asyncio.open_connection(sock=before)
        writer.write(b"still here")
        assert await reader.read() == b"still here"
        writer.close()

    run(scenario)
