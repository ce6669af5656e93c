"""Runs a service in one process until SIGTERM has drained it.

uvicorn serves HTTP; this module configures it, starts gRPC and metrics, and drains the queue.

    SIGTERM ─ lame_duck_s ──────────────► ports close ─ LINGER_S ─► queue closes ────────► end
              /readyz says 503; all is    gRPC: GOAWAY; idle        new requests get 503,
              answered, and HTTP answers  HTTP connections close;   accepted ones are
              close their connections     the rest is answered      finished

The time from the close of the ports to the end is at most `drain_timeout_s`. Ctrl-C skips
`lame_duck_s`.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import os
import signal
import socket
import sys
import threading
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from service.core.settings import PREFIX, Settings
from service.engines.cpu.bpe.library_threads import limit_library_threads
from service.http.asgi_fast_path import AsgiFastPath
from service.http.connection.protocol import LINGER_S, make_protocol
from service.http.connection.tls import make_tls_protocol
from service.http.openapi import write_before_ready
from service.observability.metrics_server import start_metrics, stop_metrics
from service.registry.management import check_names
from service.runtime.file_limits import raise_file_limit
from service.runtime.malloc import SWITCH_S, keep_large_blocks
from service.runtime.watchdog import run_watched
from service.security.addresses import TrustedProxies
from service.server.app import Application, OpenGpus, create_app, make_engine
from service.server.lifespan import reload_files
from service.server.sockets import (
    accept_waiting,
    bind_sockets,
    bind_unix_socket,
    remove_unix_path,
)
from service.server.startup import (
    BACKLOG,
    DEVICE_LOST,
    USAGE_ERROR,
    find_lame_duck_s,
    print_address,
)

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from service.apis.grpc.server import GrpcServer
    from service.apis.oip.state import OipState

KEEP_ALIVE_S = 75  # Longer than the 60 s of common load balancers, so that they close first.
POLL_S = 0.02
logger = logging.getLogger(__name__)


def serve(settings: Settings, open_gpus: OpenGpus) -> int:
    """Answer requests in this process until SIGTERM, Ctrl-C, or the loss of the GPU.

    Args:
        settings: the settings of the service.
        open_gpus: opens the GPUs of the setting `gpus`.

    Returns:
        The exit code: DEVICE_LOST if the process must be restarted to use the GPU.

    Raises:
        ValueError: a setting is invalid.
    """
    end_normally_on_signals()
    keep_large_blocks()
    raise_file_limit()
    limit_library_threads(settings.cpu_threads)
    sys.setswitchinterval(SWITCH_S)
    sockets, unix_socket = bind_sockets(settings), bind_unix_socket(settings)
    device_lost = threading.Event()
    app = create_app(settings, make_engine(settings, open_gpus, device_lost.set))
    check_names(app.service.get_engine_parts().registry)
    Server(app.asgi, settings, app, unix_socket, device_lost).run(sockets)
    return DEVICE_LOST if device_lost.is_set() else 0


def end_normally_on_signals() -> None:
    """Exit with 0 on SIGTERM and SIGINT, which uvicorn raises again after it has drained."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _exit)


def _exit(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


async def start_grpc(oip: OipState, *, shares_port: bool = False) -> GrpcServer:
    """Start the gRPC server beside HTTP; the gRPC libraries are imported only here.

    Args:
        oip: the state of the Open Inference Protocol, which contains the service.
        shares_port: see `GrpcServer`.

    Raises:
        OSError: the port cannot be used; the error has been logged.
    """
    # The renderer of chats starts processes; gRPC would handle each fork, and log lines of its own.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
    from service.apis.grpc.server import GrpcServer

    server, settings = GrpcServer(oip, shares_port=shares_port), oip.service.settings
    try:
        await server.start(settings.host, settings.grpc_port)
    except (OSError, ValueError) as error:
        logger.error("%s; another port: %sGRPC_PORT, none: %sGRPC=false", error, PREFIX, PREFIX)
        raise OSError(str(error)) from error
    return server


class Server(uvicorn.Server):
    """A uvicorn server that also prints its addresses, runs gRPC, and drains the queue at its end.

    Args:
        app: the ASGI application that answers HTTP.
        settings: the settings of the service.
        main: the whole application; None: another process of the service runs it.
        unix_socket: the bound Unix socket to listen on as well; None if there is none.
        device_lost: an event that is set when this process has lost its GPU and should end; None
            if the process has no GPU.
    """

    def __init__(
        self,
        app: AsgiFastPath,
        settings: Settings,
        main: Application | None,
        unix_socket: socket.socket | None = None,
        device_lost: threading.Event | None = None,
    ) -> None:
        self.app = app
        self.device_lost = device_lost or threading.Event()
        self._is_signalled = False
        self.settings = settings
        self.main = main
        self.unix_socket = unix_socket
        self.make_plain = make_protocol(app.service)
        self.grpc: GrpcServer | None = None
        self.metrics: WSGIServer | None = None
        self.listen_until = 0.0
        proxies = TrustedProxies(settings).names
        certificates = app.service.certificates
        make = make_tls_protocol(self.make_plain, certificates) if certificates else self.make_plain
        super().__init__(
            uvicorn.Config(
                app,
                host=settings.host,
                port=settings.port,
                loop="uvloop",
                http=make,  # type: ignore[arg-type]  # It calls it.
                ws="none",
                lifespan="on",
                log_config=None,
                log_level=None,
                access_log=False,  # The RequestObserver writes it, for every protocol.
                server_header=False,
                # Without proxies uvicorn leaves the fields of a request as they are.
                proxy_headers=bool(proxies),
                forwarded_allow_ips=proxies,
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=math.ceil(settings.drain_timeout_s) + 1,
            )
        )

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain at the first signal; end at once at the second."""
        if self._is_signalled:
            logger.warning("a second signal: accepted requests are not answered")
            logging.shutdown()
            os._exit(128 + sig)
        self._is_signalled = True
        super().handle_exit(sig, frame)
        self._begin_draining(find_lame_duck_s(self.settings, sig))

    def _begin_draining(self, lame_duck_s: float) -> None:
        self.app.service.draining = True
        self.listen_until = monotonic() + lame_duck_s
        logger.info("draining: the ports close in %g s", lame_duck_s)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer requests until a signal has drained the server."""
        await run_watched(super().serve(sockets))

    async def on_tick(self, counter: int) -> bool:
        """Return whether the port should close; uvicorn calls this every 0.1 s."""
        if self.device_lost.is_set() and not self.should_exit:
            logger.critical("the process ends, as another one can use the GPU")
            self.should_exit = True
            self._begin_draining(find_lame_duck_s(self.settings, signal.SIGTERM))
        should_exit = await super().on_tick(counter)
        return should_exit and monotonic() >= self.listen_until

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, start gRPC and the metrics, and print the addresses."""
        assert self.main is not None
        writing = asyncio.create_task(write_before_ready(self.main.fastapi))
        await self.listen(sockets or [])
        if self.started:
            await self._start_others()
        await writing
        if self.started:
            port = sockets[0].getsockname()[1] if sockets else None
            metrics_port = self.metrics.server_port if self.metrics else None
            print_address(self.settings, port, self.grpc.port if self.grpc else None, metrics_port)

    async def listen(self, sockets: list[socket.socket]) -> None:
        """Answer HTTP on these sockets and the Unix socket; on SIGHUP reload files."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, reload_files, self.app.service)
        await super().startup(sockets)
        if self.started and self.unix_socket is not None:
            make = functools.partial(
                self.make_plain,
                config=self.config,
                server_state=self.server_state,
                app_state=self.lifespan.state,
            )
            self.servers.append(
                await loop.create_unix_server(make, sock=self.unix_socket, backlog=BACKLOG)
            )

    async def _start_others(self) -> None:
        try:
            service = self.app.service
            self.metrics = start_metrics(
                service.metrics, service.processes, self.settings.host, self.settings.metrics_port
            )
            if self.settings.serves_grpc:
                assert self.main is not None
                self.grpc = await start_grpc(self.main.oip)
        except OSError:
            await self.shutdown()
            raise SystemExit(USAGE_ERROR) from None

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the ports, and answer the accepted requests within the drain timeout."""
        service = self.app.service
        service.draining = True
        if self.main is not None:  # Otherwise the supervisor has the file.
            remove_unix_path(self.settings)
            # Training saves its state while requests are answered.
            self.main.training.stop_soon()
        listening = list(sockets or [])
        if self.unix_socket is not None:
            listening.append(self.unix_socket)
        await accept_waiting(listening, self.settings.drain_timeout_s)
        drain = asyncio.create_task(self._drain())
        # uvicorn ends the application's lifespan, which stops the queue, after all of its tasks. It
        # cancels late ones, which must not end the drain: calls would have no answer.
        waiting = asyncio.create_task(_wait_until_done(drain))
        self.server_state.tasks.add(waiting)
        waiting.add_done_callback(self.server_state.tasks.discard)
        await super().shutdown(listening)
        await drain
        if self.metrics is not None:
            stop_metrics(self.metrics)
        counts = service.metrics.counts()
        accepted = counts["warptok_work_accepted_total"][()]
        finished = counts["warptok_work_finished_total"].items()
        outcomes = ", ".join(f"{number} {outcome}" for (outcome,), number in sorted(finished))
        logger.info("stopped: %d accepted; %s", accepted, outcomes or "none finished")

    async def _drain(self) -> None:
        """Let clients disconnect, close the queue, and wait until it and gRPC are drained."""
        grace_s = self.settings.drain_timeout_s
        begin = monotonic()
        if self.grpc is not None:
            await self.grpc.begin_drain(grace_s)
        linger_until = begin + min(LINGER_S, grace_s)
        await asyncio.sleep(POLL_S)
        while self.server_state.connections and monotonic() < linger_until:
            await asyncio.sleep(POLL_S)
        for connection in list(self.server_state.connections):  # Some were accepted just now.
            connection.shutdown()
        await self.app.service.batcher.stop(max(0.0, begin + grace_s - monotonic()))
        if self.grpc is not None:
            await self.grpc.stop(grace_s)


async def _wait_until_done(task: asyncio.Task[None]) -> None:
    """Wait for a task; if the wait is cancelled, the task goes on."""
    await asyncio.wait([task])
