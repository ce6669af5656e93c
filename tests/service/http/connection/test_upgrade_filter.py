"""Requests that offer HTTP/2, as Java's client and curl do: answered as if they did not."""

from __future__ import annotations

import asyncio
import json

import pytest

from service.http.connection.protocol import MAX_DIRECT_BYTES
from tests.service.apis.native.test_tokens import V
from tests.service.http.connection.test_protocol import answer, listening, request, run, text_body
from tests.support.fake_engine import FakeEngine

OFFER = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQCAAAA")
CHUNKED = (
    b"POST /v1/encode HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    + "\r\n".join(OFFER).encode()
    + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def pieces(sent: bytes, way: str) -> list[bytes]:
    head = sent.index(b"\r\n\r\n") + 4
    match way:
        case "whole":
            return [sent]
        case "head, body":
            return [sent[:head], sent[head:]]
        case "part of the body":
            return [sent[: head + 5], sent[head + 5 :]]
    return [bytes([byte]) for byte in sent]


@pytest.mark.parametrize(
    ("way", "offer"),
    [
        *((way, OFFER) for way in ("whole", "head, body", "part of the body", "bytes")),
        ("head, body", ("Upgrade: websocket", "Connection: keep-alive, upgrade")),
    ],
)
def test_the_body_is_not_lost_and_the_connection_lives_on(way, offer):
    async def scenario():
        async with listening(FakeEngine()) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
            for text in ("one", "two", "three"):
                for piece in pieces(request(text_body(text), "/v1/encode", *offer), way):
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
                status, fields, body = await answer(reader)
                assert (status, bytes(json.loads(body)["ids"])) == (200, text.encode())
                assert b"upgrade" not in fields
            writer.close()

    run(scenario)


def test_chunks_and_long_bodies_and_pipelined_requests_follow_the_head(caplog):
    num_bytes = 2 * MAX_DIRECT_BYTES
    long = json.dumps({"vocabulary": V, "texts": ["a" * num_bytes]}).encode()
    chunk = text_body("chunk")
    get = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + "\r\n".join((*OFFER, "", "")).encode()
    sent = request(text_body("plain"))
    sent += get + CHUNKED + b"%x\r\n%b\r\n0\r\n\r\n" % (len(chunk), chunk)
    sent += request(long, "/v1/count", *OFFER) + get + request(text_body("end"))
    expected = [
        *(("ids", [*b"plain"]), ("live", True), ("ids", [*b"chunk"])),
        *(("num_tokens", [num_bytes]), ("live", True), ("ids", [*b"end"])),
    ]

    async def scenario():
        async with listening(FakeEngine()) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
            writer.write(sent)
            for name, value in expected:
                status, _, body = await answer(reader)
                assert (status, json.loads(body)[name]) == (200, value)
            writer.close()

    run(scenario)
    assert not [record for record in caplog.records if "upgrade" in record.message.lower()]


def test_as_many_offers_as_fit_into_one_packet_are_declined():
    offer = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"

    async def scenario():
        async with listening(FakeEngine()) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
            writer.write(offer * 1500)
            for _ in range(1500):
                assert (await answer(reader))[2] == b'{"live":true}'
            writer.close()

    run(scenario)


def test_connect_is_refused_as_before():
    async def scenario():
        async with listening(FakeEngine()) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"CONNECT x:80 HTTP/1.1\r\nHost: localhost:80\r\n\r\n")
            head = await reader.readline()
            assert b" 4" in head[:13]
            writer.close()

    run(scenario)
