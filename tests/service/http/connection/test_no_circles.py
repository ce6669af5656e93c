"""A connection that has ended is freed at once, without the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import socket

import pytest
import uvloop

from tests.service.http.connection.test_protocol import listening, request, text_body
from tests.support.fake_engine import FakeEngine
from tests.support.waiting import GIVEN_UP_S

HEAD = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n"
NUM_CLIENTS = 5


def send(port: int, data: bytes, waits: bool) -> None:
    """Send data on a new connection, wait for the begin of an answer or not, and close it."""
    with socket.create_connection(("127.0.0.1", port), GIVEN_UP_S) as client:
        client.sendall(data)
        if waits:
            assert client.recv(100)


SENT = [
    (b"", False),
    (HEAD, False),
    (HEAD + b"\r\n", True),
    (3 * (HEAD + b"\r\n"), True),
    (3 * (HEAD + b"\r\n"), False),
    (request(text_body("short")), True),
    (request(text_body("short"))[:-3], False),
    (request(text_body("A" * 100_000)), True),
    (request(text_body("short"), "/v1/encode", "Connection: close"), True),
]


@pytest.mark.parametrize("limit", [1000, 1])
def test_a_connection_that_has_ended_leaves_no_circle(limit):
    """With a limit of 1, all but the first are surplus connections."""

    async def scenario():
        async with listening(FakeEngine(), max_connections_per_address=limit) as (app, port):
            gauge = app.service.metrics.gauges.connections
            assert gauge is not None
            with socket.create_connection(("127.0.0.1", port), GIVEN_UP_S):
                while not app.service.preloaded:
                    await asyncio.sleep(0.01)
                await asyncio.to_thread(send, port, HEAD + b"\r\n", True)  # Makes the document.
                gc.collect()
                gc.disable()
                for data, waits in SENT:
                    for _ in range(NUM_CLIENTS):
                        await asyncio.to_thread(send, port, data, waits)
                    while gauge()[0] > 1:
                        await asyncio.sleep(0.01)
                    await asyncio.sleep(0.05)  # The tasks of the last requests end.
                    assert gc.collect() < NUM_CLIENTS, data[:60]

    try:
        uvloop.run(asyncio.wait_for(scenario(), GIVEN_UP_S))
    finally:
        gc.enable()
