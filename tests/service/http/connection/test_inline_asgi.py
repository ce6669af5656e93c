"""The short way of inference over real sockets: the same answers, order, counts, ends."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import numpy as np
import pytest

from service.apis.oip.http_infer import Infer
from service.core.settings import Settings
from service.http.asgi_fast_path import AsgiFastPath
from service.http.connection.inline_asgi import InferCycle, model_of
from service.http.connection.protocol import MAX_INLINE_BYTES
from service.multiprocess.request_forwarding import Forwarding
from service.security.api_keys import add_key
from service.security.rate_limits import Rates
from service.server.app import create_app
from service.server.uvicorn_server import Server
from tests.service.apis.native.test_tokens import V
from tests.service.http.connection.test_protocol import answer, client_at, listening, request
from tests.support.fake_engine import FakeEngine
from tests.support.waiting import run, until

URL = f"/v2/models/{V}/infer"
LENGTH = "Inference-Header-Content-Length: {}"


def infer_body(*texts: str, **fields: Any) -> bytes:
    text = {"name": "text", "datatype": "BYTES", "shape": [len(texts)], "data": [*texts]}
    return json.dumps({"inputs": [text], **fields}).encode()


BINARY = json.dumps(
    {
        "inputs": [
            {
                "name": "text",
                "datatype": "UINT8",
                "shape": [2],
                "parameters": {"binary_data_size": 2},
            }
        ],
        "parameters": {"binary_data_output": True},
    }
).encode()
CASES = [
    (URL, infer_body("one", "", "two"), ()),
    (URL, infer_body("x", id="7", outputs=[{"name": "num_tokens"}]), ()),
    (URL, infer_body("x" * 60_000), ()),  # Whose answer has several pieces.
    (URL, BINARY + b"ab", (LENGTH.format(len(BINARY)),)),
    (URL, infer_body("x", parameters={"padding": "longest"}), ()),
    (URL, infer_body("x", outputs=[{"name": "nothing"}]), ()),
    (URL, infer_body("x", parameters={"timeout": "soon"}), ()),
    (URL, b"{", ()),
    (URL, infer_body("x"), (LENGTH.format(9_999),)),
    (URL, infer_body("x"), ("X-Request-Timeout-Ms: 0",)),
    ("/v2/models/nothing/infer", infer_body("x"), ()),
    (f"/v2/models/{V}.decode/infer", infer_body("x"), ()),
]


@pytest.fixture(autouse=True)
def short_ways(monkeypatch) -> list[str]:
    """The models of the requests that went the short way."""
    seen: list[str] = []
    begin = InferCycle.begin

    def note(cycle: InferCycle) -> None:
        seen.append(cycle.model)
        begin(cycle)

    monkeypatch.setattr(InferCycle, "begin", note)
    return seen


def requests_counted(app: Any) -> dict[tuple[str, ...], float]:
    counted: dict[tuple[str, ...], float] = app.service.metrics.counts()["warptok_requests_total"]
    return counted


def test_every_answer_and_refusal_is_the_one_of_the_long_way(short_ways):
    async def scenario():
        async with listening(FakeEngine()) as (app, port):
            transport = httpx.ASGITransport(app)
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
            async with httpx.AsyncClient(transport=transport, base_url="http://x") as long_way:
                for path, body, fields in CASES * 2:
                    headers = dict(field.split(": ") for field in fields)
                    expected = await long_way.post(path, content=body, headers=headers)
                    before = dict(requests_counted(app))
                    writer.write(request(body, path, *fields))
                    status, got, content = await answer(reader)
                    assert (status, content) == (expected.status_code, expected.content), path
                    for name in ("content-type", "inference-header-content-length"):
                        assert got.get(name.encode(), b"").decode() == expected.headers.get(
                            name, ""
                        )
                    assert b"x-request-id" in got
                    counted = requests_counted(app)
                    changed = {k: v for k, v in counted.items() if v != before.get(k)}
                    key = "/v2/models/{model}/infer", status
                    assert changed == {key: before.get(key, 0) + 1}
            writer.close()

    run(scenario)
    assert len(short_ways) == 2 * len(CASES)


@pytest.mark.parametrize(
    ("path", "size", "fields"),
    [
        (URL, 9, ("Connection: close",)),
        (URL, 9, ("Content-Encoding: identity", "Expect: 100-continue")),
        (URL, MAX_INLINE_BYTES, ()),
        (URL + "?a=b", 9, ()),
        (f"/v2/models/{V}/versions/1/infer", 9, ()),
        (URL.replace("_", "%5F"), 9, ()),
    ],
)
def test_what_is_not_plain_and_small_goes_the_long_way(short_ways, path, size, fields):
    async def scenario():
        async with listening(FakeEngine()) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
            writer.write(request(infer_body("x" * size), path, *fields))
            if len(fields) == 2:
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
            assert (await answer(reader))[0] == 200
            writer.close()

    run(scenario)
    assert not short_ways


def test_pipelined_requests_are_answered_in_their_order_and_the_connection_lives_on(short_ways):
    async def scenario():
        async with listening(FakeEngine(delay_s=0.002)) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
            get = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
            texts = [f"text {i}" for i in range(9)]
            for pieces in ([request(infer_body(text), URL) + get for text in texts], texts):
                for text, piece in zip(texts, pieces, strict=True):
                    writer.write(piece if isinstance(piece, bytes) else b"")
                    if not isinstance(piece, bytes):
                        for byte in request(infer_body(text), URL):
                            writer.write(bytes([byte]))
                            await writer.drain()
                        assert ids_of(await answer(reader)) == text.encode()
                if isinstance(pieces[0], bytes):
                    for text in texts:
                        assert ids_of(await answer(reader)) == text.encode()
                        assert json.loads((await answer(reader))[2]) == {"live": True}
            writer.close()

    run(scenario)
    assert short_ways


def ids_of(answered: tuple[int, dict[bytes, bytes], bytes]) -> bytes:
    status, _, body = answered
    assert status == 200, body
    return np.array(json.loads(body)["outputs"][0]["data"], np.uint8).tobytes()


def test_keys_are_asked_for_and_rates_are_kept(short_ways, tmp_path):
    async def scenario():
        path = tmp_path / "keys.json"
        encode = add_key(path, "one", ("encode",), Rates(requests_per_s=0.001))
        decode = add_key(path, "two", ("decode",))
        async with listening(FakeEngine(), api_keys_file=path) as (_, port):
            async with client_at(port) as client:
                for secret, status in ((None, 401), (decode, 403), (encode, 200), (encode, 429)):
                    headers = {} if secret is None else {"x-api-key": secret}
                    got = await client.post(URL, content=infer_body("x"), headers=headers)
                    assert got.status_code == status
                    assert [*got.json()] == (["error"] if status != 200 else [*got.json()])
                assert "retry-after" in got.headers

    run(scenario)
    assert len(short_ways) == 2


def test_a_client_that_leaves_is_counted_and_its_work_dropped():
    async def scenario():
        engine = FakeEngine()
        async with listening(engine, max_batch_bytes=1) as (app, port):
            service = app.service
            async with client_at(port) as client:
                await client.post(URL, content=infer_body("warm"))
            engine.gate.clear()
            connections = []
            for text in ("first", "second", "third"):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(request(infer_body(text), URL))
                connections.append(writer)
                await until(lambda: service.batcher.queue_rows == len(connections))
            connections[2].close()
            await until(lambda: service.batcher.queue_rows == 2)
            engine.gate.set()
            await until(lambda: service.batcher.queue_rows == 0)
            for writer in connections[:2]:
                writer.close()
            assert ["third"] not in engine.batches
            assert service.metrics.counts()["warptok_requests_cancelled_total"] == {(): 1}

    run(scenario)


def test_a_body_that_does_not_come_is_refused_in_the_protocols_words():
    async def scenario():
        async with listening(FakeEngine(), stream_idle_timeout_s=0.1) as (app, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request(infer_body("x"), URL)[:-5])
            status, fields, body = await answer(reader)
            assert (status, [*json.loads(body)]) == (408, ["error"])
            assert fields[b"connection"] == b"close"
            assert await reader.read() == b""
            assert requests_counted(app)["/v2/models/{model}/infer", 408] == 1
            writer.close()

    run(scenario)


def test_a_fault_behind_the_head_ends_the_connection(monkeypatch):
    async def breaks(self, scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("a fault")

    async def scenario():
        async with listening(FakeEngine()) as (_, port):
            monkeypatch.setattr(Infer, "__call__", breaks)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request(infer_body("x"), URL))
            assert await reader.read() == b""
            writer.close()

    run(scenario)


def test_a_front_end_which_forwards_inference_does_not_answer_it():
    app = create_app(Settings(preload="none"), FakeEngine())
    assert Server(app, app.service.settings).config.http.infers
    front_end = AsgiFastPath(Forwarding(app.app, None, app.service.settings), app.service)
    assert not Server(front_end, app.service.settings).config.http.infers


def test_a_model_is_named_by_plain_letters():
    assert model_of(b"/v2/models/gpt-2_x.decode/infer") == "gpt-2_x.decode"
    for url in (b"/v2/models//infer", b"/v2/models/a/b/infer", b"/v2/models/a%2f/infer", b"/v2"):
        assert model_of(url) == ""
