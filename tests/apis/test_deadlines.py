"""A client's deadline bounds its whole request: body, vocabulary, queue, engine, template."""

from __future__ import annotations

import asyncio
import time

import grpc
import httpx
import pyarrow as pa
import pytest

from service.protos import warptok_pb2 as pb
from tests.service.apis.dialects.calls import CHAT, upload
from tests.service.apis.grpc.test_grpc import serving as serving_grpc
from tests.service.http.connection.test_protocol import answer, listening
from tests.support.app_client import serving
from tests.support.fake_engine import FakeEngine
from tests.support.waiting import GIVEN_UP_S, run, until

V = "evo_bytes"
LATE = {"x-request-timeout-ms": "300"}
JSON = {"vocabulary": V, "text": "x" * 100}
ENDLESS = "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}"


async def connected(port: int):
    return await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)


def head(path: str, *fields: str, timeout_ms: int = 300) -> bytes:
    timeout = f"X-Request-Timeout-Ms: {timeout_ms}"
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", timeout, *fields]
    return "\r\n".join([*lines, "", ""]).encode()


BODIES = {
    "direct": head("/v1/encode", "Content-Type: application/json", "Content-Length: 500") + b"{",
    "chunked": head("/v1/encode", "Content-Type: application/json", "Transfer-Encoding: chunked")
    + b"1\r\n{\r\n",
    "taken over": head(f"/v1/encode?vocabulary={V}", "Content-Type: text/plain")[:-2]
    + b"Content-Length: 5000000\r\n\r\n"
    + b"x" * 300_000,
    "dialect": head("/tokenize", "Content-Length: 500") + b"{",
    "upload": head("/v1/vocabularies/mine", "Content-Length: 500").replace(b"POST", b"PUT") + b"{",
    "OIP": head(f"/v2/models/{V}/infer", "Content-Length: 500") + b"{",
}


@pytest.mark.parametrize("kind", BODIES)
def test_a_body_that_does_not_come_in_time_is_refused_and_the_connection_closed(kind):
    async def scenario():
        async with listening(FakeEngine()) as (app, port):
            reader, writer = await connected(port)
            writer.write(BODIES[kind])
            begin = time.monotonic()
            status, fields, _ = await answer(reader)
            assert (status, fields[b"connection"]) == (504, b"close")
            assert time.monotonic() - begin > 0.25
            assert await reader.read() == b""
            writer.close()
            assert not app.service.batcher.queue_bytes

    run(scenario)


def test_a_body_that_comes_a_byte_at_a_time_has_no_longer():
    async def scenario():
        async with listening(FakeEngine()) as (_, port):
            reader, writer = await connected(port)
            writer.write(BODIES["direct"])
            answering = asyncio.ensure_future(answer(reader))
            while not answering.done():
                writer.write(b" ")
                await asyncio.sleep(0.02)
            assert answering.result()[0] == 504
            writer.close()

    run(scenario)


@pytest.mark.parametrize("size", [100, 200_000], ids=["direct", "ASGI"])
def test_a_request_whose_batch_runs_is_refused_and_its_batch_abandoned(size):
    async def scenario():
        engine = FakeEngine()
        async with listening(engine) as (app, port):
            url = f"http://127.0.0.1:{port}"
            async with httpx.AsyncClient(base_url=url, timeout=GIVEN_UP_S) as client:
                assert (await client.post("/v1/encode", json=JSON)).status_code == 200
                engine.gate.clear()
                late = await client.post(
                    "/v1/encode", json=JSON | {"text": "x" * size}, headers=LATE
                )
                assert (late.status_code, late.json()["code"]) == (504, "deadline_passed")
                assert len(engine.batches) == 2  # It runs still.
                engine.gate.set()
                await until(lambda: not app.service.batcher.queue_bytes)
                assert (await client.post("/v1/encode", json=JSON)).status_code == 200

    run(scenario)


def test_others_of_the_same_batch_are_answered():
    async def scenario():
        engine = FakeEngine()
        async with serving(engine, inline_batch_bytes=0) as (client, _):
            assert (await client.post("/v1/encode", json=JSON)).status_code == 200
            engine.gate.clear()
            first = asyncio.ensure_future(client.post("/v1/encode", json=JSON))
            await until(lambda: len(engine.batches) == 2)
            both = [
                asyncio.ensure_future(client.post("/v1/encode", json=JSON, headers=headers))
                for headers in ({}, LATE)
            ]
            late = await both[1]
            assert late.status_code == 504
            engine.gate.set()
            assert [(await each).status_code for each in (first, both[0])] == [200, 200]

    run(scenario)


def test_a_vocabulary_that_is_not_loaded_in_time():
    async def scenario():
        async with serving(FakeEngine()) as (client, service):

            async def load_slowly(*_):
                await asyncio.sleep(GIVEN_UP_S)

            service.registry.get_loaded = load_slowly
            late = await client.post("/v1/encode", json=JSON, headers=LATE)
            assert (late.status_code, late.json()["code"]) == (504, "deadline_passed")
            late = await client.post("/tokenize", json={"model": V, "prompt": "x"}, headers=LATE)
            assert late.status_code == 504
            assert "deadline" in late.json()["error"]["message"]

    run(scenario)


def test_a_template_that_has_longer_than_its_client():
    async def scenario():
        async with serving(FakeEngine()) as (client, _):
            await upload(client, ENDLESS)
            body = {"model": "chat", "messages": CHAT}
            late = await client.post("/tokenize", json=body, headers=LATE)
            assert late.status_code == 504, late.text

    run(scenario)


@pytest.mark.slow
def test_a_stream_ends_with_an_error_as_its_last_row():
    async def scenario():
        engine = FakeEngine()
        async with listening(engine) as (_, port):
            reader, writer = await connected(port)
            kind = "Content-Type: application/vnd.apache.arrow.stream"
            texts = pa.record_batch({"text": ["abc"]})
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, texts.schema) as stream:
                stream.write_batch(texts)
            body = sink.getvalue().to_pybytes()[:-8]  # Without the mark of its end.
            path = f"/v1/encode/batch?vocabulary={V}"
            writer.write(head(path, kind, "Transfer-Encoding: chunked", timeout_ms=3_000))
            writer.write(b"%x\r\n%b\r\n" % (len(body), body))
            begin = time.monotonic()
            assert b"200" in await reader.readline()
            await reader.readuntil(b"deadline_passed")
            assert 2.5 < time.monotonic() - begin < GIVEN_UP_S / 2
            writer.close()

    run(scenario)


def test_an_answer_in_time_is_not_cut():
    async def scenario():
        async with serving(FakeEngine()) as (client, _):
            for text in ("x", "x" * 300_000):
                body = {"vocabulary": V, "text": text}
                answers = [
                    await client.post("/v1/encode", json=body, headers=headers)
                    for headers in ({}, {"x-request-timeout-ms": "250000"})
                ]
                assert answers[0].content == answers[1].content
                assert answers[1].status_code == 200

    run(scenario)


def test_a_grpc_deadline_ends_a_batch_that_runs():
    async def scenario():
        engine = FakeEngine()
        async with serving_grpc(engine, inline_batch_bytes=0) as (client, service):
            request = pb.EncodeRequest(vocabulary=V, text=b"abc")
            await client.Encode(request)
            engine.gate.clear()
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await client.Encode(request, timeout=1.0)
            assert refused.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
            (running,) = service.batcher.short_lane.batches
            await until(lambda: all(work.is_done for work in running))
            engine.gate.set()
            await until(lambda: not service.batcher.queue_bytes)

    run(scenario)
