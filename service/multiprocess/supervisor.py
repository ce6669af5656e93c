"""The processes of one service: one engine process, several front ends, started again if they end.

    supervisor ── holds the listening sockets and starts:
      ├─ engine    the engine, the vocabularies, gRPC            (engine_server.py)
      └─ front-0…  HTTP, one socket of the port each (front_end.py), linked to the engine process

A front end's socket stays open here while it is started again, so connections wait instead of being
refused. A child ends when its standard input does: none is left when this process is killed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any

from service.core.settings import Settings
from service.server.sockets import shared_listeners
from service.server.startup import BACKLOG, print_address

logger = logging.getLogger(__name__)
UP = "up"  # The word with which a child says on its standard output that it listens.
STEADY_S = 10.0  # A child that lived so long is started again at once.
FIRST_DELAY_S, LAST_DELAY_S = 0.1, 5.0
STOP_S = 5.0  # What a child may take beyond the drain time before it is killed.


def supervise(settings: Settings) -> int:
    """Run all processes until SIGTERM or Ctrl-C; the exit code."""
    with tempfile.TemporaryDirectory(prefix="warptok-") as folder:
        return asyncio.run(_run(settings, Path(folder)))


async def _run(settings: Settings, folder: Path) -> int:
    return await Supervisor(settings, folder).run()


@dataclass(slots=True)
class Child:
    """A process that is kept running.

    Attributes:
        name: "engine", or "front-" and a number.
        settings: its own.
        sockets: what it listens on; they are held here.
        restarts: how often it was started again.
        up_line: what it printed behind UP when it was first up.
    """

    name: str
    settings: Settings
    sockets: list[socket.socket]
    restarts: int = 0
    process: Process | None = None
    up_line: asyncio.Future[str] = field(default_factory=asyncio.Future)

    def command(self, link: Path) -> list[str]:
        """How it is started."""
        arguments: dict[str, Any] = {
            "name": self.name,
            "settings": self.settings.model_dump(mode="json"),
            "sockets": [each.fileno() for each in self.sockets],
            "link": str(link),
            "restarts": self.restarts,
        }
        return [sys.executable, "-m", "service.multiprocess.child", json.dumps(arguments)]


class Supervisor:
    """Starts, watches and stops the processes of one service.

    Args:
        settings: the service's.
        folder: a folder of its own, for the link's socket and, without `store_dir`, for uploads,
            which so live as long as the service.
    """

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings, self.link = settings, folder / "engine.sock"
        linked = socket.socket(socket.AF_UNIX)
        linked.bind(str(self.link))
        linked.listen(BACKLOG)
        store = settings.store_dir or folder / "store"
        engine_settings = settings.model_copy(update={"store_dir": store})
        listening = [shared_listeners(settings, BACKLOG, True)]
        port = listening[0][0].getsockname()[1]
        for _ in range(settings.frontends - 1):
            same = settings.model_copy(update={"port": port})
            listening.append(shared_listeners(same, BACKLOG, False))
        self.port = port
        self.children = [Child("engine", engine_settings, [linked])]
        self.children += [Child(f"front-{i}", settings, each) for i, each in enumerate(listening)]
        self.is_stopping = asyncio.Event()
        self.code = 0

    async def run(self) -> int:
        """Until a signal comes, or a child cannot be started at all; the exit code."""
        loop = asyncio.get_running_loop()

        def hand_over(number: int, frame: FrameType | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._stop, number)

        # Unlike the loop's own handlers these stay until the process has ended.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, hand_over)
        keeping = asyncio.gather(*(self._keep(child) for child in self.children))
        all_up = asyncio.gather(*(child.up_line for child in self.children))
        both: list[asyncio.Future[Any]] = [keeping, all_up]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if all_up.done() and not self.is_stopping.is_set():
            grpc_port, metrics_port = (int(each) or None for each in all_up.result()[0].split())
            print_address(self.settings, self.port, grpc_port, metrics_port)
        await self.is_stopping.wait()
        await self._end(keeping)
        return self.code

    def _stop(self, number: int) -> None:
        """The first signal drains all processes, a second one kills them."""
        if self.is_stopping.is_set():
            logger.warning("a second signal: nothing is waited for")
            self.code = 128 + number
            self._signal(signal.SIGKILL)
            return
        self.is_stopping.set()
        self._signal(signal.SIGTERM)
        for child in self.children:
            for each in child.sockets:
                each.close()

    def _signal(self, number: signal.Signals) -> None:
        for child in self.children:
            if child.process is not None and child.process.returncode is None:
                child.process.send_signal(number)

    async def _end(self, keeping: asyncio.Future[Any]) -> None:
        done, _ = await asyncio.wait({keeping}, timeout=self.settings.drain_timeout_s + STOP_S)
        if not done:
            logger.error("not all processes ended within the drain time; they are killed")
            self.code = 1
            self._signal(signal.SIGKILL)
        await keeping

    async def _keep(self, child: Child) -> None:
        """Start a child, and again whenever it ends, until all are stopped."""
        delay_s = 0.0
        while not self.is_stopping.is_set():
            begin = monotonic()
            code = await self._run_once(child)
            if self.is_stopping.is_set():
                # One that was told to stop before it could listen ends by the signal itself.
                if code not in (0, -signal.SIGTERM, -signal.SIGKILL):
                    logger.error("%s ended with %d", child.name, code)
                    self.code = self.code or 1
                return
            if not all(each.up_line.done() for each in self.children):
                self.code = code or 1
                self._stop(signal.SIGTERM)
                return
            is_steady = monotonic() - begin > STEADY_S
            delay_s = 0.0 if is_steady else min(2 * delay_s or FIRST_DELAY_S, LAST_DELAY_S)
            child.restarts += 1
            logger.error("%s ended with %d and is started again", child.name, code)
            await asyncio.wait([asyncio.ensure_future(self.is_stopping.wait())], timeout=delay_s)

    async def _run_once(self, child: Child) -> int:
        """One life of a child; its exit code."""
        child.process = process = await asyncio.create_subprocess_exec(
            *child.command(self.link),
            stdin=PIPE,
            stdout=PIPE,
            pass_fds=[each.fileno() for each in child.sockets],
            # Ctrl-C reaches this process alone, which tells the others.
            start_new_session=True,
        )
        assert process.stdout is not None
        if self.is_stopping.is_set():
            process.terminate()
        line = (await process.stdout.readline()).decode()
        if line.startswith(UP) and not child.up_line.done():
            child.up_line.set_result(line.removeprefix(UP).strip())
        return await process.wait()
