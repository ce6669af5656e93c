"""A front end's engine, which is in the engine process, and what the two tell each other."""

from __future__ import annotations

import asyncio
import select
import socket

import numpy as np
import pytest

from service.batching.work import EncodeWork
from service.core.errors import EngineLost, ServiceError
from service.multiprocess.link.channel import Link, Reply
from service.multiprocess.link.frames import Message
from service.multiprocess.remote_engine import RemoteEngine
from service.security.api_keys import add_key
from service.security.rate_limits import Limits, Rates
from tests.support.fake_engine import FakeEngine, byte_vocabulary
from tests.support.linked_processes import V, client_of, linked_service
from tests.support.waiting import GIVEN_UP_S, run, until
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.model import canonical


def answer_at_once(link: Link, message: Message, reply: Reply) -> None:
    reply.set_result(Message("answer"))


def test_the_linked_engine_is_an_engine(tmp_path):
    """It can also send a vocabulary that has no name, when the engine process requests it."""

    async def scenario():
        async with linked_service(tmp_path, FakeEngine()) as (_, (front, _)):
            engine, vocabulary = front.engine, byte_vocabulary(300)
            options = [EncodeOptions(), EncodeOptions(add_special_tokens=False, spans=True)]
            batch = Batch(["naïve ✓", "REFUSE"], options=options)
            encoded = await asyncio.to_thread(engine.encode, vocabulary, batch)
            assert encoded.row(0).tolist() == list("naïve ✓".encode())
            assert encoded.errors[1].code == "refused"
            joined = Batch.from_bytes([b"\xff", b"ab"])
            found = await asyncio.to_thread(engine.count, vocabulary, joined)
            assert found.counts.tolist() == [0, 2]
            assert found.errors[0].code == "not_utf8"
            ids, offsets = np.array([97, 98, 999]), np.array([0, 2, 3])
            decoded = await asyncio.to_thread(engine.decode, vocabulary, ids, offsets, True)
            assert decoded.data[:2].tobytes() == b"ab"
            assert decoded.errors[1].code == "id_out_of_range"

    run(scenario)


def test_every_front_end_knows_names_with_slashes_and_aliases(tmp_path):
    name, content = "Qwen/Qwen3-8B", canonical.to_bytes(byte_vocabulary(300))

    async def scenario():
        async with linked_service(tmp_path, FakeEngine()) as (_, (first, second)):
            async with client_of(first) as client, client_of(second) as other:
                url = f"/v1/vocabularies/{name.replace('/', '%2F')}"
                made = await client.put(url, params={"aliases": "q"}, content=content)
                assert made.status_code == 201, made.text
                given = await other.put("/v1/aliases/a/b", json={"vocabulary": "q"})
                assert given.json() == {"alias": "a/b", "vocabulary": name}
                for each in (client, other):
                    for called in (name, "q", "a/b"):
                        body = {"vocabulary": called, "text": "é"}
                        answer = (await each.post("/v1/encode", json=body)).json()
                        assert (answer["vocabulary"], answer["ids"]) == (name, [195, 169])
                    assert (await each.get("/v1/models/a/b")).json()["id"] == name
                assert (await client.post(f"{url}/unload")).status_code == 200
                body = {"model": "a/b", "prompt": "é"}
                assert (await other.post("/tokenize", json=body)).json()["tokens"] == [195, 169]
                assert (await client.delete("/v1/aliases/q")).status_code == 204
                body = {"vocabulary": "q", "text": ""}
                assert (await other.post("/v1/encode", json=body)).status_code == 404
                counted = first.service.metrics.counts()["warptok_requests_total"]
                assert counted["/v1/vocabularies/{name}", 201] == 1

    run(scenario)


def test_a_connection_that_is_not_accepted_is_no_link(tmp_path):
    """The supervisor's listening socket lets front ends connect while the engine is started."""
    path = tmp_path / "engine.sock"

    async def scenario():
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
            listening.listen()
            front = RemoteEngine(path, lambda *_: None, Message("hello"))
            front.start()
            await asyncio.to_thread(select.select, [listening], [], [], GIVEN_UP_S)
            taken, _ = await asyncio.to_thread(listening.accept)
            with pytest.raises(EngineLost), taken:
                await front.call(Message("batch"))
            accepted: list[Link] = []
            server = await asyncio.get_running_loop().create_unix_server(
                lambda: accepted.append(Link(answer_at_once, lambda _: None)) or accepted[-1],
                sock=listening,
            )
            await until(lambda: front.link is not None)
            assert (await front.call(Message("batch"))).kind == "answer"
            front.close()
            server.close()

    run(scenario)


def test_what_waits_elsewhere_counts_and_is_forgotten(tmp_path):
    async def scenario():
        engine = FakeEngine()
        async with linked_service(tmp_path, engine, max_queue_bytes=1024) as (_, (first, second)):
            engine.gate.clear()
            body = {"vocabulary": V, "text": "x" * 600}
            async with client_of(first) as one, client_of(second) as other:
                waiting = asyncio.ensure_future(one.post("/v1/encode", json=body))
                await until(lambda: second.batcher.admission.bytes_elsewhere >= 600)
                refused = await other.post("/v1/encode", json=body)  # More than its share of 512.
                within = {"vocabulary": V, "text": "x" * 380}
                admitted = asyncio.ensure_future(other.post("/v1/encode", json=within))
                await until(lambda: second.batcher.queue_bytes >= 380)
                assert (refused.status_code, refused.json()["code"]) == (429, "queue_full")
                engine.gate.set()
                assert (await waiting).status_code == (await admitted).status_code == 200
                await until(lambda: not second.batcher.admission.bytes_elsewhere)
                assert (await other.post("/v1/encode", json=body)).status_code == 200

    run(scenario)


def test_a_batch_of_a_vocabulary_that_is_not_known_there_brings_it(tmp_path):
    async def scenario():
        async with linked_service(tmp_path, FakeEngine()) as (_, (front, _)):
            unnamed = byte_vocabulary(300)
            works = [EncodeWork(unnamed, [text], num_bytes=20) for text in ("one", "two")]
            results = await asyncio.gather(*map(front.batcher.run, works))
            for result, text in zip(results, (b"one", b"two"), strict=True):
                assert result.output.row(result.begin).tolist() == list(text)
            assert not front.batcher.runner._pending

    run(scenario)


def test_abandoned_work_is_cancelled_in_the_engine_process(tmp_path):
    async def scenario():
        engine = FakeEngine()
        async with linked_service(tmp_path, engine) as (engine_server, (front, _)):
            engine.gate.clear()
            batcher = engine_server.service.batcher
            there, take_in = [], batcher.submit
            batcher.submit = lambda work: (there.append(work), take_in(work))[1]
            vocabulary = front.replica.entries[V].vocabulary
            asked = [
                asyncio.ensure_future(
                    front.batcher.run(EncodeWork(vocabulary, [text], num_bytes=20))
                )
                for text in ("one", "two")
            ]
            finished = engine_server.service.metrics.counts
            await until(lambda: engine.batches)
            for waiting in asked:
                waiting.cancel()
            await until(lambda: not front.batcher.queue_rows)
            await until(lambda: there and all(work.is_done for work in there))
            engine.gate.set()
            await until(lambda: not batcher.queue_rows)
            outcomes = finished()["warptok_work_finished_total"]
            assert set(outcomes) == {("cancelled",)}

    run(scenario)


def test_a_client_keeps_its_rates_over_all_front_ends(tmp_path):
    async def scenario():
        keys = tmp_path / "keys.json"
        secret = add_key(keys, "one", ("encode",), Rates(requests_per_s=0.001))
        headers = {"x-api-key": secret}
        body = {"vocabulary": V, "text": "x"}
        async with linked_service(tmp_path, FakeEngine(), api_keys_file=keys) as (
            _,
            (first, second),
        ):
            async with client_of(first) as one, client_of(second) as other:
                assert (await one.post("/v1/encode", json=body, headers=headers)).is_success
                bucket = second.service.guard.limits._requests["one"]
                await until(lambda: bucket.level < 0.5)
                refused = await other.post("/v1/encode", json=body, headers=headers)
                assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")

    run(scenario)
    limits = Limits(clock=lambda: 0.0)
    limits.set({"one": Rates(requests_per_s=2, bytes_per_s=10)})
    limits.admit("one")
    limits.charge("one", 4)
    assert limits.take_usage() == {"one": (1, 4)}
    assert limits.take_usage() == {}
    limits.charge_usage({"one": (1, 20), "two": (5, 5)})
    with pytest.raises(ServiceError, match="bytes_per_s"):
        limits.admit("one")
