"""Refused and abandoned requests keep no memory, and free memory returns to the system."""

from __future__ import annotations

import asyncio
import gc
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

from service.apis.bulk.text_chunks import Cutter, encode_while_reading
from service.batching.batcher import Batcher
from service.batching.runner import LocalRunner
from service.batching.work import EncodeWork
from service.core.errors import DeadlinePassed, QueueFull
from service.core.settings import Settings
from service.engines.base import Abandoned
from service.engines.fault_isolation import encode_isolated
from service.observability.metrics import Metrics
from service.runtime import malloc
from service.server import lifespan
from tests.support.app_client import serving
from tests.support.fake_engine import FakeEngine, byte_vocabulary
from tests.support.waiting import run, until
from vocabularies.batch.batch import DEFAULT_OPTIONS, Batch


@pytest.fixture
def no_collector():
    """Turn the garbage collector off, so that only reference counts free objects."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def text_batch() -> Batch:
    return Batch(data=np.full(1000, ord("A"), np.uint8), offsets=np.array([0, 1000]))


@pytest.mark.parametrize("error", [Abandoned, KeyboardInterrupt])
def test_a_text_that_was_given_up_is_freed_at_once(no_collector, error):
    class LeavingEngine(FakeEngine):
        def encode(self, vocabulary, batch):
            raise error

    batch = text_batch()
    gone = weakref.ref(batch)
    with pytest.raises(error):
        encode_isolated(LeavingEngine(), byte_vocabulary(), batch)
    del batch
    assert gone() is None


@pytest.mark.parametrize("error", [Abandoned, DeadlinePassed, SystemExit])
def test_a_batch_that_a_thread_gave_up_is_freed_at_once(no_collector, error):
    seen = []

    class LeavingEngine(FakeEngine):
        def encode(self, vocabulary, batch):
            seen.append(weakref.ref(batch))
            raise error("for this test")

    async def scenario():
        loop = asyncio.get_running_loop()
        settings = Settings()
        metrics = Metrics("1", settings.max_batch_bytes, settings.max_metric_names)
        runner = LocalRunner(LeavingEngine(), settings, metrics)
        outcomes = []

        def finish(outcome):
            outcomes.append(type(outcome))

        work = EncodeWork(byte_vocabulary(), ["AC"], future=loop.create_future())
        runner.run([work], "long", finish)
        del work
        await until(lambda: outcomes == [error])
        await until(lambda: seen[0]() is None)
        runner.shutdown()

    run(scenario)


def test_the_parts_of_a_text_that_is_refused_are_freed_at_once(no_collector):
    class Body:
        left = 3

        async def read_into(self, buffer):
            self.left -= 1
            return len(buffer)

        async def has_more(self):
            return self.left > 0

    seen = []

    async def encode(batch):
        seen.append(weakref.ref(batch))
        await asyncio.sleep(0)
        raise QueueFull("no room")

    async def scenario():
        cutter = Cutter.make(byte_vocabulary(), DEFAULT_OPTIONS)
        with pytest.raises(QueueFull):
            await encode_while_reading(
                Body(), cutter, encode, lambda size: np.empty(size, np.uint8)
            )
        await asyncio.sleep(0)  # What is left of the tasks.
        assert len(seen) == 3
        assert [ref() for ref in seen] == [None] * 3

    run(scenario)


def test_a_text_whose_deadline_passed_is_freed_with_its_answer(no_collector, monkeypatch):
    seen = []
    submit = Batcher.submit

    def note(batcher, work):
        seen.append(weakref.ref(work.rows))
        return submit(batcher, work)

    monkeypatch.setattr(Batcher, "submit", note)
    octets = {"content-type": "text/plain", "accept": "application/octet-stream"}
    path = "/v1/encode?vocabulary=evo_bytes&max_length=5"

    async def scenario():
        engine = FakeEngine()
        async with serving(engine, inline_batch_bytes=0) as (client, service):
            await service.registry.get_loaded("evo_bytes")
            engine.gate.clear()
            first = asyncio.ensure_future(client.post(path, content=b"AC", headers=octets))
            await until(lambda: engine.batches)
            hurried = octets | {"x-request-timeout-ms": "200"}
            answers = [await client.post(path, content=b"AC", headers=hurried) for _ in range(3)]
            assert [answer.status_code for answer in answers] == [504] * 3
            engine.gate.set()
            assert (await first).status_code == 200
            await until(lambda: service.batcher.queue_rows == 0)
            assert len(seen) == 4
            await until(lambda: all(ref() is None for ref in seen))

    run(scenario)


def test_free_memory_is_given_back_after_work_and_when_nothing_waits(monkeypatch):
    given = []
    monkeypatch.setattr(malloc, "give_back", lambda: given.append(True))
    monkeypatch.setattr(lifespan, "GIVE_BACK_PERIOD_S", 0.001)

    async def scenario():
        engine = FakeEngine()
        async with serving(engine, inline_batch_bytes=0) as (client, service):
            turns = count_sleeps(monkeypatch)
            await until(lambda: len(turns) > 5)
            assert not given
            engine.gate.clear()
            body = {"vocabulary": "evo_bytes", "text": "AC"}
            asking = asyncio.ensure_future(client.post("/v1/encode", json=body))
            await until(lambda: lifespan.IDLE_PERIOD_S in turns)
            assert service.batcher.queue_rows == 1
            assert not given
            engine.gate.set()
            assert (await asking).status_code == 200
            await until(lambda: given)
            turns.clear()
            await until(lambda: len(turns) > 5)
            assert len(given) == 1

    run(scenario)


def test_free_memory_is_given_back_while_the_queue_is_never_empty(monkeypatch):
    given: list[bool] = []
    monkeypatch.setattr(malloc, "give_back", lambda: given.append(True))
    monkeypatch.setattr(lifespan, "GIVE_BACK_PERIOD_S", 0.01)
    monkeypatch.setattr(lifespan, "MAX_BUSY_S", 0.01)

    async def scenario():
        engine = FakeEngine()
        async with serving(engine, inline_batch_bytes=0) as (client, service):
            engine.gate.clear()
            body = {"vocabulary": "evo_bytes", "text": "AC"}
            asking = asyncio.ensure_future(client.post("/v1/encode", json=body))
            await until(lambda: given)
            assert service.batcher.queue_rows == 1
            engine.gate.set()
            assert (await asking).status_code == 200

    run(scenario)


def test_all_garbage_is_not_collected_again_after_a_collection_that_took_long(monkeypatch):
    collected: list[int] = []
    monkeypatch.setattr(lifespan, "GIVE_BACK_PERIOD_S", 0.01)
    monkeypatch.setattr(lifespan, "MAX_COLLECT_S", 0.0)

    async def scenario():
        async with serving(FakeEngine()) as (client, state):
            await until(lambda: state.preloaded)
            monkeypatch.setattr(gc, "collect", collected.append)
            for count in (1, 2):
                body = {"vocabulary": "evo_bytes", "text": "AC"}
                assert (await client.post("/v1/encode", json=body)).status_code == 200
                await until(lambda count=count: len(collected) == count)

    run(scenario)
    assert collected == [lifespan.ALL, lifespan.YOUNG]


def test_texts_that_refer_to_themselves_are_freed_after_work(monkeypatch, no_collector):
    monkeypatch.setattr(lifespan, "GIVE_BACK_PERIOD_S", 0.01)

    class Kept:
        def __init__(self):
            self.itself = self

    async def scenario():
        async with serving(FakeEngine()) as (client, service):
            await until(lambda: service.preloaded)
            gone = weakref.ref(Kept())
            await asyncio.sleep(0.05)
            assert gone() is not None
            body = {"vocabulary": "evo_bytes", "text": "AC"}
            assert (await client.post("/v1/encode", json=body)).status_code == 200
            await until(lambda: gone() is None)

    run(scenario)


def count_sleeps(monkeypatch) -> list[float]:
    """The seconds for which anybody in the application sleeps."""
    seen: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        seen.append(seconds)
        await sleep(seconds)

    monkeypatch.setattr(lifespan, "asyncio", SimpleNamespace(**vars(asyncio) | {"sleep": note}))
    return seen


def test_the_c_library_takes_its_free_memory_back():
    malloc.give_back()
