"""Front ends follow the names of the engine process by lists of what has changed."""

from __future__ import annotations

import asyncio
import random

import numpy as np
import pytest

from service.core.errors import NotReady
from service.core.settings import Settings
from service.engines.base import Residency, SelfTest
from service.multiprocess import engine_server, front_end
from service.multiprocess.engine_server import EngineServer
from service.multiprocess.front_end import FrontEnd
from service.multiprocess.front_end_registry import MAX_LOADS, FrontEndRegistry
from service.multiprocess.link.frames import Message
from service.multiprocess.remote_engine import write_residency
from service.registry import changes
from service.registry.entries import RegisteredVocabulary
from tests.support.fake_engine import FakeEngine, byte_vocabulary
from tests.support.linked_processes import client_of, linked_service
from tests.support.waiting import run
from vocabularies.model import canonical

CONTENTS = [canonical.to_bytes(byte_vocabulary(size)) for size in (300, 301)]


@pytest.fixture
def sent(monkeypatch):
    """The lists that front ends get."""
    lists = []
    make = EngineServer.list_vocabularies

    def note(server, names=None):
        listed = make(server, names)
        lists.append(listed)
        return listed

    monkeypatch.setattr(EngineServer, "list_vocabularies", note)
    return lists


def test_front_ends_get_what_has_changed_and_nothing_while_nothing_changes(
    tmp_path, sent, monkeypatch
):
    monkeypatch.setattr(engine_server, "STATUS_PERIOD_S", 0.01)

    async def scenario():
        async with linked_service(tmp_path, FakeEngine()) as (_, fronts):
            async with client_of(fronts[0]) as client:
                await asyncio.sleep(0.1)
                assert all(len(each["known"]) > 10 for each in sent if each["names"] is None)
                sent.clear()
                await asyncio.sleep(0.1)
                assert sent == []
                await client.put("/v1/vocabularies/new", content=CONTENTS[0])
                assert {name for each in sent for name in each["names"]} == {"new"}
                assert {name for each in sent for name in each["known"]} == {"new"}
                sent.clear()
                await client.put("/v1/aliases/other", json={"vocabulary": "new"})
                assert [each["aliases"] for each in sent][:2] == [{"other": "new"}] * 2
                sent.clear()
                await client.delete("/v1/vocabularies/new")
                for front in fronts:
                    view = front.replica
                    assert "new" not in view.known and "new" not in view.entries
                    assert "other" not in view.aliases

    run(scenario)


@pytest.mark.parametrize("num_kept", [2, 1024])
def test_front_ends_know_the_same_as_the_engine_process_after_any_changes(
    tmp_path, monkeypatch, num_kept
):
    monkeypatch.setattr(changes, "KEPT_CHANGES", num_kept)
    chance = random.Random(num_kept)

    async def change(client):
        name = chance.choice("abc")
        url = f"/v1/vocabularies/{name}"
        match chance.randrange(6):
            case 0 | 1:
                content = chance.choice(CONTENTS)
                await client.put(url, params={"replace": "true"}, content=content)
            case 2:
                await client.delete(url)
            case 3:
                await client.put(f"/v1/aliases/{name}{name}", json={"vocabulary": name})
            case 4:
                await client.post(f"{url}/unload")
            case _:
                await client.post("/v1/encode", json={"vocabulary": name, "text": "x"})

    def describe(view):
        digests = {name: entry.vocabulary.digest for name, entry in view.entries.items()}
        known = {name: (each.source, each.builtin) for name, each in view.known.items()}
        return known, digests, dict(view.aliases), dict(view.failures)

    async def scenario():
        async with linked_service(tmp_path, FakeEngine()) as (server, fronts):
            async with client_of(fronts[0]) as first, client_of(fronts[1]) as second:
                for _ in range(40):
                    await asyncio.gather(*(change(each) for each in (first, second, first)))
                await server.synchronize()
                expected = describe(server.service.registry)
                assert [describe(front.replica) for front in fronts] == [expected] * 2

    run(scenario)


def test_a_front_end_answers_when_it_knows_the_names(tmp_path, monkeypatch):
    """Its port accepts then: a proxy that sends requests as soon as it opens gets no 503."""
    settings = Settings(frontends=2, preload="none")

    async def scenario():
        async with linked_service(tmp_path, FakeEngine()):
            front = FrontEnd(settings, tmp_path / "engine.sock", "front-2")
            async with front._running():
                assert "evo_bytes" in front.replica.known
        monkeypatch.setattr(front_end, "FIRST_LIST_S", 0.05)
        alone = FrontEnd(settings, tmp_path / "nobody.sock", "front-3")
        async with alone._running():
            assert alone.reasons() == ["the engine process is being started"]

    run(scenario)


def test_a_front_end_that_is_stopped_does_not_wait_for_the_names(tmp_path, monkeypatch):
    monkeypatch.setattr(front_end, "FIRST_LIST_S", 600.0)

    async def scenario():
        settings = Settings(frontends=1, preload="none")
        alone = FrontEnd(settings, tmp_path / "nobody.sock", "front-0")
        alone.service.draining = True  # What a signal sets.
        async with alone._running():
            assert not alone.replica.has_list.is_set()

    run(scenario)


def test_a_vocabulary_that_could_not_be_read_is_read_with_the_next_list():
    vocabulary = byte_vocabulary(300)
    refusals = [NotReady("means another vocabulary by now")]

    class Engine:
        async def call(self, message):
            if refusals:
                raise refusals.pop()
            content = canonical.to_bytes(vocabulary)
            return Message("answer", {"config": None}, [np.frombuffer(content, np.uint8)])

    residency = write_residency(Residency("cpu", "fake", SelfTest("itself", 1, 0)))

    def listed(names, entries):
        return {
            "names": names,
            "known": {name: ["uploaded", "", False, []] for name in names},
            "aliases": {},
            "failures": {},
            "entries": entries,
            "is_complete": True,
        }

    async def scenario():
        replica = FrontEndRegistry(Engine())
        entry = [vocabulary.digest, 1, residency]
        with pytest.raises(NotReady):
            await replica.follow(listed(["a"], {"a": entry}))
        assert "a" in replica.known and not replica.entries
        await replica.follow(listed([], {}))
        assert replica.entries["a"].vocabulary.digest == vocabulary.digest

    run(scenario)


@pytest.mark.parametrize(("num_evicted", "is_answered"), [(2, True), (99, False)])
def test_a_vocabulary_that_others_evict_before_it_is_read_is_loaded_again(num_evicted, is_answered):
    loads = []

    class Engine:
        async def call(self, message):
            assert message.values["name"] == "a"
            loads.append(message)
            if len(loads) > num_evicted:
                replica.entries["a"] = object()

    replica = FrontEndRegistry(Engine())
    replica.known["a"] = RegisteredVocabulary("a", "uploaded", "", False)
    replica.has_list.set()

    async def scenario():
        if is_answered:
            assert await replica.get_loaded("a") is replica.entries["a"]
            return
        with pytest.raises(NotReady, match="a was unloaded during the request"):
            await replica.get_loaded("a")

    run(scenario)
    assert len(loads) == min(num_evicted + 1, MAX_LOADS)
