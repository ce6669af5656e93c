"""Starts the engine process and the front ends of a service, and restarts those that end.

    supervisor ── keeps the port and starts:
      ├─ engine    the engine, the vocabularies, gRPC            (engine_server.py)
      │            while it is started again, this process refuses gRPC calls (grpc_standby.py)
      └─ front-0…  HTTP, one socket of the port each (front_end.py), linked to the engine process;
                   all accept on the same Unix socket, if there is one

The socket of a front end belongs to its process alone. The kernel closes it when the process ends,
and gives new connections to the other front ends until the next process listens. At the first start
the sockets listen at once: connections wait, and no other service takes the port. A child ends when
its standard input ends, so that no child outlives the supervisor.

SIGTERM, Ctrl-C and SIGHUP are passed on to all children at once. Front ends drain
first: the engine process answers them until the last one has disconnected.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any

from service.core.settings import Settings
from service.runtime.child_environment import child_environment
from service.server.sockets import (
    bind_beside,
    bind_shared_sockets,
    bind_unix_socket,
    remove_unix_path,
)
from service.server.startup import BACKLOG, find_lame_duck_s, print_address

logger = logging.getLogger(__name__)
UP = "up"  # A child prints this word, and perhaps ports, when it listens.
STEADY_S = 10.0  # A child that ran for so long is restarted without delay.
MIN_DELAY_S, MAX_DELAY_S = 0.1, 5.0  # Before a restart.
STOP_S = 5.0  # The time beyond the drain time after which children are killed.


def supervise(settings: Settings) -> int:
    """Run all processes until SIGTERM or Ctrl-C; return the exit code."""
    with tempfile.TemporaryDirectory(prefix="warptok-") as folder:
        return asyncio.run(_run(settings, Path(folder)))


async def _run(settings: Settings, folder: Path) -> int:
    return await Supervisor(settings, folder).run()


@dataclass(slots=True)
class Child:
    """A process that is restarted when it ends.

    Attributes:
        name: "engine", or "front-" and a number.
        settings: the settings of this process.
        sockets: its sockets that stay open in this process.
        restarts: the number of its restarts.
        process: the running or last process; None before the first start.
        is_up: whether the running process has reported that it is listening.
        up_line: the text that it printed after UP at its first start.
    """

    name: str
    settings: Settings
    sockets: list[socket.socket]
    restarts: int = 0
    process: Process | None = None
    is_up: bool = False
    up_line: asyncio.Future[str] = field(default_factory=asyncio.Future)

    def command(self, link: Path, sockets: list[socket.socket]) -> list[str]:
        """Return the command line that starts the child with these sockets."""
        arguments: dict[str, Any] = {
            "name": self.name,
            "settings": self.settings.model_dump(mode="json"),
            "sockets": [each.fileno() for each in sockets],
            "link": str(link),
            "restarts": self.restarts,
        }
        return [sys.executable, "-m", "service.multiprocess.child", json.dumps(arguments)]


class Supervisor:
    """Starts, watches and stops the processes of one service.

    Args:
        settings: the settings of the service.
        folder: a temporary folder for the socket of the engine process and, without `store_dir`,
            for uploads, which outlive a restart of the engine process there.
    """

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings = settings
        self.link = folder / "engine.sock"
        engine_socket = socket.socket(socket.AF_UNIX)
        engine_socket.bind(str(self.link))
        engine_socket.listen(BACKLOG)
        store = settings.store_dir or folder / "store"
        settings = settings.model_copy(update={"store_dir": store})
        self.port_keepers = bind_shared_sockets(settings)  # They never listen.
        self.port = self.port_keepers[0].getsockname()[1] if self.port_keepers else None
        unix_socket = bind_unix_socket(settings)
        if unix_socket is not None:
            unix_socket.listen(BACKLOG)
        shared = [] if unix_socket is None else [unix_socket]
        self.children = [Child("engine", settings, [engine_socket])]
        self.children += [
            Child(f"front-{i}", settings, list(shared)) for i in range(settings.frontends)
        ]
        self.engine_is_up, self.engine_is_down = asyncio.Event(), asyncio.Event()
        self.is_stopping = asyncio.Event()
        self.lame_duck_s = 0.0
        self.code = 0

    async def run(self) -> int:
        """Run until a signal comes, or a child cannot start at all; return the exit code."""
        loop = asyncio.get_running_loop()

        def stop_on_loop(number: int, frame: FrameType | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._stop, number)

        # Unlike the loop's own handlers, these stay until the process has ended.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop_on_loop)
        loop.add_signal_handler(signal.SIGHUP, self._reload_files)
        standby = asyncio.create_task(self._refuse_grpc_without_engine())
        all_ended = asyncio.gather(*(self._keep_running(child) for child in self.children))
        all_up = asyncio.gather(*(child.up_line for child in self.children))
        both: list[asyncio.Future[Any]] = [all_ended, all_up]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if all_up.done() and not self.is_stopping.is_set():
            engine_line, *_ = all_up.result()
            grpc_port, metrics_port = (int(port) or None for port in engine_line.split())
            self._keep_ports(grpc_port, metrics_port)
            print_address(self.settings, self.port, grpc_port, metrics_port)
        await self.is_stopping.wait()
        self.engine_is_up.set()
        self.engine_is_down.set()
        await self._wait_or_kill(all_ended)
        await standby
        return self.code

    def _keep_ports(self, grpc_port: int | None, metrics_port: int | None) -> None:
        """Let later engine processes use the ports of the first one."""
        ports = {"grpc_port": grpc_port, "metrics_port": metrics_port}
        used = {name: port for name, port in ports.items() if port is not None}
        engine = self.children[0]
        engine.settings = engine.settings.model_copy(update=used)

    def _stop(self, number: int) -> None:
        """Drain all processes at the first signal, and kill them at the second."""
        if self.is_stopping.is_set():
            logger.warning("a second signal: all processes are killed")
            self.code = 128 + number
            self._signal(signal.SIGKILL)
            return
        self.is_stopping.set()
        self.lame_duck_s = find_lame_duck_s(self.settings, number)
        loop = asyncio.get_running_loop()
        loop.call_later(self.lame_duck_s, remove_unix_path, self.settings)
        self._signal(number)
        for each in self.port_keepers:
            each.close()
        for child in self.children:
            for each in child.sockets:
                each.close()

    def _signal(self, number: int) -> None:
        for child in self.children:
            # A child that is being started ignores SIGINT.
            is_ignored = number == signal.SIGINT and not child.is_up
            self._signal_child(child, signal.SIGTERM if is_ignored else number)

    @staticmethod
    def _signal_child(child: Child, number: int) -> None:
        if child.process is not None and child.process.returncode is None:
            child.process.send_signal(number)

    def _reload_files(self) -> None:
        for child in self.children:
            if child.is_up:  # One that is being started will read them.
                self._signal_child(child, signal.SIGHUP)

    async def _wait_or_kill(self, all_ended: asyncio.Future[Any]) -> None:
        timeout_s = self.lame_duck_s + self.settings.drain_timeout_s + STOP_S
        done, _ = await asyncio.wait({all_ended}, timeout=timeout_s)
        if not done:
            logger.error("not all processes ended within the drain time; they are killed")
            self.code = 1
            self._signal(signal.SIGKILL)
        await all_ended

    async def _keep_running(self, child: Child) -> None:
        """Start a child, and restart it whenever it ends, until all are stopped."""
        delay_s = 0.0
        while not self.is_stopping.is_set():
            begin = monotonic()
            code = await self._run_once(child)
            if self.is_stopping.is_set():
                # A child that gets the signal before it listens is ended by the signal itself.
                if code not in (0, -signal.SIGTERM, -signal.SIGKILL):
                    logger.error("%s ended with %d", child.name, code)
                    self.code = self.code or 1
                return
            if not all(each.up_line.done() for each in self.children):
                self.code = code or 1
                self._stop(signal.SIGINT)
                return
            is_steady = monotonic() - begin > STEADY_S
            delay_s = 0.0 if is_steady else min(2 * delay_s or MIN_DELAY_S, MAX_DELAY_S)
            child.restarts += 1
            logger.error("%s ended with %d and is started again", child.name, code)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await self.is_stopping.wait()

    async def _run_once(self, child: Child) -> int:
        """Run a child until it ends; return its exit code."""
        child.is_up = False
        try:
            child.process = process = await self._start(child)
        except (OSError, ValueError) as error:
            logger.error("%s cannot be started: %s", child.name, error)
            return 1
        assert process.stdout is not None
        if self.is_stopping.is_set():
            process.terminate()
        line = (await process.stdout.readline()).decode()
        child.is_up = line.startswith(UP)
        if child.is_up and not child.up_line.done():
            child.up_line.set_result(line.removeprefix(UP).strip())
        if child is not self.children[0] or not child.is_up:
            return await process.wait()
        self.engine_is_down.clear()
        self.engine_is_up.set()
        code = await process.wait()
        if not self.is_stopping.is_set():
            self.engine_is_up.clear()
            self.engine_is_down.set()
        return code

    async def _refuse_grpc_without_engine(self) -> None:
        """Answer gRPC calls with a refusal while the engine process is started again."""
        os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")  # See `start_grpc`.
        while self.settings.grpc and self.settings.has_ports:
            await self.engine_is_down.wait()
            if self.is_stopping.is_set():
                return
            standby = None
            try:
                # Few services ever need it, and the event loop goes on meanwhile.
                module = await asyncio.to_thread(import_module, "service.multiprocess.grpc_standby")
                standby = module.GrpcStandby(self.children[0].settings)
                await standby.start()
            except Exception:  # It is only a refusal; the supervisor goes on.
                logger.exception("until the engine process is up, nothing answers gRPC")
            await self.engine_is_up.wait()
            if standby is not None:
                await standby.stop()

    async def _start(self, child: Child) -> Process:
        """Start the process of a child, which gets sockets of the port if it is a front end.

        Raises:
            OSError: the system has too little memory, or too few files or processes are allowed.
            ValueError: an address of the port does not belong to this machine any more.
        """
        keepers = [] if child is self.children[0] else self.port_keepers
        with contextlib.ExitStack() as stack:
            own = [stack.enter_context(bind_beside(each, self.settings)) for each in keepers]
            if child.restarts == 0:
                for each in own:
                    each.listen(BACKLOG)
            sockets = child.sockets + own
            return await asyncio.create_subprocess_exec(
                *child.command(self.link, sockets),
                stdin=PIPE,
                stdout=PIPE,
                pass_fds=[each.fileno() for each in sockets],
                # So that Ctrl-C reaches this process alone, which then stops the others.
                start_new_session=True,
                env=child_environment(),
            )
