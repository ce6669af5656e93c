"""A service that speaks TLS, and on Unix sockets: the same answers and limits as without."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np
import pytest

from service.protos import warptok_pb2 as pb
from service.security.certificates import Certificates
from tests.support.certificates import Signed, make_certificate
from tests.support.data_files import ROOT
from tests.support.server_process import (
    AT_ONCE_S,
    STOP_TIMEOUT_S,
    Server,
    server_process,
    service_environment,
)

WAIT_S = 60.0
IDLE_S = 2
MAX_CONNECTIONS = 12
TEXT = "Hello, world! "
IDS = [15496, 11, 995, 0]
JSON = {"content-type": "application/json"}
LONG = 100_000


@dataclass(frozen=True, slots=True)
class Running:
    """A running service, and the folder with its certificate and its Unix sockets."""

    server: Server
    folder: Path
    certificate: Signed


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("tls")
    first = make_certificate(folder, "first")
    current = Signed(folder / "tls.pem", folder / "tls.key")
    install(first, current)
    settings = {
        "WARPTOK_PRELOAD": "gpt2",
        "WARPTOK_TLS_CERTIFICATE": str(current.certificate),
        "WARPTOK_TLS_KEY": str(current.key),
        "WARPTOK_UNIX_SOCKET": str(folder / "http.sock"),
        "WARPTOK_GRPC_UNIX_SOCKET": str(folder / "grpc.sock"),
        "WARPTOK_HEAD_TIMEOUT_S": str(IDLE_S),
        "WARPTOK_STREAM_IDLE_TIMEOUT_S": str(IDLE_S),
        "WARPTOK_MAX_CONNECTIONS": str(MAX_CONNECTIONS),
        "WARPTOK_ACCESS_LOG": "true",
    }
    with server_process(folder, settings, context=first.trust()) as server:
        yield Running(server, folder, current)
    assert not (folder / "http.sock").exists()
    assert not (folder / "grpc.sock").exists()


def install(signed: Signed, current: Signed) -> None:
    """Put a certificate and its key where the service reads them."""
    shutil.copy(signed.certificate, current.certificate)
    shutil.copy(signed.key, current.key)


@contextlib.contextmanager
def connect(running: Running) -> Iterator[ssl.SSLSocket]:
    """Connect by TLS."""
    context = running.server.context
    assert context is not None
    with socket.create_connection(("127.0.0.1", running.server.port), timeout=WAIT_S) as plain:
        with context.wrap_socket(
            plain, server_hostname="localhost", suppress_ragged_eofs=False
        ) as encrypted:
            yield encrypted


class UnixConnection(http.client.HTTPConnection):
    """A connection to a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("any.name.example")
        self.path = path

    def connect(self) -> None:
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(WAIT_S)
        try:
            made.connect(str(self.path))
        except OSError:
            made.close()
            raise
        self.sock = made


def open_both(running: Running) -> list[http.client.HTTPConnection]:
    """Return a connection by TLS and one to the Unix socket."""
    port = running.server.port
    context = running.server.context
    return [
        http.client.HTTPSConnection("localhost", port, timeout=WAIT_S, context=context),
        UnixConnection(running.folder / "http.sock"),
    ]


def call(connection: http.client.HTTPConnection, path: str, body: bytes, headers=JSON):
    connection.request("POST", path, body, headers)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def count_closed(running: Running, reason: str) -> float:
    connection = UnixConnection(running.folder / "http.sock")
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    found = re.search(rf'connections_closed_total{{reason="{reason}"}} ([0-9.]+)', text)
    return float(found[1]) if found else 0.0


def test_answers_of_both_sockets_are_those_of_a_plain_port(running):
    for connection in open_both(running):
        for _ in range(3):  # The second and third have a known head.
            body = json.dumps({"vocabulary": "gpt2", "text": TEXT.strip()}).encode()
            status, answer = call(connection, "/v1/encode", body)
            assert (status, answer["ids"]) == (200, IDS)
        body = json.dumps({"vocabulary": "gpt2", "text": TEXT * LONG}).encode()
        status, long = call(connection, "/v1/encode", body)
        assert (status, long["num_tokens"]) == (200, 4 * LONG + 1)
        assert long["ids"][:4] == [*IDS[:2], 995, 0]
        path = "/v1/encode?vocabulary=gpt2"
        plain_type = {"content-type": "text/plain; charset=utf-8"}
        status, bulk = call(connection, path, (TEXT * LONG).encode(), plain_type)
        assert (status, bulk["ids"]) == (200, long["ids"])
        status, refused = call(connection, "/v1/encode", b"{}")
        assert (status, refused["code"]) == (422, "invalid_request")
        connection.close()


def test_only_a_port_checks_the_host(running):
    port, unix = open_both(running)
    for connection, expected in ((port, 403), (unix, 200)):
        connection.request("GET", "/v1/info", headers={"host": "rebound.example"})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == expected
        connection.close()


def test_speaks_tls_1_2_at_least_and_http_1_1(running):
    with connect(running) as client:
        assert client.version() in ("TLSv1.2", "TLSv1.3")
    context = running.server.context
    context.set_alpn_protocols(["h2", "http/1.1"])
    with connect(running) as client:
        assert client.selected_alpn_protocol() == "http/1.1"


def test_a_last_answer_ends_the_connection_though_its_client_does_not_close(running):
    reasons = ("silent", "slow_head", "slow_read")
    before = [count_closed(running, reason) for reason in reasons]
    with connect(running) as client:
        client.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        received = b""
        while piece := client.recv(65_536):  # It ends by close_notify, or recv would raise.
            received += piece
        assert received.startswith(b"HTTP/1.1 200")
        plain = client.fileno()
        with socket.socket(fileno=os.dup(plain)) as raw:
            raw.settimeout(WAIT_S)
            assert raw.recv(100) == b""  # The server has closed.
    assert [count_closed(running, reason) for reason in reasons] == before


def test_without_tls_on_the_port_nothing_is_answered(running):
    before = count_closed(running, "bad_handshake")
    with socket.create_connection(("127.0.0.1", running.server.port), timeout=WAIT_S) as client:
        client.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert b"HTTP" not in client.recv(1000)
    assert count_closed(running, "bad_handshake") == before + 1


def read_until_closed(client: socket.socket) -> float:
    """Read until the server closes; return the seconds."""
    begin = time.monotonic()
    with contextlib.suppress(OSError):
        while client.recv(1 << 16):
            pass
    return time.monotonic() - begin


@pytest.mark.slow
def test_slow_clients_are_cut_off(running):
    counts = {name: count_closed(running, name) for name in ("silent", "slow_head", "slow_body")}
    head = b"POST /v1/encode HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    address = ("127.0.0.1", running.server.port)
    with (
        ThreadPoolExecutor(3) as pool,
        socket.create_connection(address, timeout=WAIT_S) as without_handshake,
        connect(running) as silent,
    ):
        silent_s = [pool.submit(read_until_closed, each) for each in (without_handshake, silent)]
        with connect(running) as slow_head, connect(running) as slow_body:
            slow_head.sendall(b"GET /livez HTTP/1.1\r\nHost")
            head_s = pool.submit(read_until_closed, slow_head)
            slow_body.sendall(head + b"Content-Length: 1000\r\n\r\n{")
            assert slow_body.recv(1000).startswith(b"HTTP/1.1 408")
            assert head_s.result() < WAIT_S / 2
        assert all(IDLE_S - 1 < each.result() < WAIT_S / 2 for each in silent_s)
    for name, added in (("silent", 2), ("slow_head", 1), ("slow_body", 1)):
        assert count_closed(running, name) == counts[name] + added


@pytest.mark.slow
@pytest.mark.parametrize("last", [b"", b"Connection: close\r\n"])
def test_a_client_that_reads_nothing_is_cut_off(running, last):
    before = count_closed(running, "slow_read")
    text = (TEXT * 1_000_000).encode()
    head = b"POST /v1/encode?vocabulary=gpt2 HTTP/1.1\r\nHost: localhost\r\n"
    head += b"Content-Type: text/plain\r\n"
    with connect(running) as client:
        client.sendall(head + last + b"Content-Length: %d\r\n\r\n" % len(text) + text)
        deadline = time.monotonic() + WAIT_S
        while count_closed(running, "slow_read") == before:
            assert time.monotonic() < deadline
            time.sleep(0.2)


def test_silent_connections_make_room_before_their_handshake(running):
    before = count_closed(running, "make_room")
    with contextlib.ExitStack() as stack:
        for _ in range(MAX_CONNECTIONS + 3):
            address = ("127.0.0.1", running.server.port)
            stack.enter_context(socket.create_connection(address, timeout=WAIT_S))
        with connect(running) as client:
            client.sendall(b"GET /v1/info HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(1000).startswith(b"HTTP/1.1 200")
        assert count_closed(running, "make_room") > before


def encode_over_grpc(channel: grpc.Channel) -> list[int]:
    method = channel.unary_unary(
        "/warptok.v1.Tokenizer/Encode",
        request_serializer=pb.EncodeRequest.SerializeToString,
        response_deserializer=pb.EncodeResponse.FromString,
    )
    request = pb.EncodeRequest(vocabulary="gpt2", text=TEXT.strip().encode())
    answer = method(request, timeout=WAIT_S, wait_for_ready=True)
    return np.frombuffer(answer.ids, "<i4").tolist()


def open_secure(running: Running, certificate: Path) -> grpc.Channel:
    """Open a channel to the port of gRPC that trusts a certificate."""
    found = re.search(r"gRPC on 127.0.0.1:(\d+)", running.server.log.read_text())
    assert found is not None
    credentials = grpc.ssl_channel_credentials(certificate.read_bytes())
    options = [("grpc.use_local_subchannel_pool", 1)]
    return grpc.secure_channel(f"localhost:{found[1]}", credentials, options=options)


def test_grpc_answers_by_tls_and_on_its_unix_socket(running):
    with grpc.insecure_channel(f"unix:{running.folder / 'grpc.sock'}") as channel:
        assert encode_over_grpc(channel) == IDS
    with open_secure(running, running.certificate.certificate) as channel:
        assert encode_over_grpc(channel) == IDS


def test_sockets_can_be_written_by_owner_and_group(running):
    for name in ("http.sock", "grpc.sock"):
        assert (running.folder / name).stat().st_mode & 0o777 == 0o660


def read_served(running: Running) -> str:
    """Return the certificate that a new connection gets."""
    return ssl.get_server_certificate(("127.0.0.1", running.server.port))


def wait_served(running: Running, signed: Signed) -> None:
    expected = ssl.PEM_cert_to_DER_cert(signed.certificate.read_text())
    deadline = time.monotonic() + WAIT_S
    while ssl.PEM_cert_to_DER_cert(read_served(running)) != expected:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def wait_logged(running: Running, words: str, count: int = 1) -> None:
    deadline = time.monotonic() + WAIT_S
    while running.server.log.read_text().count(words) < count:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_new_certificate_is_used_without_a_restart(running, tmp_path):
    old = open_both(running)[0]
    body = json.dumps({"vocabulary": "gpt2", "text": TEXT.strip()}).encode()
    assert call(old, "/v1/encode", body)[0] == 200
    first = Signed(running.folder / "first.pem", running.folder / "first.key")
    second = make_certificate(tmp_path, "second")
    running.certificate.key.write_text("damaged")
    wait_logged(running, "the certificate stays as it was")
    wait_served(running, first)
    install(second, running.certificate)
    wait_served(running, second)
    with open_secure(running, second.certificate) as channel:
        assert encode_over_grpc(channel) == IDS
    assert call(old, "/v1/encode", body)[1]["ids"] == IDS
    old.close()
    install(first, running.certificate)
    wait_served(running, first)
    number = running.server.log.read_text().count("was read again")
    os.kill(running.server.process.pid, signal.SIGHUP)
    wait_logged(running, "was read again", number + 1)
    assert read_served(running)


def test_the_access_log_has_requests_of_both_sockets(running):
    before = running.server.log.read_text().count("route=/livez")
    for connection in open_both(running):
        connection.request("GET", "/livez")
        connection.getresponse().read()
        connection.close()
    wait_logged(running, "route=/livez", before + 2)


def test_files_that_do_not_fit_are_refused_by_name(tmp_path):
    one, other = make_certificate(tmp_path, "one"), make_certificate(tmp_path, "other")
    with pytest.raises(ValueError, match=r"TLS_KEY.*MISMATCH"):
        Certificates(one.certificate, other.key, None)
    with pytest.raises(ValueError, match=r"TLS_CERTIFICATE.*missing.pem: No such file"):
        Certificates(tmp_path / "missing.pem", one.key, None)
    with pytest.raises(ValueError, match=r"TLS_CERTIFICATE.*no certificate"):
        Certificates(one.key, one.key, None)
    with pytest.raises(ValueError, match=r"TLS_KEY.*no private key"):
        Certificates(one.certificate, one.certificate, None)
    locked = tmp_path / "locked.key"
    locked.write_text(one.key.read_text().replace("PRIVATE", "ENCRYPTED PRIVATE"))
    with pytest.raises(ValueError, match=r"TLS_KEY.*password"):
        Certificates(one.certificate, locked, None)
    both = tmp_path / "both.pem"
    both.write_text(one.certificate.read_text() + one.key.read_text())
    assert Certificates(both, both, None).current.client_ca is None
    (tmp_path / "empty.pem").write_text("")
    with pytest.raises(ValueError, match="TLS_CLIENT_CA"):
        Certificates(one.certificate, one.key, tmp_path / "empty.pem")


@pytest.mark.slow
@pytest.mark.parametrize("frontends", ["0", "2"])
def test_only_known_clients_connect_and_idle_ones_do_not_hold_up_a_stop(tmp_path, frontends):
    signed = make_certificate(tmp_path, "server")
    client = make_certificate(tmp_path, "client")
    context = signed.trust()
    context.load_cert_chain(client.certificate, client.key)
    settings = {
        "WARPTOK_PRELOAD": "gpt2",
        "WARPTOK_FRONTENDS": frontends,
        "WARPTOK_TLS_CERTIFICATE": str(signed.certificate),
        "WARPTOK_TLS_KEY": str(signed.key),
        "WARPTOK_TLS_CLIENT_CA": str(client.certificate),
        "WARPTOK_UNIX_SOCKET": str(tmp_path / "http.sock"),
        "WARPTOK_LAME_DUCK_S": "0.5",
    }
    with server_process(tmp_path, settings, expect_exit=False, context=context) as server:
        running = Running(server, tmp_path, signed)
        body = json.dumps({"vocabulary": "gpt2", "text": TEXT.strip()}).encode()
        for connection in open_both(running):
            assert call(connection, "/v1/encode", body)[1]["ids"] == IDS
            connection.close()
        unknown = http.client.HTTPSConnection(
            "localhost", server.port, timeout=WAIT_S, context=signed.trust()
        )
        with pytest.raises(OSError):
            call(unknown, "/v1/encode", body)
        unknown.close()
        pair = (client.key.read_bytes(), client.certificate.read_bytes())
        found = re.search(r"gRPC on 127.0.0.1:(\d+)", server.log.read_text())
        assert found is not None
        credentials = grpc.ssl_channel_credentials(signed.certificate.read_bytes(), *pair)
        with grpc.secure_channel(f"localhost:{found[1]}", credentials) as channel:
            assert encode_over_grpc(channel) == IDS
        with connect(running) as idle:
            idle.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert idle.recv(1000).startswith(b"HTTP/1.1 200")
            os.kill(server.process.pid, signal.SIGTERM)
            assert server.process.wait(AT_ONCE_S) == 0, server.log.read_text()
        assert not (tmp_path / "http.sock").exists()


@pytest.mark.slow
def test_a_service_without_ports_answers_on_its_unix_socket(tmp_path):
    path = tmp_path / "http.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))  # As a process leaves it that is killed.
    settings = {"WARPTOK_PRELOAD": "none", "WARPTOK_UNIX_SOCKET": str(path), "WARPTOK_HOST": "none"}
    command = [sys.executable, "-m", "service", "serve"]
    process = subprocess.Popen(command, cwd=ROOT, env=service_environment(settings))
    try:
        connection = UnixConnection(path)
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                connection.connect()
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.1)
        # Who can write to the socket may manage vocabularies.
        assert call(connection, "/v1/vocabularies/gpt2/unload", b"")[0] != 403
        connection.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_TIMEOUT_S) == 0
    finally:
        process.kill()
    assert not path.exists()
