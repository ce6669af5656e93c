"""A process that may open 256 files, and 300 clients that send nothing: probes are answered."""

from __future__ import annotations

import contextlib
import re
import resource
import socket
import urllib.request
from collections.abc import Iterator

import pytest

from tests.support.server_process import Server, server_process

NUM_FILES = 256
NUM_SILENT = 300
WAIT_S = 60.0


@pytest.fixture(scope="module", params=["0", "1"])
def server(request, tmp_path_factory) -> Iterator[Server]:
    settings = {
        "WARPTOK_PRELOAD": "none",
        "WARPTOK_FRONTENDS": request.param,
        "WARPTOK_METRICS_PORT": "0",
    }

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (NUM_FILES, NUM_FILES))

    folder = tmp_path_factory.mktemp("server")
    with server_process(folder, settings, prepare=limit) as made:
        yield made


@contextlib.contextmanager
def clients(port: int, sent: bytes) -> Iterator[None]:
    """Open connections that send a little and then nothing."""
    with contextlib.ExitStack() as stack:
        for _ in range(NUM_SILENT):
            client = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
            stack.enter_context(client)
            with contextlib.suppress(ConnectionError):  # It has been closed to make room.
                client.sendall(sent)
        yield


def port_of(server: Server, name: str) -> int:
    found = re.search(rf"{name} on 127.0.0.1:(\d+)", server.log.read_text())
    assert found is not None
    return int(found[1])


def status(server: Server, path: str) -> int:
    with urllib.request.urlopen(server.url + path, timeout=WAIT_S) as answer:
        answer.read()
        return int(answer.status)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /version HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
        b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /v1/encode HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999\r\n\r\n{",
    ],
)
@pytest.mark.slow
def test_three_hundred_clients_do_not_stop_the_probes(server, sent):
    with clients(server.port, sent):
        for path in ("/readyz", "/livez") * 3:
            assert status(server, path) == 200
    assert "connections closed" in server.log.read_text()


@pytest.mark.parametrize("name", ["gRPC", "metrics"])
@pytest.mark.slow
def test_clients_of_other_ports_do_not_stop_the_probes(server, name):
    with clients(port_of(server, name), b""):
        for path in ("/readyz", "/livez") * 3:
            assert status(server, path) == 200
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port_of(server, 'metrics')}/", timeout=WAIT_S
        ) as answer:
            assert answer.status == 200
