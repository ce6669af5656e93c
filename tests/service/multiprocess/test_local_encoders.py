"""Small batches that front ends encode themselves: when, of what, and that the ids are the same."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from service.batching.work import CostKey, EncodeWork
from service.engines.base import Holding, Residency, SelfTest
from service.engines.cpu.engine import CpuEngine
from service.multiprocess import local_encoders, remote_runner
from service.multiprocess.engine_server import EngineServer
from service.multiprocess.front_end import FrontEnd
from service.multiprocess.local_encoders import LocalEncoders
from tests.support.fake_engine import FakeEngine, byte_vocabulary
from tests.support.linked_processes import V, client_of, linked_service
from tests.support.waiting import run, until
from vocabularies.batch.batch import Batch
from vocabularies.errors import VocabularyError
from vocabularies.model.vocabulary import Vocabulary

WORTH = 3
TEXT = "naïve ✓"
INLINE_BYTES = 1000


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Few batches are many, and no machine is too slow for a small one."""
    monkeypatch.setattr(local_encoders, "LOAD_AFTER_BATCHES", WORTH)
    monkeypatch.setattr(local_encoders, "REPORT_S", 1e9)
    monkeypatch.setattr(remote_runner, "MAX_INLINE_S", 1.0)


class SizedEngine(FakeEngine):
    """Each vocabulary takes as many bytes as it has tokens; one of 400 cannot be loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[str, int] = {}
        self.word = "cpu"

    def load(self, vocabulary: Vocabulary, permanent: bool = False) -> Residency:
        """Remember it."""
        if len(vocabulary) == 400:
            raise VocabularyError.at("vocabulary", "told to fail")
        super().load(vocabulary)
        self.sizes[vocabulary.digest] = len(vocabulary)
        return Residency(self.word, "fake", SelfTest("itself", 1, 0))

    def holdings(self) -> dict[str, Holding]:
        """All of them were used just now."""
        return {digest: Holding(self.sizes[digest], perf_counter()) for digest in self.loaded}


def note(own: LocalEncoders, vocabulary: Vocabulary, times: int = WORTH) -> None:
    for _ in range(times):
        own.count_batch([EncodeWork(vocabulary, ["a", TEXT], num_bytes=40)])


async def noted(own: LocalEncoders, vocabulary: Vocabulary) -> bool:
    """Return whether the front end has loaded a vocabulary after many requests for it."""
    note(own, vocabulary)
    await until(lambda: not own._loading)
    return own.cost(vocabulary.digest) is not None


def test_a_vocabulary_is_loaded_after_many_small_batches():
    async def scenario():
        own, vocabulary = LocalEncoders(SizedEngine(), 1 << 20), byte_vocabulary()
        note(own, vocabulary, WORTH - 1)
        assert not own._loading
        note(own, vocabulary, 1)
        assert own.cost(vocabulary.digest) is None
        await until(lambda: own.cost(vocabulary.digest))
        assert own.engine.loaded == {vocabulary.digest}
        assert own.engine.batches[-1] == ["a", TEXT]
        note(own, vocabulary, 2 * WORTH)
        assert not own._loading
        own.close()
        assert own.engine.closed

    run(scenario)


def test_what_cannot_be_loaded_or_is_slow_is_left_to_the_engine_process(monkeypatch, caplog):
    monkeypatch.setattr(local_encoders, "RETRY_AFTER_BATCHES", 2 * WORTH)

    async def scenario():
        own = LocalEncoders(SizedEngine(), 1 << 20)
        assert not await noted(own, byte_vocabulary(400))
        assert "told to fail" in caplog.text
        own.engine.word = "reference"
        slow = byte_vocabulary()
        assert not await noted(own, slow)
        assert own.engine.loaded == set()
        own.engine.word = "cpu"
        note(own, slow, 2 * WORTH)
        assert not own._loading
        assert await noted(own, slow)

    run(scenario)


def test_what_was_used_lately_leaves_for_nothing_else(monkeypatch):
    async def scenario():
        own, first, second = (
            LocalEncoders(SizedEngine(), 500),
            byte_vocabulary(),
            byte_vocabulary(300),
        )
        assert await noted(own, first)
        assert not await noted(own, second)
        assert own.engine.loaded == {first.digest}
        monkeypatch.setattr(local_encoders, "MIN_IDLE_S", -1.0)
        own.keep_only({first.digest})
        assert await noted(own, second)
        assert own.engine.loaded == {second.digest}
        assert own.cost(first.digest) is None

    run(scenario)


def test_what_has_no_name_any_more_is_forgotten_also_while_it_is_loaded():
    async def scenario():
        own, first, second = (
            LocalEncoders(SizedEngine(), 1000),
            byte_vocabulary(),
            byte_vocabulary(300),
        )
        assert await noted(own, first)
        own.engine.gate.clear()
        note(own, second)
        await until(lambda: len(own.engine.loaded) == 2)
        loading = own._loading[second.digest]
        own.keep_only(())
        own.engine.gate.set()
        await loading
        assert not own.engine.loaded
        assert (own.cost(first.digest), own.cost(second.digest)) == (None, None)

    run(scenario)


def test_a_text_on_which_the_engine_breaks_is_no_reason_not_to_have_it():
    async def scenario():
        own, vocabulary = LocalEncoders(SizedEngine(), 1000), byte_vocabulary()
        for _ in range(WORTH):
            own.count_batch([EncodeWork(vocabulary, ["BOOM", "PANIC"], num_bytes=40)])
        await until(lambda: own.cost(vocabulary.digest))

    run(scenario)


class Counting(CpuEngine):
    """The engine of the engine process, which keeps the names of its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.calls: list[str] = []

    def encode(self, vocabulary: Vocabulary, batch: Batch) -> Any:
        self.calls.append("encode")
        return super().encode(vocabulary, batch)

    def count(self, vocabulary: Vocabulary, batch: Batch) -> Any:
        self.calls.append("count")
        return super().count(vocabulary, batch)

    def decode(self, *arguments: Any) -> Any:
        self.calls.append("decode")
        return super().decode(*arguments)


@contextlib.asynccontextmanager
async def service_with_local_encoder(
    folder: Path, **settings: Any
) -> AsyncIterator[tuple[EngineServer, FrontEnd, Counting]]:
    """Run a service whose first front end has loaded an encoder, after enough requests for it."""
    engine = Counting()
    made = {"inline_batch_bytes": INLINE_BYTES} | settings
    async with linked_service(folder, engine, **made) as (engine_server, (front, _)):
        digest = front.replica.entries[V].vocabulary.digest
        async with client_of(front) as client:
            for _ in range(WORTH):
                assert await ids_of(client, TEXT) == list(TEXT.encode())
            await until(lambda: not front.encoders._loading)
            if front.encoders.cost(digest) is not None:
                await ids_of(client, TEXT)  # Reports the use to the engine process.
        del engine.calls[:]
        yield engine_server, front, engine


async def ids_of(client: Any, text: str) -> list[int]:
    answer = await client.post("/v1/encode", json={"vocabulary": V, "text": text})
    assert answer.status_code == 200, answer.text
    assert answer.json()["engine"] == "cpu"
    return answer.json()["ids"]


def test_small_batches_stay_here_and_others_go_to_the_engine_process(tmp_path):
    async def scenario():
        async with (
            service_with_local_encoder(tmp_path) as (_, front, engine),
            client_of(front) as client,
        ):
            counts = front.service.metrics.counts
            before = counts()["warptok_batches_total"]
            assert await ids_of(client, TEXT) == list(TEXT.encode())
            counted = await client.post("/v1/count", json={"vocabulary": V, "texts": [TEXT]})
            assert counted.json()["num_tokens"] == [len(TEXT.encode())]
            ids = {"vocabulary": V, "ids": list(TEXT.encode())}
            assert (await client.post("/v1/decode", json=ids)).json()["text"] == TEXT
            assert engine.calls == []
            ran = counts()["warptok_batches_total"]
            assert {kind: ran[kind] - before.get(kind, 0) for kind in ran} == {
                ("cpu", operation): 1 for operation in ("encode", "count", "decode")
            }
            assert len(await ids_of(client, "x" * INLINE_BYTES)) == INLINE_BYTES
            assert engine.calls == ["encode"]
            assert counts()["warptok_batches_total"] == ran
            accepted = sum(counts()["warptok_work_accepted_total"].values())
            assert counts()["warptok_work_finished_total"] == {("answered",): accepted}

    run(scenario)


def test_a_batch_now_and_then_tells_the_engine_process_of_the_use(tmp_path, monkeypatch):
    async def scenario():
        async with (
            service_with_local_encoder(tmp_path) as (_, front, engine),
            client_of(front) as client,
        ):
            front.encoders._report_due.clear()
            for _ in range(3):
                await ids_of(client, TEXT)
            assert engine.calls == ["encode"]

    run(scenario)


def test_small_batches_are_answered_while_there_is_no_engine_process(tmp_path):
    async def scenario():
        async with (
            service_with_local_encoder(tmp_path) as (engine_server, front, engine),
            client_of(front) as client,
        ):
            front.encoders._report_due.clear()
            front.engine.path = tmp_path / "nobody.sock"
            next(link for link, name in engine_server.links.items() if name == "front-0").close()
            await until(lambda: front.engine.link is None)
            assert await ids_of(client, TEXT) == list(TEXT.encode())
            body = {"vocabulary": V, "text": "x" * INLINE_BYTES}
            assert (await client.post("/v1/encode", json=body)).status_code == 503
            assert engine.calls == []

    run(scenario)


def test_a_vocabulary_that_was_slow_once_is_tried_again(tmp_path):
    async def scenario():
        async with (
            service_with_local_encoder(tmp_path) as (_, front, engine),
            client_of(front) as client,
        ):
            kind = CostKey(front.replica.entries[V].vocabulary.digest, "encode")
            front.batcher.runner.costs.forget(kind)
            front.batcher.runner.costs.assume(kind, 1.0)
            await ids_of(client, TEXT)
            assert engine.calls == ["encode"]
            front.encoders._report_due.clear()
            await ids_of(client, TEXT)
            await ids_of(client, TEXT)
            assert engine.calls == ["encode", "encode"]

    run(scenario)


@pytest.mark.parametrize("settings", [{"crossover_bytes": 0}, {"inline_batch_bytes": 0}])
def test_nothing_stays_here_where_the_operator_wants_it_elsewhere(tmp_path, settings):
    async def scenario():
        async with (
            service_with_local_encoder(tmp_path, **settings) as (_, front, engine),
            client_of(front) as client,
        ):
            await ids_of(client, TEXT)
            assert engine.calls == ["encode"]
            assert front.encoders.engine.holdings() == {}

    run(scenario)


def test_an_unloaded_vocabulary_leaves_its_front_ends(tmp_path):
    async def scenario():
        async with service_with_local_encoder(tmp_path) as (engine_server, front, _):
            digest = front.replica.entries[V].vocabulary.digest
            assert front.encoders.cost(digest) is not None
            engine_server.service.get_engine_parts().registry.unload(V)
            await engine_server.synchronize()
            assert front.encoders.cost(digest) is None
            assert front.encoders.engine.holdings() == {}

    run(scenario)


def test_the_encoders_are_closed_at_the_end(tmp_path):
    async def scenario():
        async with service_with_local_encoder(tmp_path) as (_, front, _):
            assert front.encoders.engine.holdings()
        assert front.encoders.engine.holdings() == {}

    run(scenario)
