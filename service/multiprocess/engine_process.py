"""Runs the engine process from start to drain; engine_server.py answers its messages."""

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
    app = create_app(settings, make_engine(settings, memory.take), memory.place)
    check_names(app.service.get_engine_parts().registry)
    uvloop.run(_serve(app, listening, memory))


async def _serve(app: Application, listening: socket.socket, memory: LinkMemory) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    service = app.service
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    call_when_orphaned(stop.set)
    engine_server = EngineServer(app, service.settings.frontends, memory)
    service.join_processes(engine_server)
    async with app.running():
        updates = asyncio.create_task(engine_server.keep_updating())
        server = await loop.create_unix_server(engine_server.protocol, sock=listening)
        grpc, metrics = await _start_others(app)
        print(UP, grpc.port if grpc else 0, metrics.server_port if metrics else 0, flush=True)
        await stop.wait()
        await _drain(app, engine_server, grpc)
        if metrics is not None:
            stop_metrics(metrics)
        server.close()
        updates.cancel()
        memory.close()


async def _start_others(app: Application) -> tuple[GrpcServer | None, WSGIServer | None]:
    """Start gRPC, and the metrics of all processes, if they are set to listen."""
    service = app.service
    try:
        settings = service.settings
        metrics = start_metrics(
            service.metrics, service.processes, settings.host, settings.metrics_port
        )
        grpc = await start_grpc(app.oip) if settings.grpc else None
        return grpc, metrics
    except OSError:
        raise SystemExit(USAGE_ERROR) from None


async def _drain(app: Application, engine_server: EngineServer, grpc: GrpcServer | None) -> None:
    """Stop gRPC, wait for the front ends to disconnect, then stop the batcher."""
    service = app.service
    service.draining = True
    app.training.stop_soon()
    grace_s = service.settings.drain_timeout_s
    end = monotonic() + grace_s
    stopping = asyncio.ensure_future(grpc.stop(grace_s)) if grpc else None
    try:
        async with asyncio.timeout(grace_s + 1):
            await engine_server.all_disconnected.wait()
    except TimeoutError:
        pass
    await service.batcher.stop(max(0.0, end - monotonic()))
    if stopping is not None:
        await stopping


def call_when_orphaned(stop: Callable[[], None]) -> None:
    """Call `stop` when the supervisor has ended, and with it this process's standard input."""
    loop = asyncio.get_running_loop()

    def has_ended() -> None:
        loop.remove_reader(0)
        stop()

    loop.add_reader(0, has_ended)
