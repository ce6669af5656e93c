"""Front ends whose engine process does not answer, or is gone."""

from __future__ import annotations

import asyncio

import pytest

from service.batching.work import CostKey, EncodeWork
from service.core.errors import EngineLost
from service.core.settings import Settings
from service.multiprocess.front_end import FrontEnd
from tests.support.fake_engine import FakeEngine, byte_vocabulary
from tests.support.linked_processes import V, client_of, linked_service
from tests.support.waiting import run, until


@pytest.mark.slow
def test_an_engine_process_that_does_not_answer_is_waited_for_until_the_deadline(tmp_path):
    async def scenario():
        engine = FakeEngine()
        async with linked_service(tmp_path, engine) as (_, (front, _)):
            engine.gate.clear()
            async with client_of(front) as client:
                body = {"vocabulary": V, "text": "x"}
                headers = {"x-request-timeout-ms": "50"}
                answer = await client.post("/v1/encode", json=body, headers=headers)
                assert (answer.status_code, answer.json()["code"]) == (504, "deadline_passed")

    run(scenario)


def test_a_lost_link_refuses_its_calls_and_connects_again(tmp_path):
    async def scenario():
        engine = FakeEngine()
        async with linked_service(tmp_path, engine) as (engine_server, (front, _)):
            engine.gate.clear()
            async with client_of(front) as client:
                body = {"vocabulary": V, "text": "x"}
                asked = asyncio.ensure_future(client.post("/v1/encode", json=body))
                await until(lambda: engine.batches)
                next(
                    link for link, name in engine_server.links.items() if name == "front-0"
                ).close()
                answer = await asked
                assert (answer.status_code, answer.json()["code"]) == (503, "engine_lost")
                counts = front.service.metrics.counts()["warptok_requests_rejected_total"]
                assert counts["engine_lost",] == sum(counts.values()) == 1
                engine.gate.set()
                await until(lambda: not front.reasons())
                assert (await client.post("/v1/encode", json=body)).status_code == 200

    run(scenario)


def test_small_batches_are_encoded_here_while_no_engine_process_is_there_however_slow(tmp_path):
    async def scenario():
        async with linked_service(tmp_path, FakeEngine(), inline_batch_bytes=1_000) as (
            engine_server,
            (front, _),
        ):
            async with client_of(front) as client:
                body = {"vocabulary": V, "text": "x"}
                while not front.encoders._costs:
                    assert (await client.post("/v1/encode", json=body)).status_code == 200
                (digest,) = front.encoders._costs
                assert (await client.post("/v1/encode", json=body)).status_code == 200  # Is told.
                for _ in range(50):
                    front.batcher.runner.costs.learn(CostKey(digest, "encode"), 1, 3_600.0)
                front.engine.path = tmp_path / "nobody.sock"
                next(
                    link for link, name in engine_server.links.items() if name == "front-0"
                ).close()
                await until(lambda: front.engine.link is None)
                answer = await client.post("/v1/encode", json=body)
                assert (answer.status_code, answer.json()["ids"]) == (200, [120])
                answer = await client.post("/v1/encode", json=body | {"text": "x" * 1_001})
                assert (answer.status_code, answer.json()["code"]) == (503, "engine_lost")

    run(scenario)


def test_all_that_waits_is_refused_where_no_engine_process_is(tmp_path):
    """Each batch in a turn of its own: one that began the next would run out of stack."""

    async def scenario():
        front = FrontEnd(Settings(preload=V, frontends=1), tmp_path / "nobody.sock", "front-0")
        front.batcher.start()
        vocabulary = byte_vocabulary()
        works = [EncodeWork(vocabulary, ["x"], is_long=True) for _ in range(2000)]
        asked = [front.batcher.submit(work) for work in works]
        await until(lambda: all(future.done() for future in asked))
        assert {type(future.exception()) for future in asked} == {EngineLost}
        assert not front.batcher.queue_rows

    run(scenario)
