"""The batcher under load: coalescing, turns, failing rows, gone clients, full queue, deadlines."""

from __future__ import annotations

import asyncio
import random
import threading
from time import perf_counter

import pytest

from service.batching.batcher import Batcher
from service.batching.runner import BeginEncode, CostModel, LocalRunner
from service.batching.work import ClientGone, CostKey, DecodeWork, EncodeWork, Result
from service.core.errors import DeadlinePassed, Draining, QueueFull
from service.core.settings import Settings
from service.observability.metrics import Metrics
from tests.support.fake_engine import FakeEngine, byte_vocabulary
from tests.support.waiting import run, until
from vocabularies.batch.batch import Batch, EncodeOptions

VOCABULARY = byte_vocabulary()
OTHER = byte_vocabulary(257)


def work(*texts: str, vocabulary=VOCABULARY, **fields) -> EncodeWork:
    num_bytes = sum(map(len, texts))
    return EncodeWork(vocabulary, list(texts), num_bytes=num_bytes, **fields)


def rows(result: Result) -> list[bytes]:
    return [bytes(result.output.row(row).tolist()) for row in range(result.begin, result.end)]


def make(engine: FakeEngine, begin_encode: BeginEncode | None = None, **settings) -> Batcher:
    settings = {"inline_batch_bytes": 0} | settings
    made, metrics = Settings(**settings), Metrics("test")
    runner = LocalRunner(engine, made, metrics, begin_encode=begin_encode)
    batcher = Batcher(runner, made, metrics)
    batcher.start()
    return batcher


@pytest.mark.parametrize("inline", [0, 1_000_000])
def test_each_request_gets_its_own_rows_of_any_batch(inline):
    async def scenario():
        engine = FakeEngine()
        batcher = make(engine, inline_batch_bytes=inline, max_batch_bytes=300)
        source = random.Random(1)

        async def client(number: int) -> None:
            for turn in range(20):
                texts = [f"{number}.{turn}.{i}" for i in range(source.randint(0, 3))]
                vocabulary = source.choice([VOCABULARY, OTHER])
                result = await batcher.run(work(*texts, vocabulary=vocabulary))
                assert rows(result) == [text.encode() for text in texts]
                if source.random() < 0.2:
                    await asyncio.sleep(0.001)

        await asyncio.gather(*map(client, range(40)))
        assert batcher.queue_bytes == batcher.queue_rows == 0
        assert len(engine.batches) < 40 * 20
        await batcher.stop(1)

    run(scenario)


def test_one_request_of_bytes_begins_on_the_loop_and_is_left_to_a_thread_if_it_fails():
    async def scenario():
        engine, begun, outcomes = FakeEngine(), [], ["begins", "fails", "not"] * 10

        def begin_encode(vocabulary, batch, answer) -> bool:
            begun.append(batch)
            outcome = outcomes.pop(0)
            if outcome != "not":
                ids = engine.encode(vocabulary, batch) if outcome == "begins" else None
                asyncio.get_running_loop().call_soon(answer, ids)
            return outcome != "not"

        batcher = make(engine, begin_encode)
        texts = [str(number).encode() * 9 for number in range(30)]
        for text in texts:
            options = EncodeOptions(add_special_tokens=False)
            item = EncodeWork(VOCABULARY, Batch.from_bytes([text]), options, num_bytes=len(text))
            assert rows(await batcher.run(item)) == [text]
            assert begun[-1].options is options
        assert len(begun) == len(engine.batches) == 30
        assert rows(await batcher.run(work("a string"))) == [b"a string"]
        both = [EncodeWork(VOCABULARY, Batch.from_bytes([text]), num_bytes=9) for text in texts[:2]]
        answers = [batcher.submit(each) for each in both]
        assert [rows(await answer) for answer in answers] == [[text] for text in texts[:2]]
        assert len(begun) == 30
        assert batcher.queue_bytes == batcher.queue_rows == 0
        await batcher.stop(1)

    run(scenario)


def test_a_begun_batch_whose_ids_cannot_be_split_is_refused(monkeypatch):
    async def scenario():
        engine = FakeEngine()

        def begin_encode(vocabulary, batch, answer) -> bool:
            asyncio.get_running_loop().call_soon(answer, engine.encode(vocabulary, batch))
            return True

        batcher = make(engine, begin_encode)
        monkeypatch.setattr("service.batching.runner.split_encoded", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await batcher.run(EncodeWork(VOCABULARY, Batch.from_bytes([b"ab"]), num_bytes=2))
        assert batcher.queue_bytes == batcher.queue_rows == 0
        assert not batcher.long_lane.batches and not batcher.short_lane.batches
        await batcher.stop(1)

    run(scenario)


def test_an_idle_engine_gets_the_first_request_at_once_and_a_busy_one_collects():
    async def scenario():
        engine = FakeEngine()
        batcher = make(engine)
        engine.gate.clear()
        futures = [batcher.submit(work("first"))]
        await until(lambda: engine.batches == [["first"]])
        futures.append(batcher.submit(work("prepared")))
        await asyncio.sleep(0)  # The tick in which it is prepared.
        futures += [batcher.submit(work(f"later {i}")) for i in range(50)]
        engine.gate.set()
        await asyncio.gather(*futures)
        assert [len(batch) for batch in engine.batches] == [1, 1, 50]

    run(scenario)


def test_queues_of_two_vocabularies_are_served_in_turn():
    async def scenario():
        engine = FakeEngine()
        batcher = make(engine, max_batch_bytes=10_000)
        engine.gate.clear()
        busy = [batcher.submit(work("x")) for _ in range(1)]
        await until(lambda: engine.batches)
        alternating = [
            batcher.submit(work(f"{i:04}", vocabulary=(VOCABULARY, OTHER)[i % 2]))
            for i in range(2000)
        ]
        engine.gate.set()
        await asyncio.gather(*busy, *alternating)
        assert len(engine.batches) == 3

    run(scenario)


def test_a_batch_keeps_to_its_byte_budget_and_never_splits_a_request():
    async def scenario():
        engine = FakeEngine()
        batcher = make(engine, max_batch_bytes=100)
        futures = [batcher.submit(work("a" * 30, "b" * 30)) for _ in range(5)]
        futures.append(batcher.submit(work("c" * 500)))
        await asyncio.gather(*futures)
        assert all(sum(map(len, batch)) <= 100 or len(batch) == 1 for batch in engine.batches)
        assert all(len(batch) in (1, 2) for batch in engine.batches)

    run(scenario)


def test_options_travel_with_their_rows():
    async def scenario():
        engine = FakeEngine()
        seen = []
        encode = engine.encode
        engine.encode = lambda v, batch: (seen.append(batch.options), encode(v, batch))[1]
        batcher = make(engine)
        plain, cut = EncodeOptions(), EncodeOptions(max_length=1)
        a = batcher.submit(work("a", "b", options=[cut, plain]))
        b = batcher.submit(work("c", options=plain))
        await asyncio.gather(a, b)
        assert seen == [[cut, plain, plain]]

    run(scenario)


@pytest.mark.parametrize("inline", [0, 1_000_000])
@pytest.mark.parametrize("breaking", ["BOOM", "PANIC"])
def test_a_row_that_breaks_the_engine_fails_alone(caplog, breaking, inline):
    async def scenario():
        batcher = make(FakeEngine(), inline_batch_bytes=inline)
        good = [batcher.submit(work(f"good {i}", f"fine {i}")) for i in range(20)]
        bad = batcher.submit(work("fine", breaking, "also fine"))
        results = await asyncio.gather(*good)
        assert [rows(r) for r in results] == [
            [f"good {i}".encode(), f"fine {i}".encode()] for i in range(20)
        ]
        assert not any(r.row_errors() for r in results)
        result = await bad
        assert rows(result) == [b"fine", b"", b"also fine"]
        assert {row: e.code for row, e in result.row_errors().items()} == {1: "engine_failed"}

    run(scenario)
    assert "This is a bug" in caplog.text


def test_a_refused_row_is_named_by_its_number_in_its_own_request():
    async def scenario():
        batcher = make(FakeEngine())
        first = batcher.submit(work("a", "b"))
        second = batcher.submit(work("c", "REFUSE", "d"))
        assert (await first).row_errors() == {}
        assert list((await second).row_errors()) == [1]

    run(scenario)


@pytest.mark.parametrize("inline", [0, 1_000_000])
def test_a_refused_row_is_counted_once_however_many_requests_share_its_batch(inline):
    async def scenario():
        batcher = make(FakeEngine(), inline_batch_bytes=inline)
        requests = [work("fine", "REFUSE"), work("fine"), work("REFUSE", "BOOM")]
        await asyncio.gather(*map(batcher.run, requests))
        rows_of_ids = [
            DecodeWork(VOCABULARY, [[1], [999]], skip, num_bytes=4) for skip in (False, True, True)
        ]
        await asyncio.gather(*map(batcher.run, rows_of_ids))
        text, _ = batcher.metrics.exposition()
        prefix = b"warptok_rows_refused_total{"
        assert sorted(row for row in text.splitlines() if row.startswith(prefix)) == [
            prefix + b'reason="engine_failed"} 1.0',
            prefix + b'reason="id_out_of_range"} 3.0',
            prefix + b'reason="refused"} 2.0',
        ]
        assert b'warptok_tokens_total{engine="cpu",operation="decode"} 6.0' in text
        await batcher.stop(1)

    run(scenario)


def test_a_full_queue_refuses_until_some_bytes_are_free():
    async def scenario():
        engine = FakeEngine()
        batcher = make(engine, max_queue_bytes=2048, max_batch_bytes=1024)
        engine.gate.clear()
        accepted = [batcher.submit(work("x" * 512)) for _ in range(4)]
        with pytest.raises(QueueFull):
            batcher.submit(work("x"))
        assert batcher.queue_bytes == 2048
        engine.gate.set()
        await asyncio.gather(*accepted)
        assert rows(await batcher.run(work("y"))) == [b"y"]
        assert batcher.queue_bytes == 0

    run(scenario)


def test_a_request_larger_than_the_queue_is_admitted_when_nothing_waits():
    async def scenario():
        batcher = make(FakeEngine(), max_queue_bytes=1024)
        assert len(rows(await batcher.run(work("x" * 5000)))[0]) == 5000

    run(scenario)


def test_a_deadline_that_passes_in_the_queue_is_answered_while_the_engine_is_still_busy():
    async def scenario():
        engine = FakeEngine()
        batcher = make(engine)
        engine.gate.clear()
        running = [batcher.submit(work("running")), batcher.submit(work("other", vocabulary=OTHER))]
        await until(lambda: engine.batches)
        late = batcher.submit(work("late", deadline=perf_counter() + 0.1))
        patient = batcher.submit(work("patient"))
        with pytest.raises(DeadlinePassed):
            await late
        assert not engine.gate.is_set()
        engine.gate.set()
        await asyncio.gather(*running, patient)
        assert "late" not in [text for batch in engine.batches for text in batch]
        assert batcher.queue_bytes == 0

    run(scenario)


def test_a_client_that_leaves_while_waiting_is_dropped_before_the_engine_sees_it():
    async def scenario():
        engine = FakeEngine()
        batcher = make(engine)
        watched, gone = asyncio.Event(), asyncio.Event()

        async def receive():
            watched.set()
            await gone.wait()
            return {"type": "http.disconnect"}

        engine.gate.clear()
        running = [batcher.submit(work("running")), batcher.submit(work("other", vocabulary=OTHER))]
        await until(lambda: engine.batches)
        leaving = asyncio.ensure_future(batcher.run(work("leaving", receive=receive)))
        staying = batcher.submit(work("staying"))
        await watched.wait()
        gone.set()
        with pytest.raises(ClientGone):
            await leaving
        engine.gate.set()
        await asyncio.gather(*running, staying)
        assert "leaving" not in [text for batch in engine.batches for text in batch]
        assert batcher.queue_bytes == batcher.queue_rows == 0

    run(scenario)


def test_a_long_request_does_not_stand_in_front_of_short_ones():
    async def scenario():
        engine, short_is_answered = FakeEngine(), threading.Event()
        encode = engine.encode

        def encode_long_last(vocabulary, batch):
            assert len(batch.data) < 1000 or short_is_answered.wait(60)
            return encode(vocabulary, batch)

        engine.encode = encode_long_last
        batcher = make(engine, long_request_bytes=1000)
        long = batcher.submit(work("x" * 5000))
        assert rows(await batcher.run(work("short"))) == [b"short"]
        assert not long.done()
        short_is_answered.set()
        await long

    run(scenario)


@pytest.mark.parametrize(("name", "at_once"), [("cpu", 1), ("gpu", 2)])
def test_long_requests_go_alone_two_at_once_where_a_gpu_answers(name, at_once):
    async def scenario():
        engine = FakeEngine()
        engine.name = name
        batcher = make(engine, long_request_bytes=10)
        engine.gate.clear()
        texts = [character * 11 for character in "abcdef"]
        asked = [batcher.submit(work(text)) for text in texts]
        await until(lambda: len(engine.batches) == at_once)
        lane = batcher.long_lane
        assert len(lane.batches) == at_once + 1
        engine.gate.set()
        assert [rows(await each) for each in asked] == [[text.encode()] for text in texts]
        assert sorted(engine.batches) == [[text] for text in texts]
        await batcher.stop(1)

    run(scenario)


def test_stopping_finishes_what_was_accepted_and_refuses_the_rest():
    async def scenario():
        engine = FakeEngine()
        batcher = make(engine)
        engine.gate.clear()
        accepted = [batcher.submit(work(f"{i}")) for i in range(10)]
        stopping = asyncio.ensure_future(batcher.stop(60))
        await asyncio.sleep(0)  # It begins.
        with pytest.raises(Draining):
            batcher.submit(work("too late"))
        engine.gate.set()
        await stopping
        assert [rows(r) for r in await asyncio.gather(*accepted)] == [
            [str(i).encode()] for i in range(10)
        ]

    run(scenario)


def test_stopping_refuses_what_the_grace_time_does_not_reach():
    async def scenario():
        engine = FakeEngine()
        batcher = make(engine, max_batch_bytes=1)
        engine.gate.clear()
        accepted = [batcher.submit(work("x")) for _ in range(10)]
        await batcher.stop(0.1)
        engine.gate.set()
        answers = await asyncio.gather(*accepted, return_exceptions=True)
        kinds = {type(answer) for answer in answers}
        assert Draining in kinds
        assert all(isinstance(answer, Result | Draining) for answer in answers)

    run(scenario)


def test_nothing_accepted_is_lost_under_everything_at_once(caplog):
    """Leaving clients, failing rows, a full queue and deadlines together: all accounted for."""

    async def scenario():
        engine = FakeEngine(delay_s=0.001)
        batcher = make(engine, max_queue_bytes=4096, max_batch_bytes=256, long_request_bytes=200)
        source = random.Random(7)
        outcomes = {"answered": 0, "failed": 0, "full": 0, "late": 0, "left": 0}

        async def client(number: int) -> None:
            for turn in range(30):
                kind = source.random()
                text = "BOOM" if kind < 0.05 else f"{number}:{turn}" * source.randint(1, 40)
                soon = source.choice((0.0, 0.002))
                deadline = perf_counter() + soon if kind > 0.9 else float("inf")
                asked = work(text, deadline=deadline)
                task = asyncio.ensure_future(batcher.run(asked))
                if 0.8 < kind < 0.9:
                    await asyncio.sleep(soon)
                    task.cancel()
                try:
                    result = await task
                    failed = bool(result.row_errors())
                    assert failed or rows(result) == [text.encode()]
                    outcomes["failed" if failed else "answered"] += 1
                except QueueFull:
                    outcomes["full"] += 1
                    await until(lambda: batcher.queue_bytes < 4096)  # Or most turns end here.
                except DeadlinePassed:
                    outcomes["late"] += 1
                except asyncio.CancelledError:  # Maybe in the tick in which its answer came.
                    outcomes["left" if asked.future.cancelled() else "answered"] += 1

        await asyncio.gather(*map(client, range(60)))
        assert sum(outcomes.values()) == 60 * 30
        assert all(outcomes.values()), outcomes
        await until(lambda: batcher.queue_rows == 0)
        assert batcher.queue_bytes == 0
        assert finished(batcher) == {
            "answered": outcomes["answered"] + outcomes["failed"],
            "deadline_passed": outcomes["late"],
            "cancelled": outcomes["left"],
        }
        await batcher.stop(1)

    run(scenario)


def finished(batcher: Batcher) -> dict[str, int]:
    counts = batcher.metrics.counts()
    assert counts["warptok_work_accepted_total"][()] == sum(
        counts["warptok_work_finished_total"].values()
    )
    return {outcome: number for (outcome,), number in counts["warptok_work_finished_total"].items()}


def test_a_client_that_fills_the_queue_leaves_some_bytes_to_others():
    async def scenario():
        engine = FakeEngine()
        batcher = make(engine, max_queue_bytes=9000, max_batch_bytes=1000)
        engine.gate.clear()
        futures = []

        def fill(client: str) -> int:
            for number in range(100):
                try:
                    futures.append(batcher.submit(work("x" * 100, client=client)))
                except QueueFull as full:
                    assert "max_queue_bytes" in full.message
                    return number
            return 100

        assert [fill(client) for client in ("greedy", "second", "third")] == [72, 15, 3]
        engine.gate.set()
        await asyncio.gather(*futures)
        assert finished(batcher) == {"answered": 90}

    run(scenario)


def test_a_quiet_client_does_not_wait_for_a_busy_ones_queue():
    async def scenario():
        engine = FakeEngine()
        batcher = make(engine, max_batch_bytes=20_000)
        engine.gate.clear()
        busy = [batcher.submit(work("b" * 1000, client="busy")) for _ in range(2000)]
        await until(lambda: engine.batches)
        quiet = batcher.submit(work("quiet", client="quiet"))
        engine.gate.set()
        await asyncio.gather(quiet, *busy)
        (number,) = (i for i, batch in enumerate(engine.batches) if "quiet" in batch)
        assert number < 10 < len(engine.batches)

    run(scenario)


def test_every_outcome_is_counted_once():
    async def scenario():
        engine, ended = FakeEngine(), threading.Event()
        encode = engine.encode
        engine.encode = lambda v, batch: (encode(v, batch), ended.set())[0]
        batcher = make(engine, max_batch_bytes=1)
        engine.gate.clear()
        running = batcher.submit(work("running"))
        prepared = batcher.submit(work("prepared", deadline=perf_counter() + 0.1))
        await until(lambda: engine.batches)
        leaving, late = batcher.submit(work("leaving")), batcher.submit(work("late", deadline=0.0))
        leaving.cancel()
        for future in (prepared, late):
            with pytest.raises(DeadlinePassed):
                await future
        rest = [batcher.submit(work(str(i))) for i in range(3)]
        await batcher.stop(0.05)
        engine.gate.set()
        for future in (running, *rest):
            with pytest.raises(Draining):
                await future
        assert finished(batcher) == {
            "draining": 4,
            "cancelled": 1,
            "deadline_passed": 2,
        }
        assert batcher.queue_bytes == batcher.queue_rows == 0
        await until(ended.is_set)
        await asyncio.sleep(0)  # The thread's batch ends after that and is counted no more.
        assert sum(finished(batcher).values()) == 7

    run(scenario)


def test_a_batch_that_lost_its_core_says_little_of_the_next_ones():
    costs, kind = CostModel(), CostKey("digest", "encode")
    assert costs.expected_s(kind, 1) == pytest.approx(0.002)
    costs.assume(kind, 1e-6)
    costs.learn(kind, 1000, 10.0)
    assert costs.expected_s(kind, 1000) == pytest.approx(1.75e-3)
    costs.learn(kind, 1000, 0.0)
    costs.assume(kind, 1.0)
    assert costs.expected_s(kind, 1000) == pytest.approx(1.3125e-3)
    costs.forget(kind)
    assert costs.expected_s(kind, 1) == pytest.approx(0.002)


def test_costs_are_kept_of_the_vocabularies_that_were_used_last(monkeypatch):
    monkeypatch.setattr("service.batching.runner.MAX_MEASURED", 2)

    async def scenario():
        batcher = make(FakeEngine())
        sizes = [257, 258, 257, 259]
        for size in sizes:
            await batcher.run(work("a", vocabulary=byte_vocabulary(size)))
        digests = [byte_vocabulary(size).digest for size in sizes]
        assert [digest for digest, _ in batcher.runner.costs._seconds_per_byte] == digests[2:]
        await batcher.stop(1)

    run(scenario)
