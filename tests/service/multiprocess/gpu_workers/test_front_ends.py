"""Front ends before an engine whose GPUs have workers: texts and ids are shared by all three."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

import service.engines.hybrid.several_gpus
from service.engines.cpu.engine import CpuEngine
from tests.support.gpus.gpu_workers import NEEDS_COMPILER, start_workers
from tests.support.linked_processes import V, client_of, linked_service
from tests.support.waiting import run, until

pytestmark = [NEEDS_COMPILER, pytest.mark.slow]
TEXTS = [bytes([byte]) * size for byte in b"abc" for size in (10, 90_000, 600_000)]


def test_texts_of_front_ends_are_right_while_a_worker_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(service.engines.hybrid.several_gpus, "CHECK_PERIOD_S", 0.05)
    workers = start_workers(CpuEngine(), tmp_path, crossover_bytes=1000)
    begin_encode, begun = workers.engine.begin_encode, []

    def note_begun(*arguments) -> bool:
        begun.append(begin_encode(*arguments))
        return begun[-1]

    monkeypatch.setattr(workers.engine, "begin_encode", note_begun)

    async def scenario() -> None:
        async with linked_service(tmp_path, workers.engine, workers.memory) as (server, fronts):
            links = [front.engine.link for front in fronts]
            await until(lambda: all(link._is_mapped for link in links))
            server_links = list(server.links)

            async def send_all() -> None:
                """Send all texts by both front ends at once, and compare their ids."""
                query = {"vocabulary": V, "add_special_tokens": "false", "dtype": "uint16"}
                octets = "application/octet-stream"
                headers = {"content-type": octets, "accept": octets}
                answers = await asyncio.gather(
                    *(
                        client_of(front).post(
                            "/v1/encode", params=query, content=text, headers=headers
                        )
                        for front in fronts
                        for text in TEXTS
                    )
                )
                for text, answer in zip(TEXTS * 2, answers, strict=True):
                    assert answer.status_code == 200, answer.text
                    assert np.array_equal(np.frombuffer(answer.content, np.uint16), list(text))

            await send_all()
            await until(lambda: all(link.peer_memory.is_page_locked for link in server_links))
            before = workers.gpus[0].process_id
            sending = asyncio.ensure_future(send_all())
            workers.kill(0)
            await sending
            await send_all()
            await until(lambda: workers.states() == ["ready", "ready"])
            assert workers.gpus[0].process_id != before
            await send_all()
            num_texts = workers.gpus[0]._memory.texts.num_allocations
            num_batches = [member.num_batches for member in workers.several.members]
            for _ in range(4):  # Each is one batch or more.
                await send_all()
            assert workers.gpus[0]._memory.texts.num_allocations == num_texts
            after = [member.num_batches for member in workers.several.members]
            assert all(a > b for a, b in zip(after, num_batches, strict=True))
            assert all(begun[-4:])

    run(scenario)
