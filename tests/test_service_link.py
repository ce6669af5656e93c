"""The link between a front end and the engine process, and both of them in one process."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import select
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import httpx
import numpy as np
import pytest

from gpu.device import OutOfMemory
from service import engine_room
from service.app import create_app, running
from service.auth import add_key
from service.engine_room import EngineRoom
from service.errors import EngineLost, QueueFull, ServiceError
from service.front_end import FrontEnd
from service.gpu_engine import RoutedEngine
from service.link import Link, Message
from service.link_memory import WORTH_BYTES, LinkMemory
from service.linked_engine import LinkedEngine
from service.rates import Limits, Rates
from service.settings import Settings
from service.work import Work
from tests.fake_engine import FakeEngine, byte_vocabulary
from tests.fake_gpu import FakeGpu
from tests.waiting import GIVEN_UP_S, run, until
from vocabularies.batch import Batch, EncodeOptions

V = "evo_bytes"
DTYPES = (np.uint8, np.int32, np.int64, np.float64)


def answer_at_once(_: Link, message: Message) -> asyncio.Future[Message] | None:
    if message.kind == "hello":
        return None
    done = asyncio.get_running_loop().create_future()
    done.set_result(Message("answer"))
    return done


class Pipe:
    """A transport that hands what is written to the other end, in pieces of given sizes."""

    def __init__(self, other: Link, sizes: list[int]) -> None:
        self.other, self.sizes = other, sizes

    def writelines(self, pieces: list[Any]) -> None:
        self.write(b"".join(bytes(piece) for piece in pieces))

    def write(self, data: bytes) -> None:
        number = 0
        while data:
            view = self.other.get_buffer(-1)
            size = min(len(view), len(data), self.sizes[number % len(self.sizes)])
            view[:size] = data[:size]
            view.release()
            self.other.buffer_updated(size)
            data, number = data[size:], number + 1


SHAPES = ((0,), (1,), (5,), (3, 2), (0, 2), (70_001,), (300_000,))


def random_message(random: Random) -> Message:
    arrays = []
    for _ in range(random.randrange(4)):
        shape = random.choice(SHAPES)
        array = np.arange(int(np.prod(shape))).astype(random.choice(DTYPES))
        arrays.append(array.reshape(shape))
    values = {"é" * random.randrange(5): random.choice([1, "x", None]) for _ in range(3)}
    return Message(random.choice(["batch", "status", "é"]), values, arrays)


@pytest.mark.parametrize("seed", range(20))
def test_messages_arrive_whole_whatever_the_pieces(seed):
    random = Random(seed)
    sent = [random_message(random) for _ in range(random.randrange(8))]
    sizes = [random.randint(1, 10 ** random.randint(1, 6)) for _ in range(3)]
    # A byte alone takes as long as a whole piece; only short frames come in such.
    sizes.append(1 if sum(array.nbytes for m in sent for array in m.arrays) < 1000 else 100_000)
    got: list[Message] = []
    receiver = Link(lambda _, message: got.append(message), lambda _: None)
    sender = Link(lambda *_: None, lambda _: None)
    sender.connection_made(Pipe(receiver, sizes))
    for message in sent:
        sender.tell(message)
    assert [(each.kind, each.values) for each in got] == [(m.kind, m.values) for m in sent]
    for message, found in zip(sent, got, strict=True):
        for array, other in zip(message.arrays, found.arrays, strict=True):
            assert (array.dtype, array.shape) == (other.dtype, other.shape)
            assert np.array_equal(array, other)


@contextlib.asynccontextmanager
async def house(
    folder: Path, engine: FakeEngine | RoutedEngine, **settings: Any
) -> AsyncIterator[tuple[EngineRoom, list[FrontEnd]]]:
    """An engine room and two front ends, ready, in one loop."""
    made = Settings(**{"preload": V, "frontends": 2, "inline_batch_bytes": 0} | settings)
    app = create_app(made, engine)
    room = EngineRoom(app, made.frontends, LinkMemory())
    app.service.processes = room
    path = folder / "engine.sock"
    fronts = [FrontEnd(made, path, f"front-{i}") for i in range(2)]
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(running(app.service))
        server = await asyncio.get_running_loop().create_unix_server(room.protocol, str(path))
        telling = asyncio.create_task(room.keep_told())
        for front in fronts:
            await stack.enter_async_context(front._running())
        await until(lambda: all(front.service.preloaded for front in fronts))
        yield room, fronts
        (engine.cpu if isinstance(engine, RoutedEngine) else engine).gate.set()
        telling.cancel()
        server.close()


def client_of(front: FrontEnd) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(front.app), base_url="http://test")


def test_the_linked_engine_is_an_engine(tmp_path):
    """Also with a vocabulary that no name means, which it sends when it is asked for."""

    async def scenario():
        async with house(tmp_path, FakeEngine()) as (_, (front, _)):
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


def test_a_connection_that_nobody_has_taken_is_no_engine(tmp_path):
    """The supervisor's listening socket lets front ends connect while the engine is started."""
    path = tmp_path / "engine.sock"

    async def scenario():
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
            listening.listen()
            front = LinkedEngine(path, lambda *_: None, Message("hello"))
            front.start()
            await asyncio.to_thread(select.select, [listening], [], [], GIVEN_UP_S)
            taken, _ = await asyncio.to_thread(listening.accept)
            with pytest.raises(EngineLost), taken:
                await front.call(Message("batch"))
            room: list[Link] = []
            server = await asyncio.get_running_loop().create_unix_server(
                lambda: room.append(Link(answer_at_once, lambda _: None)) or room[-1],
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
        async with house(tmp_path, engine, max_queue_bytes=1024) as (_, (first, second)):
            engine.gate.clear()
            body = {"vocabulary": V, "text": "x" * 600}
            async with client_of(first) as one, client_of(second) as other:
                waiting = asyncio.ensure_future(one.post("/v1/encode", json=body))
                await until(lambda: second.batcher.admission.bytes_elsewhere >= 600)
                refused = await other.post("/v1/encode", json=body)
                assert (refused.status_code, refused.json()["code"]) == (429, "queue_full")
                engine.gate.set()
                assert (await waiting).status_code == 200
                await until(lambda: not second.batcher.admission.bytes_elsewhere)
                assert (await other.post("/v1/encode", json=body)).status_code == 200

    run(scenario)


def test_large_texts_and_ids_are_shared_and_let_go_of(tmp_path):
    """The front end's joined requests, too."""

    async def scenario():
        async with house(tmp_path, FakeEngine()) as (room, (front, _)):
            links = [front.engine.link, *room.links]
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
            assert room.memory.num_mapped
            await until(lambda: not any(link._loans for link in links))

    run(scenario)


def test_front_ends_texts_are_page_locked_once_they_are_sent_until_a_front_end_is_gone(
    tmp_path, monkeypatch
):
    most = 4 * WORTH_BYTES
    monkeypatch.setattr(engine_room, "PAGE_LOCKED_BYTES", 2 * most)

    async def scenario():
        gpu = FakeGpu(FakeEngine())
        engine = RoutedEngine(gpu.cpu, gpu.opened, WORTH_BYTES)
        async with house(tmp_path, engine) as (room, fronts):
            sent, vocabulary = [], fronts[0].service.registry.entries[V].vocabulary
            encode, seen = gpu.encode, []

            def look(vocabulary, batch):
                seen.append(gpu.device.is_pinned(batch.data))
                return encode(vocabulary, batch)

            monkeypatch.setattr(gpu, "encode", look)

            async def page_locked(num: int) -> None:
                def fronts_there() -> int:
                    others = [link.other for link in room.links]
                    return sum(each is not None and each._front is not None for each in others)

                await until(lambda: fronts_there() == num)
                assert engine.status().page_locked == {"fake": num * most}

            async def is_read_where_it_lies(front: FrontEnd) -> bool:
                await until(lambda: front.engine.link is not None and front.engine.link._is_mapped)
                data = front.engine.memory.take(WORTH_BYTES)[:WORTH_BYTES]
                data[:] = len(sent)
                sent.append(data)  # Each lies behind the last.
                batch = Batch(data=data, offsets=np.array([0, WORTH_BYTES]))
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
        engine = RoutedEngine(gpu.cpu, gpu.opened, WORTH_BYTES)
        async with house(tmp_path, engine) as (_, (front, _)):
            text = "x" * WORTH_BYTES
            for _ in range(2):  # Before it was tried, and then.
                async with client_of(front) as client:
                    answer = await client.post("/v1/encode", json={"vocabulary": V, "text": text})
                assert (answer.json()["ids"], answer.json()["engine"]) == ([120] * len(text), "gpu")
                await until(lambda: engine.fallbacks.counts().get("out_of_memory") == 1)
        assert not gpu.page_locked_bytes

    run(scenario)
    assert "cannot be page-locked" in caplog.text


def test_an_engine_process_that_does_not_answer_is_waited_for_until_the_deadline(tmp_path):
    async def scenario():
        engine = FakeEngine()
        async with house(tmp_path, engine) as (_, (front, _)):
            engine.gate.clear()
            async with client_of(front) as client:
                body = {"vocabulary": V, "text": "x"}
                headers = {"x-request-timeout-ms": "50"}
                answer = await client.post("/v1/encode", json=body, headers=headers)
                assert (answer.status_code, answer.json()["code"]) == (504, "deadline_passed")

    run(scenario)


def test_a_link_that_ends_refuses_what_was_asked_and_is_made_again(tmp_path):
    async def scenario():
        engine = FakeEngine()
        async with house(tmp_path, engine) as (room, (front, _)):
            engine.gate.clear()
            async with client_of(front) as client:
                body = {"vocabulary": V, "text": "x"}
                asked = asyncio.ensure_future(client.post("/v1/encode", json=body))
                await until(lambda: engine.batches)
                next(link for link, name in room.links.items() if name == "front-0").close()
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
        async with house(tmp_path, FakeEngine(), inline_batch_bytes=1_000) as (room, (front, _)):
            async with client_of(front) as client:
                body = {"vocabulary": V, "text": "x"}
                while not front.own._costs:
                    assert (await client.post("/v1/encode", json=body)).status_code == 200
                (digest,) = front.own._costs
                assert (await client.post("/v1/encode", json=body)).status_code == 200  # Is told.
                for _ in range(50):
                    front.batcher.costs.note((digest, "encode"), 1, 3_600.0)
                front.engine.path = tmp_path / "nobody.sock"
                next(link for link, name in room.links.items() if name == "front-0").close()
                await until(lambda: front.engine.link is None)
                answer = await client.post("/v1/encode", json=body)
                assert (answer.status_code, answer.json()["ids"]) == (200, [120])
                answer = await client.post("/v1/encode", json=body | {"text": "x" * 1_001})
                assert (answer.status_code, answer.json()["code"]) == (503, "engine_lost")

    run(scenario)


def test_what_nobody_waits_for_is_given_up_in_the_engine_process(tmp_path):
    async def scenario():
        engine = FakeEngine()
        async with house(tmp_path, engine) as (room, (front, _)):
            engine.gate.clear()
            there, take_in = [], room.service.batcher.submit
            room.service.batcher.submit = lambda work: (there.append(work), take_in(work))[1]
            vocabulary = front.replica.entries[V].vocabulary
            asked = [
                asyncio.ensure_future(
                    front.batcher.run(Work("encode", vocabulary, [text], num_bytes=20))
                )
                for text in ("one", "two")
            ]
            finished = room.service.metrics.counts
            await until(lambda: engine.batches)
            for waiting in asked:
                waiting.cancel()
            await until(lambda: not front.batcher.queue_rows)
            await until(lambda: there and all(work.future.cancelled() for work in there))
            engine.gate.set()
            await until(lambda: not room.service.batcher.queue_rows)
            outcomes = finished()["warptok_work_finished_total"]
            assert set(outcomes) == {("cancelled",)}

    run(scenario)


def test_a_batch_of_a_vocabulary_that_is_not_known_there_brings_it(tmp_path):
    async def scenario():
        async with house(tmp_path, FakeEngine()) as (_, (front, _)):
            unnamed = byte_vocabulary(300)
            works = [Work("encode", unnamed, [text], num_bytes=20) for text in ("one", "two")]
            results = await asyncio.gather(*map(front.batcher.run, works))
            for result, text in zip(results, (b"one", b"two"), strict=True):
                assert result.encoded.row(result.begin).tolist() == list(text)
            assert not front.batcher._asked

    run(scenario)


def test_all_that_waits_is_refused_where_no_engine_process_is(tmp_path):
    """Each batch in a turn of its own: one that began the next would run out of stack."""

    async def scenario():
        front = FrontEnd(Settings(preload=V, frontends=1), tmp_path / "nobody.sock", "front-0")
        front.batcher.start()
        vocabulary = byte_vocabulary()
        works = [Work("encode", vocabulary, ["x"], is_long=True) for _ in range(2000)]
        asked = [front.batcher.submit(work) for work in works]
        await until(lambda: all(future.done() for future in asked))
        assert {type(future.exception()) for future in asked} == {EngineLost}
        assert not front.batcher.queue_rows

    run(scenario)


def test_refusals_keep_their_kind_and_words(tmp_path):
    async def scenario():
        async def refuse(error: Exception) -> Message:
            raise error

        errors = iter([QueueFull("full", "/x"), ServiceError("else", "/y"), ValueError("secret")])
        answering = Link(lambda *_: asyncio.ensure_future(refuse(next(errors))), lambda _: None)
        asking = Link(lambda *_: None, lambda _: None)
        asking.connection_made(Pipe(answering, [1 << 20]))
        answering.connection_made(Pipe(asking, [1 << 20]))
        with pytest.raises(QueueFull, match="full") as full:
            await asking.call(Message("a"))
        assert (full.value.where, dict(full.value.headers)) == ("/x", {b"retry-after": b"1"})
        with pytest.raises(ServiceError, match="else"):
            await asking.call(Message("a"))
        with pytest.raises(ServiceError, match="an error of ours") as ours:
            await asking.call(Message("a"))
        assert "secret" not in ours.value.message
        asking.connection_lost(None)
        with pytest.raises(EngineLost):
            await asking.call(Message("a"))

    run(scenario)


def test_a_client_keeps_its_rates_over_all_front_ends(tmp_path):
    async def scenario():
        keys = tmp_path / "keys.json"
        secret = add_key(keys, "one", ("encode",), Rates(requests_per_s=0.001))
        headers = {"x-api-key": secret}
        body = {"vocabulary": V, "text": "x"}
        async with house(tmp_path, FakeEngine(), api_keys_file=keys) as (_, (first, second)):
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
    assert limits.take_spent() == {"one": (1, 4)}
    assert limits.take_spent() == {}
    limits.charge_elsewhere({"one": (1, 20), "two": (5, 5)})
    with pytest.raises(ServiceError, match="bytes_per_s"):
        limits.admit("one")
