"""Serves /metrics on another port and thread, which answer while the event loop is busy."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from service.observability.process_metrics import Joined

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from service.observability.metrics import Metrics
    from service.observability.process_metrics import Processes

logger = logging.getLogger(__name__)
GATHER_TIMEOUT_S = 5.0


def start_metrics(
    metrics: Metrics, processes: Processes | None, host: str, port: int | None
) -> WSGIServer | None:
    """Start the server for metrics if it has a port; call it on the event loop.

    Args:
        metrics: the metrics of this process.
        processes: the other processes of the service; None: there are none.
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
        server, _ = start_http_server(port, host, registry)
    except OSError as error:
        logger.error(
            "metrics cannot listen on %s:%d: %s; another port: WARPTOK_METRICS_PORT",
            host,
            port,
            error.strerror or error,
        )
        raise
    return server


def stop_metrics(server: WSGIServer) -> None:
    """Stop the server."""
    server.shutdown()
    server.server_close()


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
