"""The engine process from its start to its end; what it answers is in engine_server.py."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

import uvloop

from service.core.settings import Settings
from service.multiprocess.engine_server import EngineServer
from service.multiprocess.link.shared_memory import LinkMemory
from service.multiprocess.supervisor import UP
from service.observability.metrics_server import start_metrics, stop_metrics
from service.registry.management import check_names
from service.server.app import create_app, make_engine
from service.server.startup import USAGE_ERROR
from service.server.uvicorn_server import start_grpc

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from service.apis.grpc.server import GrpcServer
    from service.server.app import Application


def run_engine(settings: Settings, listening: socket.socket) -> None:
    """Answer front ends on a Unix socket until SIGTERM.

    Raises:
        ValueError: a setting is wrong.
    """
    memory = LinkMemory()
    app = create_app(settings, make_engine(settings, memory.take), memory.placed)
    check_names(app.service.get_host().registry)
    uvloop.run(_serve(app, listening, memory))


async def _serve(app: Application, listening: socket.socket, memory: LinkMemory) -> None:
    loop, stop, service = asyncio.get_running_loop(), asyncio.Event(), app.service
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    when_alone(stop.set)
    engine_server = EngineServer(app, service.settings.frontends, memory)
    service.join_processes(engine_server)
    async with app.running():
        telling = asyncio.create_task(engine_server.keep_informing())
        server = await loop.create_unix_server(engine_server.protocol, sock=listening)
        grpc, metrics = await _start_others(app)
        print(UP, grpc.port if grpc else 0, metrics.server_port if metrics else 0, flush=True)
        await stop.wait()
        await _drain(app, engine_server, grpc)
        if metrics is not None:
            stop_metrics(metrics)
        server.close()
        telling.cancel()
        memory.close()


async def _start_others(app: Application) -> tuple[GrpcServer | None, WSGIServer | None]:
    """What listens in this process: gRPC, and the metrics' port for all processes."""
    service = app.service
    try:
        settings = service.settings
        metrics = start_metrics(
            service.metrics, service.processes, settings.host, settings.metrics_port
        )
        return await start_grpc(app.oip) if service.settings.grpc else None, metrics
    except OSError:
        raise SystemExit(USAGE_ERROR) from None


async def _drain(app: Application, engine_server: EngineServer, grpc: GrpcServer | None) -> None:
    """GRPC ends at once as HTTP does; the batcher when no front end brings anything more."""
    service = app.service
    service.draining = True
    app.training.stop_soon()
    grace_s = service.settings.drain_timeout_s
    end = monotonic() + grace_s
    stopping = asyncio.ensure_future(grpc.stop(grace_s)) if grpc else None
    try:
        async with asyncio.timeout(grace_s + 1):
            await engine_server.is_empty.wait()
    except TimeoutError:
        pass
    await service.batcher.stop(max(0.0, end - monotonic()))
    if stopping is not None:
        await stopping


def when_alone(stop: Callable[[], None]) -> None:
    """Stop when the supervisor has gone, which holds the other end of our standard input."""
    loop = asyncio.get_running_loop()

    def has_ended() -> None:
        loop.remove_reader(0)
        stop()

    loop.add_reader(0, has_ended)
