"""The command `serve`: the service on a socket, from the line that says where to a drained stop.

uvicorn does the HTTP; this adds the line, the settings and what SIGTERM means.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
import os
import signal
import socket
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn
from pydantic import ValidationError

from service.allocator import keep_large_blocks
from service.app import create_app
from service.errors import UnknownVocabulary
from service.health_routes import package_version
from service.hot_protocol import hot_protocol
from service.hot_routes import HotRoutes
from service.settings import PREFIX, Settings, read_settings

if TYPE_CHECKING:
    from service.grpc_server import GrpcServer
    from service.state import Service

__all__ = [
    "BACKLOG",
    "Server",
    "end_normally_on_signals",
    "say_where",
    "serve",
    "start_grpc",
    "start_logging",
]

BACKLOG = 2048
KEEP_ALIVE_S = 75  # Longer than the 60 s of the usual load balancers, so that they close first.
logger = logging.getLogger(__name__)


def serve(arguments: argparse.Namespace) -> int:
    """Answer requests until SIGTERM or Ctrl-C.

    Raises:
        ValueError: a setting in the environment or an option is wrong.
    """
    settings = _settings(arguments)
    start_logging(settings)
    if settings.frontends:
        from service.supervisor import supervise

        return supervise(settings)
    end_normally_on_signals()
    keep_large_blocks()
    app = create_app(settings)
    try:
        app.service.registry.names_to_preload()
    except UnknownVocabulary as error:
        raise ValueError(f"{PREFIX}PRELOAD: {error}") from error
    Server(app, settings).run()
    return 0


def start_logging(settings: Settings, process: str = "") -> None:
    """Log lines to stderr, each with the name of its process where there are several."""
    level = settings.log_level.upper()
    place = f"{process} " if process else ""
    logging.basicConfig(
        level=level, format=f"%(asctime)s %(levelname)s {place}%(name)s: %(message)s"
    )
    # uvicorn's own lines about starting and stopping say nothing that ours do not.
    logging.getLogger("uvicorn.error").setLevel(max(logging.WARNING, logging.getLevelName(level)))


def _settings(arguments: argparse.Namespace) -> Settings:
    options = {name: getattr(arguments, name) for name in ("host", "port", "frontends", "engine")}
    given = {name: value for name, value in options.items() if value is not None}
    try:
        return read_settings(**given)
    except ValidationError as error:
        faults = [(str(fault["loc"][0]), fault["msg"]) for fault in error.errors()]
        named = [
            f"{f'--{name}' if name in given else PREFIX + name.upper()}: {message}"
            for name, message in faults
        ]
        raise ValueError("; ".join(named)) from error


def end_normally_on_signals() -> None:
    """Uvicorn raises the signal again once it has drained: that end, too, is a normal one."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _exit)


def _exit(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


def say_where(settings: Settings, port: int, grpc_port: int | None) -> None:
    """The line that says where the service is."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    url = f"http://{host}:{port}"
    also = f", gRPC on {host}:{grpc_port}" if grpc_port else ""
    print(f"warptok {package_version()} on {url}{also} (documentation: {url}/docs)", flush=True)


async def start_grpc(service: Service) -> GrpcServer:
    """GRPC beside HTTP; its libraries are imported only here.

    Raises:
        OSError: the port cannot be used; it was logged.
    """
    from service.grpc_server import GrpcServer

    server = GrpcServer(service)
    try:
        await server.start(service.settings.host, service.settings.grpc_port)
    except OSError as error:
        logger.error("%s; another port: %sGRPC_PORT, none: %sGRPC=false", error, PREFIX, PREFIX)
        raise
    return server


class Server(uvicorn.Server):
    """uvicorn, saying where it listens, and draining our queue while it drains its connections."""

    def __init__(self, app: HotRoutes, settings: Settings) -> None:
        self.app, self.settings = app, settings
        self.grpc: GrpcServer | None = None
        super().__init__(
            uvicorn.Config(
                app,
                host=settings.host,
                port=settings.port,
                loop="uvloop",
                http=hot_protocol(app.service),
                ws="none",
                lifespan="on",
                log_config=None,
                log_level=None,
                access_log=settings.access_log,
                server_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=math.ceil(settings.drain_timeout_s) + 1,
            )
        )

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain at the first signal; end at once at the second."""
        if self.should_exit:
            logger.warning("a second signal: what was accepted is not finished")
            logging.shutdown()
            os._exit(128 + sig)
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say where."""
        await super().startup(sockets)
        if self.started and self.settings.grpc:
            await self._start_grpc()
        if self.started:
            port = self.servers[0].sockets[0].getsockname()[1]
            say_where(self.settings, port, self.grpc.port if self.grpc else None)

    async def _start_grpc(self) -> None:
        try:
            self.grpc = await start_grpc(self.app.service)
        except OSError:
            await self.shutdown()
            raise SystemExit(1) from None

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuse what is new and finish what was accepted, within the drain time."""
        service = self.app.service
        service.draining = True
        grace_s = self.settings.drain_timeout_s
        drain = asyncio.create_task(service.batcher.stop(grace_s))
        grpc = asyncio.create_task(self.grpc.stop(grace_s)) if self.grpc else None
        await super().shutdown(sockets)
        await drain
        if grpc is not None:
            await grpc
        counts = service.metrics.counts()
        accepted = counts["warptok_work_accepted_total"][()]
        finished = counts["warptok_work_finished_total"].items()
        outcomes = ", ".join(f"{number} {outcome}" for (outcome,), number in sorted(finished))
        logger.info("stopped: %d accepted; %s", accepted, outcomes or "none finished")
