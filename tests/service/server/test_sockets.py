"""A port that is about to close keeps every connection that has been made, and takes no more."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import select
import socket
import time

import pytest
import uvloop

from service.core.settings import Settings
from service.server import sockets
from service.server.sockets import (
    accept_waiting,
    bind_shared_sockets,
    bind_sockets,
    bind_unix_socket,
    remove_unix_path,
)
from tests.support.waiting import GIVEN_UP_S, run


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.read(100))
    writer.close()


def test_connections_of_before_are_accepted_and_later_ones_wait_to_be_refused():
    async def scenario():
        with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as late:
            before = socket.create_connection(listening.getsockname())
            server = await asyncio.start_server(echo, sock=listening)
            await accept_waiting([listening], GIVEN_UP_S)
            late.setblocking(False)
            assert late.connect_ex(listening.getsockname()) == errno.EINPROGRESS
            assert select.select([], [late], [], 0.1) == ([], [], [])
            server.close()
        reader, writer = await asyncio.open_connection(sock=before)
        writer.write(b"still here")
        assert await reader.read() == b"still here"
        writer.close()

    run(scenario)


def test_a_busy_loop_accepts_all_connections_before_the_port_closes():
    num_waiting, iteration_s = 150, 0.005
    accepted = []

    class Accepting(asyncio.Protocol):
        def connection_made(self, transport):
            accepted.append(transport)

    async def scenario():
        loop = asyncio.get_running_loop()

        def keep_busy():
            time.sleep(iteration_s)
            loop.call_soon(keep_busy)

        with contextlib.ExitStack() as stack:
            listening = stack.enter_context(
                socket.create_server(("127.0.0.1", 0), backlog=num_waiting)
            )
            for _ in range(num_waiting):
                stack.enter_context(socket.create_connection(listening.getsockname()))
            server = await loop.create_server(Accepting, sock=listening)
            keep_busy()
            await accept_waiting([listening], GIVEN_UP_S)
            server.close()
            assert len(accepted) == num_waiting

    uvloop.run(scenario())


HANDSHAKE_ROW = "   1: 0100007F:%04X 0200007F:D431 03 00000000:00000000 01:00000063 00000000 0\n"


@pytest.mark.parametrize("wait_s", [0.2, GIVEN_UP_S])
def test_a_port_stays_open_for_handshakes_that_have_begun(tmp_path, monkeypatch, wait_s):
    table = tmp_path / "tcp"
    monkeypatch.setattr(sockets, "TCP_TABLES", [tmp_path / "absent", table])

    async def scenario():
        with socket.create_server(("127.0.0.1", 0)) as listening:
            table.write_text(HANDSHAKE_ROW % listening.getsockname()[1])
            asyncio.get_running_loop().call_later(wait_s, table.write_text, "")
            begin = time.monotonic()
            await accept_waiting([listening], GIVEN_UP_S)
            return time.monotonic() - begin

    seconds = run(scenario)
    assert min(wait_s, sockets.HANDSHAKE_S) <= seconds < GIVEN_UP_S


def test_the_system_lists_connections_by_port_and_state(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with socket.create_connection(listening.getsockname()):
            assert not sockets._has_handshakes([port])
            monkeypatch.setattr(sockets, "SYN_RECEIVED", b"01")  # Established.
            assert sockets._has_handshakes([port])
            assert not sockets._has_handshakes([])


def test_a_unix_socket_on_which_nobody_listens_is_replaced(tmp_path):
    path = tmp_path / "http.sock"
    settings = Settings(unix_socket=path, unix_socket_mode="600")
    with bind_unix_socket(settings) as first:
        assert path.stat().st_mode & 0o777 == 0o600
        first.listen()
        with pytest.raises(ValueError, match=r"UNIX_SOCKET.*another program listens"):
            bind_unix_socket(settings)
    with bind_unix_socket(settings) as second:
        second.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
    remove_unix_path(settings)
    assert not path.exists()
    path.write_text("kept")
    with pytest.raises(ValueError, match="is not a socket"):
        bind_unix_socket(settings)
    assert path.read_text() == "kept"
    assert bind_unix_socket(Settings()) is None


def test_the_kernel_holds_little_of_an_answer_that_nobody_reads():
    (listening,) = bind_sockets(Settings(port=0))
    with listening, socket.socket() as client:
        listening.listen()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        client.connect(listening.getsockname())
        accepted, _ = listening.accept()
        with accepted:
            accepted.setblocking(False)
            assert accepted.send(bytes(2_000_000)) < 300_000


@pytest.mark.parametrize("bind", [bind_sockets, bind_shared_sockets])
def test_all_addresses_of_a_host_have_the_same_port(monkeypatch, bind):
    found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (f"127.0.0.{i}", 0)) for i in (1, 2)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **named: found)
    bound = bind(Settings(port=0))
    names = [each.getsockname() for each in bound]
    for each in bound:
        each.close()
    assert names == [("127.0.0.1", names[0][1]), ("127.0.0.2", names[0][1])]


@pytest.mark.parametrize("bind", [bind_sockets, bind_shared_sockets])
def test_addresses_of_a_name_that_the_machine_lacks_are_left_out(bind, monkeypatch, caplog):
    def find(*addresses: str):
        return lambda host, port, **_: [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in addresses
        ]

    lacking = "192.0.2.1"  # For documentation only: no machine has it.
    settings = Settings(host="localhost", port=0)
    monkeypatch.setattr(socket, "getaddrinfo", find(lacking, "127.0.0.1"))
    (bound,) = bind(settings)
    assert bound.getsockname()[0] == "127.0.0.1"
    bound.close()
    assert caplog.messages == [f"localhost: {lacking} is no address of this machine"]
    monkeypatch.setattr(socket, "getaddrinfo", find(lacking))
    with pytest.raises(ValueError, match=r"WARPTOK_HOST: .*: Cannot assign requested address"):
        bind(settings)
