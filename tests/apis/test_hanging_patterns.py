"""Texts on which an uploaded regular expression never ends: they block nobody and are ended.

The expression is one that uploads accept, as a published file has it.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time

import grpc
import httpx
import pytest

from service.engines.cpu.engine import CpuEngine
from service.protos import warptok_pb2 as pb
from tests.service.apis.native.test_vocabularies import run
from tests.support.child_processes import find_children
from tests.support.inputs.tokenizer_documents import document, encoded
from tests.support.server_process import server_process
from tests.support.waiting import GIVEN_UP_S, until
from tests.support.waiting import run as run_loop

SPACES = {"type": "Split", "pattern": {"Regex": r"\s+$"}, "behavior": "Isolated", "invert": False}
UPLOAD = encoded(document({"a": 0, "b": 1, "ab": 2}, ["a b"], pre_tokenizer=SPACES))
HANGING = {"vocabulary": "mine", "text": " " * 300_000 + "1"}  # About four minutes.
PROMPT = {"vocabulary": "mine", "text": "ab"}
METHOD = "/warptok.v1.Tokenizer/Encode"
SETTINGS = {
    "WARPTOK_PRELOAD": "gpt2",
    "WARPTOK_PATTERN_US_PER_BYTE": "1000",
    "WARPTOK_DRAIN_TIMEOUT_S": "2",
}


def test_an_upload_with_a_slow_pattern_is_refused_by_name_place_and_time():
    split = SPACES | {"pattern": {"Regex": "(a+)+b"}}
    content = document({"a": 0}, [], pre_tokenizer={"type": "Sequence", "pretokenizers": [split]})

    async def scenario(client, service):
        answer = await client.put("/v1/vocabularies/mine", content=encoded(content))
        refusal = answer.json()
        assert (answer.status_code, refusal["code"]) == (422, "vocabulary_invalid")
        assert refusal["where"] == "pre_tokenizer.pretokenizers[0].pattern.Regex"
        assert "'(a+)+b' takes " in refusal["detail"] and "µs a byte" in refusal["detail"]
        assert "mine" not in service.registry.known

    run(scenario)


@pytest.mark.slow
def test_a_hanging_text_gets_504_and_its_own_vocabulary_and_others_are_answered_meanwhile():
    async def scenario(client, service):
        await client.put("/v1/vocabularies/mine", content=UPLOAD)
        await service.registry.get_loaded("gpt2")
        hanging = [asyncio.ensure_future(client.post("/v1/encode", json=HANGING)) for _ in range(2)]
        other = {"vocabulary": "gpt2", "text": "ab"}
        for _ in range(5):
            await asyncio.sleep(0.05)
            assert (await client.post("/v1/encode", json=other)).json()["ids"] == [397]
        assert not any(each.done() for each in hanging)
        for answer in await asyncio.gather(*hanging):
            assert (answer.status_code, answer.json()["code"]) == (504, "deadline_passed")
        assert (await client.post("/v1/encode", json=PROMPT)).json()["ids"] == [2]
        assert service.batcher.queue_bytes == 0

    run(scenario, CpuEngine(pattern_us_per_byte=1.0))


@pytest.fixture(scope="module", params=["0", "1"], ids=["one process", "front ends"])
def server(request, tmp_path_factory):
    settings = SETTINGS | {"WARPTOK_FRONTENDS": request.param}
    with server_process(tmp_path_factory.mktemp("logs"), settings) as made:
        answer = httpx.put(made.url + "/v1/vocabularies/mine", content=UPLOAD, timeout=GIVEN_UP_S)
        assert answer.status_code == 201, answer.text
        yield made


def workers(server) -> list[int]:
    """Return the workers of a service, whose engine process may be a child."""
    parents = [server.process.pid, *find_children(server.process.pid, "service.multiprocess")]
    return [worker for parent in parents for worker in find_children(parent, "patterns.worker")]


async def post(server, body, headers=None) -> httpx.Response:
    async with httpx.AsyncClient(base_url=server.url, timeout=GIVEN_UP_S) as client:
        return await client.post("/v1/encode", json=body, headers=headers)


def read_clock(worker: int) -> float:
    """Return the processor time that a worker has taken."""
    return time.clock_gettime((~worker << 3) | 2)


async def send_hanging(server) -> tuple[int, asyncio.StreamWriter]:
    """Send a hanging text; return the worker that computes it, and the connection."""
    assert (await post(server, PROMPT)).json()["ids"] == [2]
    (worker,) = workers(server)
    idle_s = read_clock(worker)
    body = json.dumps(HANGING).encode()
    head = b"POST /v1/encode HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    await writer.drain()
    await until(lambda: read_clock(worker) > idle_s + 0.5)
    return worker, writer


@pytest.mark.slow
def test_a_client_that_goes_away_frees_the_core(server):
    async def scenario():
        worker, writer = await send_hanging(server)
        writer.close()
        await until(lambda: worker not in workers(server))
        assert (await post(server, PROMPT)).json()["ids"] == [2]

    run_loop(scenario)


@pytest.mark.slow
def test_a_deadline_of_the_client_frees_the_core(server):
    async def scenario():
        assert (await post(server, PROMPT)).json()["ids"] == [2]
        (worker,) = workers(server)
        begin = time.monotonic()
        late = await post(server, HANGING, {"x-request-timeout-ms": "1000"})
        assert (late.status_code, late.json()["code"]) == (504, "deadline_passed")
        assert 0.9 < time.monotonic() - begin < 30
        await until(lambda: worker not in workers(server))

    run_loop(scenario)


@pytest.mark.slow
def test_a_cancelled_grpc_call_frees_the_core(server):
    async def scenario():
        assert (await post(server, PROMPT)).json()["ids"] == [2]
        (worker,) = workers(server)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{grpc_port(server)}") as channel:
            request = pb.EncodeRequest(vocabulary="mine", text=HANGING["text"].encode())
            call = channel.unary_unary(METHOD)(request.SerializeToString(), timeout=2.0)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call
        assert refused.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: worker not in workers(server))

    run_loop(scenario)


def grpc_port(server) -> str:
    return server.log.read_text().partition("gRPC on ")[2].split()[0].rpartition(":")[2].strip(",.")


@pytest.mark.slow
def test_a_drain_does_not_wait_for_it_and_leaves_no_worker(server):
    """The last one: it ends the service."""

    async def scenario():
        _, writer = await send_hanging(server)
        begin = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(server.process.wait, GIVEN_UP_S)
        assert server.process.returncode == 0
        assert time.monotonic() - begin < 60
        assert not find_children(1, "patterns.worker")
        writer.close()

    run_loop(scenario)
