"""Runs the engine process from start to drain; engine_server.py answers its messages."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import signal
import socket
import threading
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

import uvloop

from service.core.settings import Settings
from service.engines.cpu.bpe.library_threads import limit_library_threads
from service.multiprocess.engine_server import EngineServer
from service.multiprocess.link.shared_memory import LinkMemory
from service.multiprocess.supervisor import UP
from service.observability.metrics_server import start_metrics, stop_metrics
from service.registry.management import check_names
from service.runtime.watchdog import run_watched
from service.server.app import create_app, make_engine
from service.server.lifespan import reload_files
from service.server.startup import DEVICE_LOST, USAGE_ERROR, find_lame_duck_s
from service.server.uvicorn_server import start_grpc

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from service.apis.grpc.server import GrpcServer
    from service.engines.hybrid.residency import OpenedGpu
    from service.server.app import Application


logger = logging.getLogger(__name__)
CHECK_PERIOD_S = 0.25  # Between looks at whether the GPU is lost.


def run_engine(settings: Settings, listening: socket.socket, *, is_restarted: bool = False) -> int:
    """Answer front ends on a Unix socket until a signal arrives or the GPU is lost.

    Args:
        settings: the settings of the service.
        listening: the Unix socket.
        is_restarted: whether the process replaces another one.

    Returns:
        The exit code: DEVICE_LOST if the process must be restarted to use the GPU.

    Raises:
        ValueError: a setting is wrong.
    """
    limit_library_threads(settings.cpu_threads)
    memory = LinkMemory()
    device_lost = threading.Event()
    open_gpus = functools.partial(_open_gpus, memory=memory)
    engine = make_engine(settings, open_gpus, device_lost.set)
    app = create_app(settings, engine, lambda ids: memory.place(ids).array)
    check_names(app.service.get_engine_parts().registry)
    return uvloop.run(run_watched(_serve(app, listening, memory, device_lost, is_restarted)))


def _open_gpus(settings: Settings, memory: LinkMemory) -> OpenedGpu:
    from service.multiprocess.gpu_workers.opening import open_gpus

    return open_gpus(settings, memory)


async def _serve(
    app: Application,
    listening: socket.socket,
    memory: LinkMemory,
    device_lost: threading.Event,
    is_restarted: bool,
) -> int:
    """Answer front ends until the process has to end; return its exit code."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    service = app.service

    def begin_draining(number: int) -> None:
        service.draining = True
        loop.call_later(find_lame_duck_s(service.settings, number), stop.set)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, begin_draining, number)
    loop.add_signal_handler(signal.SIGHUP, reload_files, service)
    call_when_orphaned(functools.partial(begin_draining, signal.SIGINT))
    engine_server = EngineServer(app, service.settings.frontends, memory)
    service.join_processes(engine_server)
    async with app.running():
        updates = asyncio.create_task(engine_server.keep_updating())
        grpc, metrics = await _start_others(app, is_restarted)
        print(UP, grpc.port if grpc else 0, metrics.server_port if metrics else 0, flush=True)
        # Front ends, which wait at the socket, are ready soon; gRPC answers before.
        server = await loop.create_unix_server(engine_server.protocol, sock=listening)
        await _wait_for_end(stop, device_lost)
        if stop.is_set():
            await _drain(app, engine_server, grpc)
        else:
            await _finish_accepted(app, engine_server, grpc)
        if metrics is not None:
            stop_metrics(metrics)
        server.close()
        updates.cancel()
        memory.close()
    return 0 if stop.is_set() else DEVICE_LOST


async def _start_others(
    app: Application, is_restarted: bool
) -> tuple[GrpcServer | None, WSGIServer | None]:
    """Start the gRPC server and the metrics server, if their ports are set."""
    service = app.service
    try:
        settings = service.settings
        metrics = start_metrics(
            service.metrics, service.processes, settings.host, settings.metrics_port
        )
        if not settings.serves_grpc:
            return None, metrics
        # The supervisor refuses calls on the port until this process is up (grpc_standby.py).
        return await start_grpc(app.oip, shares_port=is_restarted), metrics
    except OSError:
        raise SystemExit(USAGE_ERROR) from None


async def _drain(app: Application, engine_server: EngineServer, grpc: GrpcServer | None) -> None:
    """Stop gRPC, wait for the front ends to disconnect, then stop the batcher."""
    service = app.service
    app.training.stop_soon()
    grace_s = service.settings.drain_timeout_s
    end = monotonic() + grace_s
    if grpc is not None:
        await grpc.begin_drain(grace_s)
    try:
        async with asyncio.timeout(grace_s + 1):
            await engine_server.all_disconnected.wait()
    except TimeoutError:
        pass
    await service.batcher.stop(max(0.0, end - monotonic()))
    if grpc is not None:
        await grpc.stop(grace_s)


async def _wait_for_end(stop: asyncio.Event, device_lost: threading.Event) -> None:
    """Wait until the process is stopped, or has lost its GPU."""
    while not device_lost.is_set() and not stop.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), CHECK_PERIOD_S)


async def _finish_accepted(
    app: Application, engine_server: EngineServer, grpc: GrpcServer | None
) -> None:
    """Answer accepted requests, and refuse others; front ends wait for the next engine process."""
    logger.critical("the process ends, as another one can use the GPU")
    service = app.service
    service.draining = True
    app.training.stop_soon()
    grace_s = service.settings.drain_timeout_s
    end = monotonic() + grace_s
    if grpc is not None:
        await grpc.begin_drain(grace_s)
    await service.batcher.stop(max(0.0, end - monotonic()))
    await engine_server.wait_until_replied(max(0.0, end - monotonic()))
    if grpc is not None:
        await grpc.stop(grace_s)


def call_when_orphaned(stop: Callable[[], None]) -> None:
    """Call `stop` when standard input ends, because the supervisor has ended."""
    loop = asyncio.get_running_loop()

    def has_ended() -> None:
        loop.remove_reader(0)
        stop()

    loop.add_reader(0, has_ended)
