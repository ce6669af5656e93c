"""The engine process goes on telling front ends its state, whatever one of them does."""

from __future__ import annotations

import asyncio
from time import monotonic
from unittest.mock import Mock

from service.multiprocess import engine_server as module
from tests.support.fake_engine import FakeEngine
from tests.support.linked_processes import V, linked_service
from tests.support.waiting import run, until

LATE_S = 20.0


def test_a_front_end_that_does_not_follow_leaves_the_others_ready(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "FOLLOW_TIMEOUT_S", LATE_S)

    async def scenario():
        async with linked_service(tmp_path, FakeEngine()) as (server, (hanging, other)):
            follows, following = asyncio.Event(), asyncio.Event()

            async def hang(listed):
                following.set()
                await follows.wait()

            hanging.replica.follow = hang
            server.service.get_engine_parts().registry.changes.note(V)
            await following.wait()
            begin = monotonic()
            for _ in range(3):
                before = other._heard_at
                await until(lambda before=before: other._heard_at > before)
            assert monotonic() - begin < LATE_S / 2
            assert other.reasons() == []
            follows.set()

    run(scenario)


def test_an_error_while_front_ends_are_updated_ends_no_update(tmp_path, caplog):
    async def scenario():
        async with linked_service(tmp_path, FakeEngine()) as (server, (front, _)):
            server._page_lock = Mock(side_effect=RuntimeError("can't start new thread"))
            await until(lambda: server._page_lock.call_count > 1)
            before = front._heard_at
            await until(lambda: front._heard_at > before)

    run(scenario)
    assert "can't start new thread" in caplog.text
