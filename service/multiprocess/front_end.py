"""Runs a front end, which answers HTTP on a socket of the shared port, without a GPU.

A front end parses requests and writes answers. It encodes small batches itself, sends other batches
over a link to the engine process (remote_runner.py), and forwards requests about shared state to it
(request_forwarding.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic

from service.apis.dialects import render
from service.apis.oip.state import make_oip_state
from service.batching.batcher import Batcher
from service.core.errors import ServiceError
from service.core.settings import Settings
from service.core.version import package_version
from service.engines.base import WithoutDevice
from service.engines.cpu.bpe.library_threads import limit_library_threads
from service.engines.cpu.engine import CpuEngine
from service.http.asgi_fast_path import AsgiFastPath
from service.http.openapi import write_before_ready
from service.http.plain_routes import PlainRoutes
from service.multiprocess.engine_process import call_when_orphaned
from service.multiprocess.front_end_registry import FrontEndRegistry
from service.multiprocess.link.channel import Link, Reply
from service.multiprocess.link.frames import Message
from service.multiprocess.local_encoders import LocalEncoders
from service.multiprocess.remote_engine import RemoteEngine
from service.multiprocess.remote_runner import RemoteRunner
from service.multiprocess.request_forwarding import Forwarding
from service.multiprocess.supervisor import UP
from service.observability.metrics import Metrics
from service.observability.process_metrics import Families, collect_families
from service.security.guard import Guard
from service.server.app import make_fastapi, make_service, make_template_pool
from service.server.lifespan import freeze_garbage_collector, running
from service.server.uvicorn_server import Server, end_normally_on_signals

logger = logging.getLogger(__name__)
REPORT_PERIOD_S = 0.25
MAX_SILENCE_S = 5.0  # After this time without a message the engine process counts as not ready.
GATHER_TIMEOUT_S = 2.0
FIRST_LIST_S = 10.0  # The most seconds until the port accepts, if the engine process is not up.
FIRST_LIST_POLL_S = 0.02


def run_front_end(settings: Settings, sockets: list[socket.socket], link: Path, name: str) -> None:
    """Answer HTTP requests until a signal arrives and the process has drained.

    Args:
        settings: the settings of the service.
        sockets: the bound sockets: those of ports, and one Unix socket at most.
        link: the path of the engine process's Unix socket.
        name: the name of this process.
    """
    end_normally_on_signals()
    limit_library_threads(1)
    ports = [each for each in sockets if each.family != socket.AF_UNIX]
    unix_socket = next((each for each in sockets if each.family == socket.AF_UNIX), None)
    FrontServer(FrontEnd(settings, link, name), unix_socket).run(ports)


class FrontServer(Server):
    """A uvicorn server on sockets that the supervisor has bound."""

    def __init__(self, front_end: FrontEnd, unix_socket: socket.socket | None) -> None:
        super().__init__(front_end.app, front_end.service.settings, None, unix_socket)
        self.fastapi = front_end.fastapi

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, and report this to the supervisor."""
        writing = asyncio.create_task(write_before_ready(self.fastapi))
        await self.listen(sockets or [])
        await writing
        call_when_orphaned(functools.partial(os.kill, os.getpid(), signal.SIGINT))
        print(UP, flush=True)


class FrontEnd:
    """The service of a front end, with the state that the engine process sends.

    Args:
        settings: the settings of the service.
        link: the Unix socket of the engine process.
        name: the name of this process.
    """

    def __init__(self, settings: Settings, link: Path, name: str) -> None:
        self.name = name
        self.engine = RemoteEngine(link, self._handle, Message("hello", {"name": name}))
        metrics = Metrics(package_version(), settings.max_batch_bytes, settings.max_metric_names)
        guard = Guard(settings.api_keys_file, settings.host, allows_management=settings.management)
        self.replica = FrontEndRegistry(self.engine)
        share = settings.loaded_vocabulary_bytes // settings.frontends
        # The other front ends and the engine process have the other cores.
        engine = CpuEngine(settings.pattern_us_per_byte, num_threads=1)
        self.encoders = LocalEncoders(engine, share)
        runner = RemoteRunner(self.engine, self.encoders, settings, metrics)
        self.batcher = Batcher(runner, settings, metrics, guard.limits)
        self.service = make_service(
            settings,
            self.engine,
            self.replica,
            self.batcher,
            metrics,
            guard,
        )
        self.service.join_processes(self)
        self.templates = make_template_pool(settings, metrics)
        # The engine process has the metrics of vocabularies.
        metrics.gauges.vocabularies = list
        metrics.gauges.vocabulary_states = dict
        self.fastapi = make_fastapi(
            self.service,
            make_oip_state(self.service, WithoutDevice()),
            self.templates,
            None,
            lambda _: self._running(),
        )
        forwarding = Forwarding(PlainRoutes(self.fastapi, render.router), self.engine, settings)
        self.app = AsgiFastPath(forwarding, self.service)
        self._status_link: Link | None = None
        self._reasons: list[str] = []
        self._heard_at = monotonic()

    @contextlib.asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        """Return the context in which requests are answered."""
        self.engine.start()
        async with running(self.service, [self._keep_reporting()], [self.templates.close]):
            # The port accepts nothing before: until then every name is refused with 503.
            await self._wait_for_first_list()
            yield
        self.encoders.close()

    async def _wait_for_first_list(self) -> None:
        """Wait for the first list of vocabularies, a signal, or FIRST_LIST_S seconds."""
        deadline = monotonic() + FIRST_LIST_S
        while not self.service.draining and not self.replica.has_list.is_set():
            if monotonic() >= deadline:
                return
            await asyncio.sleep(FIRST_LIST_POLL_S)

    def _handle(self, link: Link, message: Message, reply: Reply) -> None:
        """Handle a message of the engine process."""
        self._heard_at = monotonic()
        match message.kind:
            case "status":
                self._status_link = link
                self._reasons = message.values["reasons"]
                self.batcher.admission.bytes_elsewhere = message.values["elsewhere"]
            case "usage":
                self.service.guard.limits.charge_usage(message.values["usage"])
            case "vocabulary_list":
                reply.complete_by(self._follow(message))
            case _:
                families = collect_families(self.service.metrics.registry)
                reply.set_result(Message("answer", {"families": families}))

    async def _follow(self, message: Message) -> Message:
        """Apply a list of vocabularies from the engine process."""
        await self.replica.follow(message.values)
        digests = {entry.vocabulary.digest for entry in self.replica.entries.values()}
        self.encoders.keep_only(digests)
        if self.replica.is_complete and not self.service.preloaded:
            freeze_garbage_collector()
            self.service.preloaded = True
            logger.info("ready: %d vocabularies", len(self.replica.entries))
        return Message("answer")

    async def _keep_reporting(self) -> None:
        """Report waiting bytes, usage and used vocabularies to the engine process, until cancelled.

        The engine process needs them for the limits of other processes, and for the metrics.
        """
        reported: tuple[Link, int, list[str]] | None = None
        while True:
            await asyncio.sleep(REPORT_PERIOD_S)
            usage = self.service.guard.limits.take_usage()
            used = self.service.metrics.usage.vocabularies
            waiting, names = self.batcher.queue_bytes, sorted(used.names)
            link = self.engine.link
            if link is not None and (usage or reported != (link, waiting, names)):
                reported = link, waiting, names
                values = {"waiting": waiting, "usage": usage, "vocabularies": names}
                link.notify(Message("load", values))

    def reasons(self) -> list[str]:
        """Return why the service is not ready, including a missing report of the engine process."""
        if self.engine.link is None or self._status_link is not self.engine.link:
            return ["the engine process is being started"]
        if monotonic() - self._heard_at > MAX_SILENCE_S:
            return ["the engine process does not answer"]
        return self._reasons

    async def synchronize(self) -> None:
        """Do nothing, as only the engine process changes vocabularies."""

    async def families(self) -> dict[str, Families]:
        """Return the metrics of each process; only this one's if the engine process is down."""
        gathered = {self.name: collect_families(self.service.metrics.registry)}
        with contextlib.suppress(ServiceError, TimeoutError):
            async with asyncio.timeout(GATHER_TIMEOUT_S):
                answer = await self.engine.call(Message("families"))
                gathered |= answer.values["families"]
        return gathered
