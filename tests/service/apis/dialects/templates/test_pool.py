"""Several processes of templates: slow and hostile chats hold nobody else."""

from __future__ import annotations

import asyncio
import json
import os
import struct
import subprocess
import sys
import time

import pytest

from service.apis.dialects.templates import process
from service.apis.dialects.templates.pool import MAX_WAITING, TemplatePool
from service.apis.dialects.templates.queue import Flow
from service.batching.work import ClientGone
from service.core.errors import DeadlinePassed, Draining, QueueFull, TemplateFailed
from service.observability.metrics import Metrics
from tests.support.child_processes import find_children, read_parent
from tests.support.data_files import ROOT
from tests.support.waiting import GIVEN_UP_S, run, until

QUICK = "{{ x }}"
ENDLESS = "{% for i in range(99999) %}" * 3 + "{% endfor %}" * 3  # For years.
VARIABLES = {"x": "text"}
A, B = Flow("", "a"), Flow("", "b")


def make(
    num_processes: int, timeout_s: float = GIVEN_UP_S, num_cores: int = 4
) -> tuple[TemplatePool, Metrics]:
    metrics = Metrics("test")
    return TemplatePool(timeout_s, 1000, num_processes, num_cores, metrics), metrics


def process_ids() -> list[int]:
    return find_children(os.getpid(), "templates.worker")


async def render(pool: TemplatePool, flow: Flow, template: str = QUICK, **options) -> str:
    options = {"wait_s": GIVEN_UP_S} | options
    return (await pool.render(flow, template, VARIABLES, **options)).decode()


def test_processes_are_started_when_needed_and_end_with_the_pool():
    async def scenario():
        pool, metrics = make(3)
        assert not process_ids()
        for _ in range(3):
            assert await render(pool, A) == "text"
        assert len(process_ids()) == 1
        assert await asyncio.gather(*(render(pool, A) for _ in range(9))) == ["text"] * 9
        assert 1 < len(process_ids()) <= 3
        assert metrics.template_wait_seconds.total >= 0
        text = metrics.exposition()[0].decode()
        assert "warptok_template_wait_seconds_count 12.0" in text
        assert "warptok_template_queue_chats 0.0" in text
        await pool.close()
        assert not process_ids()

    run(scenario)


def test_quick_chats_do_not_share_a_core_but_do_not_wait_for_long_ones():
    async def scenario():
        pool, _ = make(2, num_cores=1)
        assert await render(pool, A) == "text"
        assert await asyncio.gather(*(render(pool, A) for _ in range(9))) == ["text"] * 9
        assert len(process_ids()) == 1
        endless = asyncio.ensure_future(render(pool, A, ENDLESS))
        await until(lambda: pool._running)
        assert await render(pool, B) == "text"
        assert len(process_ids()) == 2 and not endless.done()
        await pool.close()
        with pytest.raises(Draining):
            await endless

    run(scenario)


@pytest.mark.slow
def test_sixteen_endless_chats_do_not_make_another_wait():
    """Without a process of their own for quick chats it would wait for eight seconds."""

    async def scenario():
        pool, metrics = make(2, timeout_s=1.0)
        assert await render(pool, B) == "text"
        slow = [
            asyncio.ensure_future(render(pool, Flow("", f"slow{i}"), ENDLESS)) for i in range(16)
        ]
        await until(lambda: len(pool.queue) == 15)
        assert "warptok_template_queue_chats 15.0" in metrics.exposition()[0].decode()
        for _ in range(5):
            assert await render(pool, B) == "text"
        assert sum(each.done() for each in slow) <= 8
        with pytest.raises(TemplateFailed, match="took too long"):
            await slow[0]
        await pool.close()
        await asyncio.gather(*slow, return_exceptions=True)

    run(scenario)


@pytest.mark.slow
def test_a_single_process_serves_quick_chats_before_waiting_slow_ones():
    async def scenario():
        pool, _ = make(1, timeout_s=0.5)
        assert await render(pool, B) == "text"
        slow = [asyncio.ensure_future(render(pool, Flow("k", f"s{i}"), ENDLESS)) for i in range(6)]
        await until(lambda: len(pool.queue) == 5)
        assert await render(pool, B) == "text"
        assert sum(each.done() for each in slow) <= 2
        await pool.close()
        await asyncio.gather(*slow, return_exceptions=True)

    run(scenario)


def test_a_chat_is_ended_at_its_deadline_and_when_its_client_goes():
    async def scenario():
        pool, _ = make(1)
        gone = asyncio.Event()

        async def receive():
            await gone.wait()
            return {"type": "http.disconnect"}

        assert await render(pool, A) == "text"
        (first,) = process_ids()
        with pytest.raises(DeadlinePassed):
            await render(pool, A, ENDLESS, wait_s=0.2)
        await until(lambda: first not in process_ids())
        running = asyncio.ensure_future(render(pool, A, ENDLESS, receive=receive))
        waiting = asyncio.ensure_future(render(pool, A, ENDLESS, receive=receive))
        await until(lambda: len(pool.queue) == 1)
        gone.set()
        for chat in (running, waiting):
            with pytest.raises(ClientGone):
                await chat
        await until(lambda: not pool._running)
        assert len(pool.queue) == 0
        assert await render(pool, A) == "text"
        await pool.close()

    run(scenario)


def test_one_vocabulary_cannot_fill_the_queue():
    async def scenario():
        pool, _ = make(1)
        chats = [asyncio.ensure_future(render(pool, A, ENDLESS)) for _ in range(MAX_WAITING)]
        await asyncio.sleep(0)
        refused = [chat for chat in chats if chat.done()]
        await asyncio.sleep(0)
        refused = [chat for chat in chats if chat.done()]
        assert refused and all(isinstance(chat.exception(), QueueFull) for chat in refused)
        other = asyncio.ensure_future(render(pool, B))
        await asyncio.sleep(0.01)
        assert not other.done()
        await pool.close()
        for chat in (*chats, other):
            if chat not in refused:
                with pytest.raises(Draining):
                    await chat
        with pytest.raises(Draining):
            await render(pool, A)

    run(scenario)


def test_an_answer_that_is_longer_than_any_may_be_is_not_read(monkeypatch):
    class LongAnswer(struct.Struct):
        def unpack(self, head):
            return 0xFFFFFFFF, super().unpack(head)[1]

    async def scenario():
        pool, _ = make(1)
        assert await render(pool, A) == "text"
        with monkeypatch.context() as patch:
            patch.setattr(process, "ANSWER", LongAnswer("<IB"))
            with pytest.raises(TemplateFailed, match="ended its process"):
                await render(pool, A)
        assert process_ids() == []
        assert await render(pool, A) == "text"
        await pool.close()

    run(scenario)


STARTER = """
import asyncio, sys
from service.apis.dialects.templates.process import TemplateProcess

async def main():
    process = TemplateProcess(max_chars=9)
    await process.start()
    print(process._process.pid, flush=True)
    asyncio.ensure_future(process._send(sys.argv[1].encode()))
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_process_ends_by_itself_when_its_service_was_killed():
    body = json.dumps({"timeout_s": 0.5, "template": ENDLESS, "variables": {}, "max_chars": 9})
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, body], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        worker = int(process.stdout.readline())
        time.sleep(0.5)
        process.kill()
    deadline = time.monotonic() + 120
    while read_parent(worker) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
