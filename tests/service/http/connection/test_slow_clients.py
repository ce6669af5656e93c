"""Clients that send nothing, send slowly or do not read, as slowhttptest does: cut off in time."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from time import perf_counter
from typing import Any

import pytest
import uvloop

from service.core.call import Call
from service.core.settings import Settings
from service.http.body.pace import BodyPace
from service.operations.context import Service
from tests.service.http.connection.test_protocol import (
    answer,
    listening,
    request,
    run,
    text_body,
    warm,
)
from tests.support.fake_engine import FakeEngine
from tests.support.waiting import GIVEN_UP_S, until

SHORT: dict[str, Any] = {
    "head_timeout_s": 0.4,
    "stream_idle_timeout_s": 0.4,
    "min_body_bytes_per_s": 1_000,
}
DRIP_S = 0.02  # The seconds between two bytes.
HEAD = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
LONG = b"A" * (1 << 20)
FOREVER = 1_000


def closed_by_reason(service: Service) -> dict[str, float]:
    counts = service.metrics.counts()["warptok_connections_closed_total"]
    return {reason: number for (reason,), number in counts.items() if number}


async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> bytes:
    """Send a byte at a time until the connection ends; return what was read."""
    reading = asyncio.ensure_future(reader.read())
    for byte in data:
        if reading.done():
            break
        writer.write(bytes([byte]))
        await asyncio.sleep(DRIP_S)
    assert reading.done(), "the connection is still open"
    try:
        return await reading
    except ConnectionResetError:  # It was closed with a byte unread.
        return b""


def test_a_connection_without_a_byte_ends(caplog):
    async def scenario():
        async with listening(FakeEngine(), **SHORT) as (app, port):
            begin = perf_counter()
            connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
            for reader, writer in connections:
                assert await reader.read() == b""
                writer.close()
            assert perf_counter() - begin >= SHORT["head_timeout_s"]
            assert closed_by_reason(app.service) == {"silent": 20}

    with caplog.at_level(logging.WARNING):
        run(scenario)
    lines = [each for each in caplog.messages if "head_timeout_s" in each]
    assert len(lines) == 1 and "127.0.0.0/24" in lines[0]


@pytest.mark.parametrize(
    ("before", "data"),
    [
        (b"", HEAD + b"X-Slow: " + b"a" * FOREVER),
        (b"", HEAD + b"X-a: b\r\n" * FOREVER),
        (b"", b"\r\n" * FOREVER),
        (HEAD + b"\r\n", b"\r\n" * FOREVER),
        (HEAD + b"\r\n", HEAD + b"X-Slow: " + b"a" * FOREVER),
    ],
)
@pytest.mark.slow
def test_slow_headers(before, data):
    async def scenario():
        async with listening(FakeEngine(), **SHORT) as (app, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            if before:
                writer.write(before)
                assert (await answer(reader))[0] == 200
            assert await drip(reader, writer, data) == b""
            assert sum(closed_by_reason(app.service).values()) == 1
            writer.close()

    run(scenario)


@pytest.mark.parametrize(
    ("path", "body", "kind", "sent"),
    [
        ("/v1/encode", text_body("A" * 5_000), "application/json", 5),
        ("/v1/encode", text_body("A" * 200_000), "application/json", 100_000),
        ("/v1/encode?vocabulary=evo_bytes", LONG, "text/plain", 10),
        ("/v1/encode/fasta?vocabulary=evo_bytes", b">a\n" + LONG, "text/x-fasta", 100_000),
        ("/tokenize", json.dumps({"prompt": "A" * 5_000}).encode(), "application/json", 7),
        ("/v1/vocabularies/own", LONG, "application/octet-stream", 7),
    ],
)
def test_slow_body(path, body, kind, sent):
    async def scenario():
        async with listening(FakeEngine(), **SHORT) as (app, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
            await warm(reader, writer)
            whole = request(body, path).replace(b"application/json", kind.encode(), 1)
            if path.startswith("/v1/vocabularies"):
                whole = whole.replace(b"POST", b"PUT", 1)
            head = len(whole) - len(body)
            writer.write(whole[: head + sent])
            read = await drip(reader, writer, whole[head + sent :][:FOREVER])
            assert read.startswith(b"HTTP/1.1 408 ") or not read
            assert closed_by_reason(app.service) == {"slow_body": 1}
            rejected = app.service.metrics.counts()["warptok_requests_rejected_total"]
            assert rejected["body_timeout",] == 1
            writer.close()

    run(scenario)


def test_the_rest_of_a_refused_body_may_not_be_slow():
    async def scenario():
        async with listening(FakeEngine(), **SHORT) as (app, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"PUT /none HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n")
            assert (await answer(reader))[0] == 404
            await drip(reader, writer, b"a" * FOREVER)
            assert closed_by_reason(app.service) == {"slow_body": 1}
            writer.close()

    run(scenario)


def test_a_body_of_the_least_rate_is_read():
    async def scenario():
        settings = SHORT | {"min_body_bytes_per_s": 10, "stream_idle_timeout_s": 5.0}
        async with listening(FakeEngine(), **settings) as (app, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await warm(reader, writer)
            whole = request(text_body("slow but steady"))
            writer.write(whole[:-30])
            for byte in whole[-30:]:
                writer.write(bytes([byte]))
                await asyncio.sleep(DRIP_S)
            assert (await answer(reader))[0] == 200
            assert not closed_by_reason(app.service)
            writer.close()

    run(scenario)


@pytest.mark.parametrize("closes", [False, True])
def test_slow_read(closes):
    """Many answers, or one large one, that the client does not read."""

    async def scenario():
        async with listening(FakeEngine(), keep_alive_s=0.2, **SHORT) as (app, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await warm(reader, writer)
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(client, ("127.0.0.1", port))
            fields = ("Connection: close",) if closes else ()
            sent = request(text_body("A" * 2_000_000), "/v1/encode", *fields)
            await loop.sock_sendall(client, sent)
            await until(lambda: closed_by_reason(app.service))
            assert closed_by_reason(app.service) == {"slow_read": 1}
            assert app.service.metrics.gauges.connections is not None
            while app.service.metrics.gauges.connections()[0] > 1:
                await asyncio.sleep(DRIP_S)
            client.close()
            writer.close()

    run(scenario)


def test_several_requests_of_a_client_that_does_not_read_cause_no_error(caplog):
    async def scenario():
        async with listening(FakeEngine(), **SHORT) as (app, port):
            with socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
                client.setblocking(False)
                loop = asyncio.get_running_loop()
                await loop.sock_connect(client, ("127.0.0.1", port))
                sent = HEAD.replace(b"/livez", b"/openapi.json") + b"\r\n"
                await loop.sock_sendall(client, 30 * sent)
                await until(lambda: closed_by_reason(app.service) == {"slow_read": 1})
                await asyncio.sleep(DRIP_S)

    caplog.set_level(logging.ERROR)
    uvloop.run(asyncio.wait_for(scenario(), GIVEN_UP_S))
    assert not caplog.records


def test_the_credit_of_a_body_shrinks_with_waits_and_grows_with_bytes():
    settings = Settings(stream_idle_timeout_s=60, min_body_bytes_per_s=100)
    pace = BodyPace(settings, Call())
    for _ in range(5):
        pace.add(1, 10)
    assert not pace.is_too_slow
    pace.add(1, 10)
    assert pace.is_too_slow
    pace.renew()
    pace.add(1_000_000, 59)
    assert pace.credit_s == 60
    free = BodyPace(Settings(min_body_bytes_per_s=0, stream_idle_timeout_s=60), Call())
    for _ in range(100):
        free.add(1, 59)
    assert not free.is_too_slow
