"""Start, readiness, probes, the page, and what is counted."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from dataclasses import replace

import pytest

from service.core.errors import UnknownVocabulary
from service.core.settings import Settings
from service.server.app import create_app
from service.server.lifespan import freeze_garbage_collector, preload
from tests.support.app_client import serving
from tests.support.fake_engine import FakeEngine
from tests.support.waiting import run, until
from vocabularies.errors import VocabularyError


async def ready(client) -> None:
    while (await client.get("/readyz")).status_code != 200:
        await asyncio.sleep(0.01)


def test_readiness_waits_for_the_vocabularies_and_ends_with_draining():
    async def scenario():
        engine = FakeEngine()
        async with serving(engine, preload="hyenadna,mtdna6") as (client, service):
            await ready(client)
            assert set(service.registry.entries) == {"hyenadna", "mtdna6"}
            service.draining = True
            response = await client.get("/readyz")
            assert (response.status_code, response.json()["reasons"]) == (503, ["draining"])
            assert (await client.get("/livez")).json() == {"live": True}
        assert engine.closed

    run(scenario)


def test_the_default_vocabulary_is_loaded_first_and_alone_and_a_failing_one_stops_nothing():
    async def scenario():
        engine, events, switch_s = FakeEngine(), [], sys.getswitchinterval()
        load, both = engine.load, threading.Barrier(2, timeout=60)

        def load_two_at_once(vocabulary, pinned):
            events.append(("begins", vocabulary.kind))
            if len(events) in (3, 4):  # The second and the third.
                both.wait()
            events.append(("ends", vocabulary.kind))
            if vocabulary.kind == "kmers":
                raise VocabularyError.at("tokens", "told to fail")
            return load(vocabulary)

        engine.load = load_two_at_once
        names = "mtdna6,hyenadna,caduceus,gpn"
        settings = {"preload": names, "default_vocabulary": "gpn"}
        async with serving(engine, **settings) as (client, service):
            await ready(client)
            assert events[:2] == [("begins", "bpe"), ("ends", "bpe")]
            assert [event for event, _ in events[2:4]] == ["begins", "begins"]
            assert set(service.registry.entries) == {"hyenadna", "caduceus", "gpn"}
            assert gc.isenabled()
            assert sys.getswitchinterval() == switch_s

    run(scenario)


def test_a_collection_of_young_objects_looks_at_few_of_many_that_stay():
    numbers = []

    def note(phase, info):
        if phase == "start" and info["generation"] < 2:
            numbers.append(sum(len(gc.get_objects(i)) for i in range(info["generation"] + 1)))

    thresholds = gc.get_threshold()
    freeze_garbage_collector()
    gc.callbacks.append(note)
    try:
        connections = [[i] for i in range(100_000)]
    finally:
        gc.callbacks.remove(note)
        gc.unfreeze()
        gc.set_threshold(*thresholds)
    assert len(connections) == 100_000
    assert len(numbers) >= 30  # Collections do come.
    assert max(numbers) < 8_000


def test_an_unexpected_error_of_one_vocabulary_does_not_keep_the_service_from_being_ready(caplog):
    async def scenario():
        async with serving(FakeEngine(), preload="none") as (client, service):
            known = service.registry.known
            known["gpn"] = replace(known["gpn"], read=lambda: 1 // 0)
            service.preloaded = False
            await preload(service, ["gpn", "hyenadna", "mtdna6"])
            await ready(client)
            assert set(service.registry.entries) == {"hyenadna", "mtdna6"}

    run(scenario)
    assert "This is a bug. Vocabulary gpn failed" in caplog.text


def test_readiness_is_false_above_high_water():
    async def scenario():
        engine = FakeEngine()
        settings = {"inline_batch_bytes": 0, "max_queue_bytes": 1024}
        async with serving(engine, **settings) as (client, service):
            await ready(client)
            engine.gate.clear()
            body = {"vocabulary": "evo_bytes", "text": "x" * 900}
            waiting = asyncio.ensure_future(client.post("/v1/encode", json=body))
            await until(lambda: service.batcher.queue_bytes)
            response = await client.get("/readyz")
            assert response.json()["reasons"] == ["the queue is above high water"]
            engine.gate.set()
            assert (await waiting).status_code == 200
            assert (await client.get("/readyz")).status_code == 200

    run(scenario)


def test_an_unknown_preload_stops_the_start():
    async def scenario():
        app = create_app(Settings(preload="gpt3"), FakeEngine())
        with pytest.raises(UnknownVocabulary):
            async with app.running():
                pass

    run(scenario)


def test_requests_are_counted_under_their_routes_and_not_under_their_paths():
    async def scenario():
        async with serving(FakeEngine()) as (client, _):
            await client.post("/v1/encode", json={"vocabulary": "evo_bytes", "text": "abc"})
            await client.post("/v1/encode", json={"vocabulary": "nothing", "text": "abc"})
            await client.get("/v1/vocabularies/evo_bytes")
            await client.get("/v1/vocabularies/secret-name")
            await client.get("/some/unknown/path")
            await client.get("/v1/%01")
            text = (await client.get("/metrics")).text
            assert 'requests_total{route="/v1/encode",status="200"} 1.0' in text
            assert 'requests_total{route="/v1/encode",status="404"} 1.0' in text
            assert 'route="/v1/vocabularies/{name}",status="200"} 1.0' in text
            assert 'route="/v1/vocabularies/{name}",status="404"} 1.0' in text
            assert 'route="unmatched",status="404"} 1.0' in text
            assert 'route="refused",status="422"} 1.0' in text
            assert "secret-name" not in text
            assert 'warptok_tokens_total{engine="cpu",operation="encode"} 3.0' in text

    run(scenario)


def test_the_page_loads_nothing_from_elsewhere():
    async def scenario():
        async with serving(FakeEngine()) as (client, _):
            page = await client.get("/")
            assert page.status_code == 200
            assert "default-src 'none'" in page.headers["content-security-policy"]
            assert "http://" not in page.text
            assert "https://" not in page.text
            assert '<input type="password" id="key"' in page.text  # Where the service has keys.
            docs = await client.get("/docs")
            assert (docs.status_code, "https://" in docs.text) == (200, False)
            script = docs.text.split('<script src="')[1].split('"')[0]
            assert (await client.get(script)).status_code == 200

    run(scenario)


def test_info_names_the_limits_in_force():
    async def scenario():
        async with serving(FakeEngine(), max_texts=17) as (client, _):
            answer = (await client.get("/v1/info")).json()
            assert answer["limits"]["max_texts"] == 17
            assert answer["engines"] == ["cpu"]
            assert answer["batching"]["artificial_delay_ms"] == 0

    run(scenario)
