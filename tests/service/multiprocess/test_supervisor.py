"""The supervisor keeps the port of its front ends, and tries again if one cannot be started."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from service.core.settings import Settings
from service.multiprocess import supervisor
from service.multiprocess.supervisor import Child, Supervisor
from service.server.sockets import bind_beside, bind_shared_sockets
from tests.support.waiting import run, until

WAITING = [sys.executable, "-c", "import sys; sys.stdin.read()"]


@pytest.fixture(autouse=True)
def no_child_listens(monkeypatch):
    monkeypatch.setattr(Child, "command", lambda *arguments: WAITING)


@contextlib.asynccontextmanager
async def front_end_started(folder: Path, restarts: int = 0) -> AsyncIterator[Supervisor]:
    """A supervisor whose first front end runs."""
    made = Supervisor(Settings(port=0, frontends=1), folder)
    for each in made.children:
        each.up_line.set_result("")
    engine, front = made.children
    front.restarts = restarts
    running = asyncio.create_task(made._keep_running(front))
    try:
        await until(lambda: front.process is not None)
        yield made
    finally:
        made.is_stopping.set()
        front.process.kill()
        await running
        for each in [*made.port_keepers, *engine.sockets]:
            each.close()


def connect(made: Supervisor) -> None:
    socket.create_connection(("127.0.0.1", made.port), 60).close()


def test_no_process_leaves_uploads_behind_when_there_is_no_store(tmp_path):
    async def scenario():
        async with front_end_started(tmp_path) as made:
            assert {each.settings.store_dir for each in made.children} == {tmp_path / "store"}
            assert made.settings.store_dir is None

    run(scenario)


def test_the_port_of_a_service_that_starts_is_in_use_and_connections_wait(tmp_path):
    async def scenario():
        async with front_end_started(tmp_path) as made:
            connect(made)
            with pytest.raises(ValueError, match="Address already in use"):
                bind_shared_sockets(Settings(port=made.port))

    run(scenario)


def test_a_front_end_that_is_started_again_does_not_listen_at_once(tmp_path):
    async def scenario():
        async with front_end_started(tmp_path, restarts=1) as made:
            with pytest.raises(ConnectionRefusedError):
                connect(made)

    run(scenario)


def test_a_front_end_whose_address_is_missing_for_a_while_is_started_again(
    tmp_path, monkeypatch, caplog
):
    tries = []

    def bind(*arguments):
        tries.append(arguments)
        if len(tries) < 3:
            raise ValueError("Cannot assign requested address")
        return bind_beside(*arguments)

    monkeypatch.setattr(supervisor, "bind_beside", bind)

    async def scenario():
        async with front_end_started(tmp_path) as made:
            assert (len(tries), made.children[1].restarts) == (3, 2)
            # A restart every few seconds for a week would leave as many tasks.
            assert not made.is_stopping._waiters

    run(scenario)
    assert caplog.text.count("front-0 cannot be started: Cannot assign requested address") == 2
