"""The shortest path of a request over real sockets: the same bytes, order, connection ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st

from service.core.settings import Settings
from service.http.asgi_fast_path import AsgiFastPath
from service.http.connection.direct_call import DirectCall, RepeatedHead
from service.http.connection.protocol import MAX_DIRECT_BYTES, FastPathProtocol, make_protocol
from service.security.api_keys import add_key
from service.server.app import create_app
from tests.service.apis.native.test_tokens import BAD, GOOD, LIMITS, V
from tests.support.fake_engine import FakeEngine
from tests.support.waiting import GIVEN_UP_S, run, until

Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter


@contextlib.asynccontextmanager
async def listening(
    engine: FakeEngine, keep_alive_s: float = 5, **settings: Any
) -> AsyncIterator[tuple[AsgiFastPath, int]]:
    """uvicorn with our protocol on loopback, in this loop."""
    app = create_app(Settings(**{"preload": "none", "inline_batch_bytes": 0} | settings), engine)
    protocol = make_protocol(app.service)
    config = uvicorn.Config(
        app,
        port=0,
        http=protocol,
        ws="none",
        log_config=None,
        lifespan="on",
        timeout_keep_alive=keep_alive_s,  # type: ignore[arg-type]
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    task = asyncio.ensure_future(server._serve())
    await until(lambda: server.started or task.done())
    (listener,) = server.servers
    try:
        yield app, listener.sockets[0].getsockname()[1]
    finally:
        app.service.draining = True
        server.should_exit = True
        await until(lambda: not listener.is_serving())
        engine.gate.set()
        await task


def client_at(port: int) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=GIVEN_UP_S)


def request(body: bytes, path: str = "/v1/encode", *fields: str, version: str = "1.1") -> bytes:
    lines = [f"POST {path} HTTP/{version}", "Host: localhost", "Content-Type: application/json"]
    lines += [f"Content-Length: {len(body)}", *fields, "", ""]
    return "\r\n".join(lines).encode() + body


def text_body(text: str) -> bytes:
    return json.dumps({"vocabulary": V, "text": text}).encode()


async def answer(reader: Reader) -> tuple[int, dict[bytes, bytes], bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head[1:-2])
    body = await reader.readexactly(int(fields[b"content-length"]))
    return int(head[0].split()[1]), fields, body


@pytest.fixture(autouse=True)
def direct_calls(monkeypatch) -> list[str]:
    """The paths of the calls that went the short way."""
    seen: list[str] = []
    made = DirectCall.__init__

    def note(call: DirectCall, path: str, *rest: Any) -> None:
        seen.append(path)
        made(call, path, *rest)

    monkeypatch.setattr(DirectCall, "__init__", note)
    return seen


async def warm(reader: Reader, writer: Writer) -> None:
    """The vocabulary is loaded by the first call, which goes the long way."""
    writer.write(request(text_body("warm")))
    assert (await answer(reader))[0] == 200


def test_every_answer_and_refusal_is_the_one_of_the_long_way(direct_calls):
    async def scenario():
        async with listening(FakeEngine(), **LIMITS) as (app, port):
            transport = httpx.ASGITransport(app)
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
            async with httpx.AsyncClient(transport=transport, base_url="http://x") as long_way:
                cases = [*GOOD, *((path, body) for path, body, *_ in BAD if path != "/v1/windows")]
                for path, body in cases * 2:
                    content = body if isinstance(body, bytes) else json.dumps(body).encode()
                    headers = {"content-type": "application/json"}
                    expected = await long_way.post(path, content=content, headers=headers)
                    writer.write(request(content, path))
                    status, fields, got = await answer(reader)
                    assert (status, got) == (expected.status_code, expected.content), path
                    assert fields[b"content-type"].decode() == expected.headers["content-type"]
                    if status == 413 and b"max_body_bytes" in got:
                        writer.close()
                        reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()

    run(scenario)
    assert set(direct_calls) == {path for path, _ in GOOD}


def test_windows_go_the_long_way_for_a_small_body_may_have_a_large_answer(direct_calls):
    async def scenario():
        async with listening(FakeEngine()) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
            await warm(reader, writer)
            direct_calls.clear()
            for _ in range(2):
                body = json.dumps({"vocabulary": V, "sequence": "ACGT"}).encode()
                writer.write(request(body, "/v1/windows"))
                status, fields, _ = await answer(reader)
                assert (status, fields[b"content-type"]) == (200, b"application/json")
            writer.close()

    run(scenario)
    assert not direct_calls


def test_pipelined_requests_are_answered_in_their_order(direct_calls):
    async def scenario():
        async with listening(FakeEngine(delay_s=0.002)) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
            await warm(reader, writer)
            texts = [f"text {i}" for i in range(30)]
            get = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
            writer.write(b"".join(request(text_body(text)) + get for text in texts))
            for text in texts:
                assert bytes(json.loads((await answer(reader))[2])["ids"]) == text.encode()
                assert json.loads((await answer(reader))[2]) == {"live": True}
            writer.close()

    run(scenario)
    assert direct_calls


def test_a_body_may_come_byte_by_byte_and_the_connection_lives_on(direct_calls):
    async def scenario():
        async with listening(FakeEngine()) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
            await warm(reader, writer)
            for text in ("one", "two"):
                for byte in request(text_body(text)):
                    writer.write(bytes([byte]))
                    await writer.drain()
                assert bytes(json.loads((await answer(reader))[2])["ids"]) == text.encode()
            writer.close()

    run(scenario)
    assert len(direct_calls) == 3


@pytest.mark.parametrize(
    ("fields", "version", "is_direct", "closes"),
    [
        ((), "1.1", True, False),
        (("Connection: close",), "1.1", False, True),
        ((), "1.0", False, True),
        (("Content-Encoding: br",), "1.1", False, False),
        (("Expect: 100-continue",), "1.1", False, False),
    ],
)
def test_only_plain_requests_go_the_short_way(direct_calls, fields, version, is_direct, closes):
    async def scenario():
        async with listening(FakeEngine()) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
            await warm(reader, writer)
            direct_calls.clear()
            writer.write(request(text_body("x"), "/v1/encode", *fields, version=version))
            if "Expect: 100-continue" in fields:
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
            status, _, _ = await answer(reader)
            assert status == (415 if "Content-Encoding: br" in fields else 200)
            assert bool(direct_calls) == is_direct
            writer.write(request(text_body("y")))
            if closes:
                assert await reader.read() == b""
            else:
                assert (await answer(reader))[0] == 200
            writer.close()

    run(scenario)


def test_an_answer_without_the_body_that_a_client_holds_back_is_the_last():
    async def scenario():
        async with listening(FakeEngine()) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(
                b"POST /v1/encode?vocabulary=none HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: text/plain\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n"
            )
            status, fields, _ = await answer(reader)
            assert (status, fields[b"connection"]) == (404, b"close")
            assert await reader.read() == b""
            writer.close()

    run(scenario)


@pytest.fixture
def parsed(monkeypatch) -> list[None]:
    """One entry for each request that the parser saw."""
    seen: list[None] = []
    begin = FastPathProtocol.on_message_begin

    def note(protocol: FastPathProtocol) -> None:
        seen.append(None)
        begin(protocol)

    monkeypatch.setattr(FastPathProtocol, "on_message_begin", note)
    return seen


def test_a_head_that_was_sent_before_is_not_parsed_again(parsed):
    async def scenario():
        async with listening(FakeEngine()) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
            await warm(reader, writer)
            for number, text in enumerate(("a", "bb", "", "x" * 12_345, "a")):
                writer.write(request(text_body(text)))
                assert bytes(json.loads((await answer(reader))[2])["ids"]) == text.encode()
                assert len(parsed) == 2, number
            writer.write(request(b'{"vocabulary":'))  # The long way words what is wrong.
            assert (await answer(reader))[0] == 400
            writer.write(request(text_body("b"), "/v1/encode", "X-Own: 1"))
            assert (await answer(reader))[0] == 200
            assert len(parsed) == 4
            writer.close()

    run(scenario)


def test_bytes_inside_a_request_are_never_matched_with_the_cached_head():
    async def scenario():
        async with listening(FakeEngine()) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
            await warm(reader, writer)
            whole = request(text_body("known"))
            writer.write(whole)
            assert (await answer(reader))[0] == 200
            # As the value of a field, and as a body: neither is a request.
            for part in (b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Field: ", b"\r\n\r\n"):
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.02)
                if part.startswith(b"GET"):
                    writer.write(whole.partition(b"\r\n")[0])
                    await writer.drain()
                    await asyncio.sleep(0.02)
            assert json.loads((await answer(reader))[2]) == {"live": True}
            length = f"Content-Length: {len(whole)}"
            writer.write(
                f"POST /v1/encode HTTP/1.1\r\nHost: localhost\r\n{length}\r\n\r\n".encode()
            )
            await writer.drain()
            await asyncio.sleep(0.02)
            writer.write(whole)
            assert (await answer(reader))[0] == 415
            writer.write(whole)
            assert bytes(json.loads((await answer(reader))[2])["ids"]) == b"known"
            # Half a known head, and the rest; two requests in one piece.
            writer.write(whole[:40])
            await writer.drain()
            await asyncio.sleep(0.02)
            writer.write(whole[40:])
            assert (await answer(reader))[0] == 200
            writer.write(whole + whole)
            assert [(await answer(reader))[0] for _ in range(2)] == [200, 200]
            writer.close()

    run(scenario)


def test_a_removed_key_ends_the_cached_head(tmp_path):
    async def scenario():
        path = tmp_path / "keys.json"
        secret = add_key(path, "one", ("encode",))
        async with listening(FakeEngine(), api_keys_file=path) as (app, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
            keyed = request(text_body("x"), "/v1/encode", f"X-API-Key: {secret}")
            for _ in range(3):
                writer.write(keyed)
                assert (await answer(reader))[0] == 200
            path.write_text("[]")
            os.utime(path, ns=(0, 0))  # Another time, however coarse the file system's clock is.
            app.service.guard.refresh()
            writer.write(keyed)
            assert (await answer(reader))[0] == 401
            writer.close()

    run(scenario)


FIELDS = [
    "Host: localhost",
    "content-LENGTH: {}",
    "X: Content-Length: 3",
    "Transfer-Encoding: chunked",
]


@given(
    st.lists(st.sampled_from([*FIELDS, "Content-Length:{}", "A: b"]), max_size=5),
    st.binary(max_size=40),
    st.binary(max_size=40),
    st.integers(-2, 2),
)
def test_a_known_head_is_known_with_another_length_and_no_other_way(fields, body, other, wrong):
    def written(content: bytes, size: int) -> bytes:
        lines = ["POST / HTTP/1.1", *fields, "", ""]
        return "\r\n".join(lines).replace("{}", str(size)).encode() + content

    head = RepeatedHead.read(written(body, len(body)))
    names = [field.lower().split(":")[0] for field in fields]
    plain = names.count("content-length") == 1 and "transfer-encoding" not in names
    assert (head is not None) == plain
    if head is not None:
        assert head.find_body(written(other, len(other))) == other
        if wrong:
            assert head.find_body(written(other, max(0, len(other) + wrong))) in (None, b"")
        assert head.find_body(written(other, len(other))[1:]) is None


def test_a_long_body_and_a_query_go_the_long_way(direct_calls):
    async def scenario():
        async with listening(FakeEngine()) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
            await warm(reader, writer)
            direct_calls.clear()
            writer.write(request(text_body("x" * MAX_DIRECT_BYTES)))
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"transfer-encoding: chunked" in head.lower()
            await reader.readuntil(b"\r\n0\r\n\r\n")
            writer.write(request(text_body("x"), "/v1/encode?a=b"))
            status, _, body = await answer(reader)
            assert (status, json.loads(body)["where"]) == (422, "/a")
            writer.close()

    run(scenario)
    assert not direct_calls


def test_a_client_that_leaves_is_counted_and_its_work_dropped(direct_calls):
    async def scenario():
        engine = FakeEngine()
        async with listening(engine, max_batch_bytes=1) as (app, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
            await warm(reader, writer)
            engine.gate.clear()
            connections = []
            for i in range(6):
                _, leaving = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
                leaving.write(request(text_body(f"leaving {i}")))
                await leaving.drain()
                connections.append(leaving)
            await until(lambda: app.service.batcher.queue_rows == 6)
            for leaving in connections:
                leaving.close()
            counts = app.service.metrics.counts
            await until(lambda: counts()["warptok_requests_cancelled_total"] == {(): 6})
            engine.gate.set()
            await until(lambda: not app.service.batcher.queue_rows)
            seen = [text for batch in engine.batches for text in batch if "leaving" in text]
            assert len(seen) <= 2
            writer.close()

    run(scenario)


def test_stopping_answers_what_was_accepted_and_then_closes(direct_calls):
    async def scenario():
        engine = FakeEngine()
        async with listening(engine) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
            await warm(reader, writer)
            engine.gate.clear()
            writer.write(request(text_body("accepted")))
            await until(lambda: len(engine.batches) == 2)
        status, fields, body = await answer(reader)
        assert (status, bytes(json.loads(body)["ids"])) == (200, b"accepted")
        assert fields[b"connection"] == b"close"
        assert await reader.read() == b""
        writer.close()

    run(scenario)


@pytest.mark.parametrize("path", ["/v1/encode", "/v1/windows", "/v1/tokenize"])
def test_answers_close_their_connections_while_the_service_drains(path, direct_calls):
    async def scenario():
        async with listening(FakeEngine()) as (app, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
            await warm(reader, writer)
            writer.write(request(text_body("before"), path))
            assert b"connection" not in (await answer(reader))[1]
            app.service.draining = True
            writer.write(request(text_body("last"), path))
            assert (await answer(reader))[1][b"connection"] == b"close"
            assert await reader.read() == b""
            writer.close()

    run(scenario)


def test_requests_sent_at_once_are_all_answered_while_the_service_drains(direct_calls):
    async def scenario():
        async with listening(FakeEngine()) as (app, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
            app.service.draining = True
            writer.write(b"".join(request(text_body(text)) for text in "abc"))
            for text in b"abc":
                status, fields, body = await answer(reader)
                assert (status, json.loads(body)["ids"]) == (200, [text])
            assert fields[b"connection"] == b"close"
            assert await reader.read() == b""
            writer.close()

    run(scenario)
