"""Serves /metrics on a separate port and thread, which answer while the event loop is busy."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Iterable
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from service.observability.process_metrics import Joined

if TYPE_CHECKING:
    from service.observability.metrics import Metrics
    from service.observability.process_metrics import Processes

logger = logging.getLogger(__name__)
GATHER_TIMEOUT_S = 5.0
IDLE_S = 10.0  # The longest wait for a client to send or read anything.
MAX_CONNECTIONS = 16


def start_metrics(
    metrics: Metrics, processes: Processes | None, host: str, port: int | None
) -> WSGIServer | None:
    """Start the metrics server if a port is set; call it on the event loop.

    Args:
        metrics: the metrics of this process.
        processes: the other processes of the service; None: a single process.
        host: the address to listen on.
        port: the setting `metrics_port`.

    Raises:
        OSError: the address cannot be used; the error has been logged.
    """
    if port is None:
        return None
    registry = metrics.registry
    if processes is not None:
        registry = CollectorRegistry()
        registry.register(_AllProcesses(processes, asyncio.get_running_loop()))
    try:
        server = make_server(host, port, make_wsgi_app(registry), _Server, _Handler)
    except OSError as error:
        logger.error(
            "metrics cannot listen on %s:%d: %s; another port: WARPTOK_METRICS_PORT",
            host,
            port,
            error.strerror or error,
        )
        raise
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server


def stop_metrics(server: WSGIServer) -> None:
    """Stop the server."""
    server.shutdown()
    server.server_close()


class _Server(ThreadingMixIn, WSGIServer):
    """A server with a thread per connection; above the limit, a new one closes the oldest one."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[WSGIRequestHandler]) -> None:
        found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family, *_, resolved = found[0]
        self._open: dict[socket.socket, None] = {}  # In their order.
        self._changing = threading.Lock()
        super().__init__(resolved[:2], handler)  # type: ignore[arg-type]

    @override
    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changing:
            if len(self._open) >= MAX_CONNECTIONS:
                oldest = next(iter(self._open))
                del self._open[oldest]
                with contextlib.suppress(OSError):  # It has just ended.
                    oldest.shutdown(socket.SHUT_RDWR)
            self._open[request] = None
        super().process_request(request, client_address)

    @override
    def shutdown_request(self, request: Any) -> None:
        with self._changing:
            self._open.pop(request, None)
        super().shutdown_request(request)


class _Handler(WSGIRequestHandler):
    """Answers one request, which must arrive before a timeout."""

    timeout = IDLE_S

    @override
    def handle(self) -> None:
        with contextlib.suppress(OSError):  # The client is too slow, or gone.
            super().handle()

    @override
    def log_message(self, format: str, *arguments: Any) -> None:
        pass


class _AllProcesses(Collector):
    """Collects the metrics of all processes through the event loop."""

    def __init__(self, processes: Processes, loop: asyncio.AbstractEventLoop) -> None:
        self._processes = processes
        self._loop = loop

    def describe(self) -> Iterable[Metric]:
        """Describe no metrics in advance, as other processes report them."""
        return ()

    @override
    def collect(self) -> Iterable[Metric]:
        families = asyncio.run_coroutine_threadsafe(self._processes.families(), self._loop)
        return Joined(families.result(GATHER_TIMEOUT_S)).collect()
