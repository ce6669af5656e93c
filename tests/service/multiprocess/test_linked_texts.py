"""Texts and ids that the engine process reads and writes where a front end has them."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest

from gpu.errors import OutOfMemory
from service.batching.work import CountWork, EncodeWork
from service.core.errors import DeadlinePassed, NotReady, QueueFull
from service.engines.hybrid.engine import HybridEngine
from service.multiprocess import engine_server
from service.multiprocess.front_end import FrontEnd
from service.multiprocess.link.frames import Message
from service.multiprocess.link.shared_memory import MIN_SHARED_BYTES
from service.multiprocess.remote_runner import PendingBatch
from tests.support.fake_engine import FakeEngine, byte_vocabulary
from tests.support.gpus.fake_gpu import FakeGpu
from tests.support.linked_processes import V, client_of, linked_service
from tests.support.waiting import run, until
from vocabularies.batch.batch import Batch

FIELDS = {"/v1/encode": ("vocabulary", "text"), "/tokenize": ("model", "prompt")}


def test_large_texts_and_ids_are_shared_and_let_go_of(tmp_path):
    """The front end's joined requests, too."""

    async def scenario():
        async with linked_service(tmp_path, FakeEngine()) as (engine_server, (front, _)):
            links = [front.engine.link, *engine_server.links]
            await until(lambda: all(link._is_mapped for link in links))
            async with client_of(front) as client:
                sizes = 10, 90_000, 1_100_000
                texts = [bytes([byte]) * size for byte in b"abc" for size in sizes]
                query = {"vocabulary": V, "add_special_tokens": "false", "dtype": "uint16"}
                octets = "application/octet-stream"
                headers = {"content-type": octets, "accept": octets}
                asked = [
                    client.post("/v1/encode", params=query, content=text, headers=headers)
                    for text in texts
                ]
                for text, answer in zip(texts, await asyncio.gather(*asked), strict=True):
                    assert np.array_equal(np.frombuffer(answer.content, np.uint16), list(text))
                del answer, asked
            assert front.engine.memory.num_mapped
            assert engine_server.memory.num_mapped
            await until(lambda: not any(link._loans for link in links))

    run(scenario)


@pytest.mark.parametrize("path", FIELDS)
def test_large_texts_that_the_engine_process_refuses_are_let_go_of(tmp_path, monkeypatch, path):
    """Without the collector, which hardly ever runs."""

    async def scenario():
        async with linked_service(tmp_path, FakeEngine()) as (engine_server, (front, _)):
            links = [front.engine.link, *engine_server.links]
            await until(lambda: all(link._is_mapped for link in links))
            admission = engine_server.service.batcher.admission
            name, field = FIELDS[path]
            body = {name: V, field: "x" * MIN_SHARED_BYTES}
            async with client_of(front) as client:
                await client.post(path, json=body)
                gc.collect()
                gc.disable()
                for error in (QueueFull("full"), DeadlinePassed("late")):
                    with monkeypatch.context() as patch:
                        patch.setattr(admission, "enter", Mock(side_effect=[error]))
                        answer = await client.post(path, json=body)
                    assert answer.status_code >= 429, answer.text
                    del answer, error, patch
            await until(lambda: not any(link._loans for link in links))
            kinds = EncodeWork, CountWork, PendingBatch, Message
            assert not [each for each in gc.get_objects() if isinstance(each, kinds)]

    try:
        run(scenario)
    finally:
        gc.enable()


def test_a_digest_is_found_again_when_its_name_goes(tmp_path):
    async def scenario():
        async with linked_service(tmp_path, FakeEngine()) as (engine_server, _):
            entries = engine_server.service.registry.entries
            vocabulary = entries[V].vocabulary
            assert engine_server._find_vocabulary(vocabulary.digest) is vocabulary
            entries["another"] = replace(entries.pop(V), name="another")
            assert engine_server._find_vocabulary(vocabulary.digest) is vocabulary
            entries[V] = replace(entries.pop("another"), vocabulary=byte_vocabulary(300))
            with pytest.raises(NotReady):
                engine_server._find_vocabulary(vocabulary.digest)

    run(scenario)


def test_front_ends_texts_are_page_locked_once_they_are_sent_until_a_front_end_is_gone(
    tmp_path, monkeypatch
):
    most = 4 * MIN_SHARED_BYTES
    monkeypatch.setattr(engine_server, "PAGE_LOCKED_BYTES", 2 * most)

    async def scenario():
        gpu = FakeGpu(FakeEngine())
        engine = HybridEngine(gpu.cpu, gpu.opened, MIN_SHARED_BYTES)
        async with linked_service(tmp_path, engine) as (engine_server, fronts):
            sent, vocabulary = [], fronts[0].service.registry.entries[V].vocabulary
            encode, seen = gpu.encode, []

            def look(vocabulary, batch):
                seen.append(gpu.device.is_pinned(batch.data))
                return encode(vocabulary, batch)

            monkeypatch.setattr(gpu, "encode", look)

            async def page_locked(num: int) -> None:
                def fronts_there() -> int:
                    others = [link.peer_memory for link in engine_server.links]
                    return sum(each is not None and each._front is not None for each in others)

                await until(lambda: fronts_there() == num)
                assert engine.status().page_locked == {"fake": num * most}

            async def is_read_where_it_lies(front: FrontEnd) -> bool:
                await until(lambda: front.engine.link is not None and front.engine.link._is_mapped)
                data = front.engine.memory.take(MIN_SHARED_BYTES)[:MIN_SHARED_BYTES]
                data[:] = len(sent)
                sent.append(data)  # Each lies behind the last.
                batch = Batch(data=data, offsets=np.array([0, MIN_SHARED_BYTES]))
                encoded = await asyncio.to_thread(front.engine.encode, vocabulary, batch)
                assert encoded.ids.tolist() == data.tolist()
                return seen[-1]

            front, other = fronts
            gc.disable()  # What is page-locked waits for nobody.
            try:
                assert not gpu.page_locked_bytes
                assert not await is_read_where_it_lies(front)
                await page_locked(1)
                for is_in_front in (True, True, True, False, False):
                    assert await is_read_where_it_lies(front) == is_in_front
                assert not await is_read_where_it_lies(other)
                await page_locked(2)
                for each in fronts:
                    each.engine.link.close()
                await until(lambda: not gpu.page_locked_bytes)
                sent.clear()
                await is_read_where_it_lies(front)
                await page_locked(1)
                assert await is_read_where_it_lies(front)
            finally:
                gc.enable()

    run(scenario)


def test_where_memory_cannot_be_page_locked_texts_are_staged_and_that_is_counted(
    tmp_path, monkeypatch, caplog
):
    def refuse(address: int, num_bytes: int) -> None:
        raise OutOfMemory(f"{num_bytes} bytes cannot be page-locked")

    async def scenario():
        gpu = FakeGpu(FakeEngine())
        monkeypatch.setattr(gpu.device, "pin", refuse)
        engine = HybridEngine(gpu.cpu, gpu.opened, MIN_SHARED_BYTES)
        async with linked_service(tmp_path, engine) as (_, (front, _)):
            text = "x" * MIN_SHARED_BYTES
            for _ in range(2):  # Before it was tried, and then.
                async with client_of(front) as client:
                    answer = await client.post("/v1/encode", json={"vocabulary": V, "text": text})
                assert (answer.json()["ids"], answer.json()["engine"]) == ([120] * len(text), "gpu")
                await until(lambda: engine.fallbacks.counts().get("out_of_memory") == 1)
        assert not gpu.page_locked_bytes

    run(scenario)
    assert "cannot be page-locked" in caplog.text
