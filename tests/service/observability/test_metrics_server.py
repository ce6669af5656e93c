"""The port of the metrics: clients that send nothing keep Prometheus out for no time."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator

import pytest

from service.observability import metrics_server
from service.observability.metrics import Metrics
from service.observability.metrics_server import MAX_CONNECTIONS, start_metrics, stop_metrics

WAIT_S = 60.0


@pytest.fixture
def port() -> Iterator[int]:
    server = start_metrics(Metrics("1.2.3"), None, "127.0.0.1", 0)
    assert server is not None
    yield server.server_port
    stop_metrics(server)


def read(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=WAIT_S) as answer:
        return str(answer.read().decode())


def test_silent_connections_give_way(port):
    silent = [
        socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        for _ in range(3 * MAX_CONNECTIONS)
    ]
    for _ in range(3):
        assert 'version="1.2.3"} 1.0' in read(port)
    assert silent[0].recv(1) == b""
    for each in silent:
        each.close()


def test_a_silent_connection_is_closed_in_time(port, monkeypatch):
    monkeypatch.setattr(metrics_server._Handler, "timeout", 0.2)
    for sent in (b"", b"GET /metrics HTTP/1.1\r\n"):
        with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as client:
            client.sendall(sent)
            assert client.recv(1) == b""


def test_an_address_that_cannot_be_bound_is_named(port, caplog):
    with pytest.raises(OSError):
        start_metrics(Metrics("1.2.3"), None, "127.0.0.1", port)
    assert "WARPTOK_METRICS_PORT" in caplog.text
