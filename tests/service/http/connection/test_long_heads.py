"""Heads that do not end, and fields behind bodies: neither takes memory or another's place."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator

import pytest

from service.http.connection.protocol import MAX_HEAD_BYTES
from service.observability.logging import is_unlogged
from tests.service.apis.native.test_tokens import V
from tests.service.http.connection.test_protocol import (
    answer,
    listening,
    request,
    run,
    text_body,
    warm,
)
from tests.support.fake_engine import FakeEngine

PART = 1 << 16
BEGIN = b"POST /v1/encode HTTP/1.1\r\n"


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def until_it_ends(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, part: bytes):
    """Send the same again and again; what was read until the connection's end, and how much sent.

    Slowly: a connection that is closed with something unread is reset, and the answer lost.
    """
    reading, sent = asyncio.ensure_future(reader.read()), 0
    while not reading.done() and sent < 4 * MAX_HEAD_BYTES:
        writer.write(part)
        sent += len(part)
        await asyncio.sleep(0.002)
    return await reading, sent


@pytest.mark.parametrize(
    ("begin", "part"),
    [
        (BEGIN + b"X-Long: ", b"a" * PART),
        (BEGIN, b"a" * PART),
        (BEGIN, b"X-Again: and again\r\n" * (PART // 20)),
    ],
)
def test_a_head_that_does_not_end_is_refused(begin, part):
    async def scenario():
        async with listening(FakeEngine()) as (_, port):
            async with connected(port) as (reader, writer):
                await warm(reader, writer)
                writer.write(begin)
                read, sent = await until_it_ends(reader, writer, part)
                assert read.startswith(b"HTTP/1.1 400 ")
                assert read.endswith(b"more than %d bytes." % MAX_HEAD_BYTES)
                assert sent < 2 * MAX_HEAD_BYTES
            async with connected(port) as (other, others_writer):
                await warm(other, others_writer)

    run(scenario)


def test_what_is_no_http_is_counted_and_has_one_line_of_the_log(caplog):
    async def scenario():
        async with listening(FakeEngine()) as (app, port):
            for sent in (b"no HTTP\r\n\r\n", b"GET /livez HTTP/1.1\nHost: localhost\n\n") * 5:
                async with connected(port) as (reader, writer):
                    writer.write(sent)
                    assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
            counts = app.service.metrics.counts()
            assert counts["warptok_connections_closed_total"]["bad_head",] == 10

    logging.getLogger("uvicorn.error").addFilter(is_unlogged)
    try:
        run(scenario)
    finally:
        logging.getLogger("uvicorn.error").removeFilter(is_unlogged)
    lines = [line for line in caplog.messages if "HTTP" in line]
    network = "127.0.0.0/24"
    told = "sent something that is not HTTP/1.1, or too long a head"
    assert lines == [f"1 connections closed, the last of {network}: {told}"]


def test_while_an_answer_is_on_its_way_only_the_connection_ends():
    async def scenario():
        engine = FakeEngine()
        async with listening(engine) as (_, port):
            async with connected(port) as (reader, writer):
                await warm(reader, writer)
                engine.gate.clear()
                writer.write(request(text_body("slow")) + BEGIN)
                read, sent = await until_it_ends(reader, writer, b"a" * PART)
                assert (read, sent < 2 * MAX_HEAD_BYTES) == (b"", True)

    run(scenario)


def test_what_comes_with_the_begin_of_a_head_is_none_of_it():
    """A body's end, or many requests, and the begin of a head in one piece."""

    async def scenario():
        async with listening(FakeEngine()) as (_, port):
            async with connected(port) as (reader, writer):
                await warm(reader, writer)
                body = {"vocabulary": V, "texts": ["a" * (3 * MAX_HEAD_BYTES)]}
                whole = request(json.dumps(body).encode(), "/v1/count")
                for _ in range(3):
                    writer.write(whole + request(text_body("b"))[:40])
                    assert (await answer(reader))[0] == 200
                    writer.write(request(text_body("b"))[40:])
                    assert (await answer(reader))[0] == 200

    run(scenario)


def test_fields_behind_a_body_are_no_fields_of_the_request():
    seen: list[list[tuple[bytes, bytes]]] = []

    async def note(scope, receive, send):
        while (await receive())["more_body"]:
            pass
        seen.append(scope["headers"])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def scenario():
        async with listening(FakeEngine()) as (app, port):
            app.asgi.app = note
            async with connected(port) as (reader, writer):
                writer.write(
                    b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
                    b"2\r\nab\r\n0\r\n"
                )
                writer.write(b"Content-Encoding: gzip\r\nX-Again: a\r\n\r\n")
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204 ")
                assert seen == [[(b"host", b"localhost"), (b"transfer-encoding", b"chunked")]]

    run(scenario)
