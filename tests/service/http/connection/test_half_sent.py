"""Requests of which nothing more comes are refused with 408, whatever their way, and counted."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from service.http.body.takeover import MIN_BYTES
from service.http.connection.protocol import FastPathProtocol
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

IDLE_S = 0.1
LONG = b"A" * (1 << 20)
OCTETS = "/v1/encode?vocabulary=evo_bytes"
V2 = "/v2/models/evo_bytes/infer"
JSON_TYPE, OCTETS_TYPE, FASTA_TYPE = b"application/json", b"text/plain", b"text/x-fasta"


def refused(service: Service) -> dict[tuple[str, ...], float]:
    counts = service.metrics.counts()["warptok_requests_rejected_total"]
    return {labels: number for labels, number in counts.items() if number}


async def closed(reader: asyncio.StreamReader) -> None:
    """Wait for the connection's end."""
    assert await reader.read() == b""


@pytest.mark.parametrize(
    ("path", "body", "kind", "sent"),
    [
        ("/v1/encode", text_body("small"), JSON_TYPE, 0),
        ("/v1/encode", text_body("small"), JSON_TYPE, 5),
        ("/v1/encode", text_body("A" * 200_000), JSON_TYPE, 100_000),
        (OCTETS, LONG, OCTETS_TYPE, 0),
        (OCTETS, LONG, OCTETS_TYPE, 10),
        (OCTETS, LONG, OCTETS_TYPE, len(LONG) - MIN_BYTES - 10),
        ("/v1/encode/fasta?vocabulary=evo_bytes", b">a\n" + LONG, FASTA_TYPE, 100_000),
        ("/v1/windows", json.dumps({"vocabulary": "evo_bytes"}).encode(), JSON_TYPE, 7),
        ("/tokenize", json.dumps({"prompt": "hello"}).encode(), JSON_TYPE, 7),
        (V2, json.dumps({"inputs": []}).encode(), JSON_TYPE, 7),
        ("/v1/vocabularies/own", LONG, b"application/octet-stream", 7),
    ],
)
@pytest.mark.slow
def test_a_body_that_does_not_go_on_is_refused_and_counted(path, body, kind, sent):
    async def scenario():
        settings: dict[str, Any] = {"stream_idle_timeout_s": IDLE_S}
        async with listening(FakeEngine(), **settings) as (app, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
            await warm(reader, writer)
            whole = request(body, path).replace(JSON_TYPE, kind)
            if path.startswith("/v1/vocabularies"):
                whole = whole.replace(b"POST", b"PUT", 1)
            writer.write(whole[: len(whole) - len(body) + sent])
            status, fields, document = await answer(reader)
            assert (status, fields[b"connection"]) == (408, b"close")
            assert b"stream_idle_timeout_s" in document
            if path.startswith("/v1/"):
                assert fields[b"content-type"] == b"application/problem+json"
                assert json.loads(document)["code"] == "body_timeout"
            await closed(reader)
            assert refused(app.service) == {("body_timeout",): 1}
            counts = app.service.metrics.counts()
            assert counts["warptok_requests_received_total"][()] == 2
            assert sum(counts["warptok_requests_total"].values()) == 2
            assert app.service.batcher.queue_rows == 0
            writer.close()

    run(scenario)


@pytest.mark.parametrize("sent", [b"P", b"POST /v1/encode HTTP/1.1\r\nHost: localhost\r\nContent-"])
def test_a_head_that_does_not_go_on_ends_the_connection(sent):
    async def scenario():
        async with listening(FakeEngine(), head_timeout_s=IDLE_S) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            await closed(reader)
            writer.close()

    run(scenario)


@pytest.mark.parametrize("path", ["/v1/encode", "/v1/windows"])
def test_what_is_being_answered_is_not_cut_off_for_a_half_sent_head_behind_it(monkeypatch, path):
    looked: list[bool] = []
    nothing_came = FastPathProtocol._nothing_came

    def note(protocol: FastPathProtocol) -> None:
        looked.append(True)
        nothing_came(protocol)

    monkeypatch.setattr(FastPathProtocol, "_nothing_came", note)

    async def scenario():
        engine = FakeEngine()
        async with listening(engine, head_timeout_s=IDLE_S, inline_batch_bytes=0) as (_, p):
            reader, writer = await asyncio.open_connection("127.0.0.1", p, limit=2**20)
            await warm(reader, writer)
            engine.gate.clear()
            key = "text" if path == "/v1/encode" else "sequence"
            writer.write(
                request(json.dumps({"vocabulary": "evo_bytes", key: "ACGT"}).encode(), path)
            )
            writer.write(b"POST /v1/enc")
            while len(looked) < 3:
                await asyncio.sleep(0.01)
            engine.gate.set()
            assert (await answer(reader))[0] in (200, 422)
            await closed(reader)
            writer.close()

    run(scenario)
