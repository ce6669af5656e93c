"""Binds the listening sockets of HTTP, and stops new connections before the sockets close."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import logging
import re
import select
import socket
import struct
from collections.abc import Collection, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from service.core.settings import PREFIX, Settings
from service.runtime.unix_sockets import prepare_unix_path, set_unix_mode

logger = logging.getLogger(__name__)
ACCEPT_S = 0.05  # Seconds to wait for unfinished handshakes before a port closes.
HANDSHAKE_S = 1.0  # Maximum for handshakes that take longer, as with distant clients.
MAX_ACCEPT_S = 0.5  # Maximum wait if new connections cannot be dropped.
POLL_S = 0.005
HANDSHAKE_POLL_S = 0.02  # Reading these tables takes milliseconds if there are many connections.
TCP_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
SYN_RECEIVED = b"03"  # The state of an unfinished handshake in these tables.
SO_ATTACH_FILTER = 26  # Not defined by the socket module.
TCP_NOTSENT_LOWAT = 25  # Not defined there either.
MAX_UNSENT_BYTES = 131_072  # Maximum unsent bytes of a connection in the kernel.
# A classic BPF program (code, jump if true, jump if false, operand): drop segments with SYN.
DROP_SYN = (
    (0x30, 0, 0, 13),  # Load the flags of the TCP header.
    (0x45, 0, 1, 0x02),  # Is SYN one of them?
    (0x06, 0, 0, 0),  # Drop.
    (0x06, 0, 0, 0xFFFFFFFF),  # Accept.
)


class _Address(NamedTuple):
    """An address to listen on, from getaddrinfo.

    Attributes:
        socket_address: the host, the port, and for IPv6 the flow and the scope.
    """

    family: int
    kind: int
    protocol: int
    socket_address: tuple[Any, ...]

    def with_port(self, port: int) -> _Address:
        """Return the same address with another port."""
        host, _, *more = self.socket_address
        return self._replace(socket_address=(host, port, *more))


def bind_sockets(settings: Settings) -> list[socket.socket]:
    """Bind a socket for each address of the setting `host`; the sockets do not listen yet.

    Raises:
        ValueError: an address does not belong to this machine, or is in use.
    """
    bound: list[socket.socket] = []
    port = settings.port
    for address in _find_addresses(settings):
        each = _bind(settings, address.with_port(port))
        port = each.getsockname()[1]
        bound.append(each)
    return bound


def bind_shared_sockets(settings: Settings) -> list[socket.socket]:
    """Bind a socket for each address of the setting `host`, whose port front ends can share.

    Raises:
        ValueError: an address does not belong to this machine, or is in use.
    """
    bound: list[socket.socket] = []
    port = settings.port
    for address in _find_addresses(settings):
        each = address.with_port(port)
        _bind(settings, each).close()  # Check that no other service listens on the port.
        bound.append(_bind(settings, each, socket.SO_REUSEPORT))
        port = bound[0].getsockname()[1]
    return bound


def bind_beside(bound: socket.socket, settings: Settings) -> socket.socket:
    """Bind another socket of a shared port, which does not listen yet."""
    address = _Address(bound.family, bound.type, bound.proto, bound.getsockname())
    return _bind(settings, address, socket.SO_REUSEPORT)


def bind_unix_socket(settings: Settings) -> socket.socket | None:
    """Bind the Unix socket of the setting `unix_socket`, which does not listen yet.

    Returns:
        The socket; None if the setting is not set.

    Raises:
        ValueError: the path cannot be used, or another program listens there.
    """
    if settings.unix_socket is None:
        return None
    prepare_unix_path(settings.unix_socket, "UNIX_SOCKET")
    bound = socket.socket(socket.AF_UNIX)
    try:
        bound.bind(str(settings.unix_socket))
    except OSError as error:
        bound.close()
        reason = error.strerror or error
        raise ValueError(f"{PREFIX}UNIX_SOCKET: {settings.unix_socket}: {reason}") from error
    set_unix_mode(settings.unix_socket, settings)
    return bound


def remove_unix_path(settings: Settings) -> None:
    """Remove the file of the setting `unix_socket`, so that no new client can connect."""
    if settings.unix_socket is not None:
        settings.unix_socket.unlink(missing_ok=True)


def _find_addresses(settings: Settings) -> list[_Address]:
    """Find the addresses of the setting `host`.

    A name may have addresses that this machine lacks, as localhost has ::1 without IPv6. These are
    left out unless there are no others.
    """
    if not settings.has_ports:
        return []
    try:
        found = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise ValueError(f"{PREFIX}HOST: {settings.host}: {error.strerror}") from error
    addresses = [
        _Address(family, kind, protocol, tuple(address))
        for family, kind, protocol, _, address in found
    ]
    own = [each for each in addresses if _is_own(each)]
    for each in addresses if own else ():
        if each not in own:
            host = each.socket_address[0]
            logger.warning("%s: %s is no address of this machine", settings.host, host)
    return own or addresses


def _is_own(address: _Address) -> bool:
    """Return whether an address belongs to this machine; its port may be in use."""
    try:
        with socket.socket(address.family, address.kind, address.protocol) as tried:
            tried.bind(address.with_port(0).socket_address)
    except OSError:
        return False
    return True


def _bind(settings: Settings, address: _Address, *options: int) -> socket.socket:
    bound = socket.socket(address.family, address.kind, address.protocol)
    for option in (socket.SO_REUSEADDR, *options):
        bound.setsockopt(socket.SOL_SOCKET, option, 1)
    # The kernel takes 2.8 MB for a client that reads nothing, and 0.5 ms for each 400 kB.
    bound.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, MAX_UNSENT_BYTES)
    if address.family == socket.AF_INET6:
        bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    try:
        bound.bind(address.socket_address)
    except OSError as error:
        bound.close()
        setting = "HOST" if error.errno == errno.EADDRNOTAVAIL else "PORT"
        place = f"{settings.host}:{settings.port}"
        raise ValueError(f"{PREFIX}{setting}: {place}: {error.strerror}") from error
    return bound


async def accept_waiting(sockets: Sequence[socket.socket], timeout_s: float) -> None:
    """Wait until the loop has accepted all waiting connections, so that a port can close.

    When a port closes, the kernel resets all connections that are not accepted yet, which loses
    their requests. Therefore the segments of new connections are dropped first. Their clients
    try again a second later, when the port is closed and refuses them.

    uvloop accepts one connection in each iteration of the loop, and iterations take long on a busy
    machine, so this function waits as long as connections are waiting. It also waits for handshakes
    that have begun: their clients may already send requests, which the kernel would reset as well.

    Args:
        sockets: the listening sockets.
        timeout_s: the maximum number of seconds to wait.
    """
    poll = select.poll()
    max_s = max(timeout_s, MAX_ACCEPT_S)
    for each in sockets:
        if not _drop_new_connections(each):
            max_s = MAX_ACCEPT_S
        poll.register(each, select.POLLIN)
    ports = {each.getsockname()[1] for each in sockets if each.family != socket.AF_UNIX}
    begin = monotonic()
    while monotonic() < begin + ACCEPT_S:
        await asyncio.sleep(POLL_S)
    # Handshakes first: one that ends between the checks is then a waiting connection.
    while monotonic() < begin + min(max_s, HANDSHAKE_S) and _has_handshakes(ports):
        await asyncio.sleep(HANDSHAKE_POLL_S)
    while poll.poll(0) and monotonic() < begin + max_s:
        await asyncio.sleep(POLL_S)


def _has_handshakes(ports: Collection[int]) -> bool:
    """Return whether a TCP handshake with a port is unfinished, according to Linux's tables."""
    local_ports = b"|".join(b"%04X" % port for port in ports)
    row = re.compile(rb":(?:%b) [0-9A-F]+:[0-9A-F]{4} %b " % (local_ports, SYN_RECEIVED))
    for table in TCP_TABLES:
        with contextlib.suppress(OSError):
            if ports and row.search(table.read_bytes()):
                return True
    return False


def _drop_new_connections(listening: socket.socket) -> bool:
    """Drop the segments that begin a connection; return whether the system supports this."""
    instructions = b"".join(struct.pack("HBBI", *each) for each in DROP_SYN)
    memory = ctypes.create_string_buffer(instructions)
    program = struct.pack("HP", len(DROP_SYN), ctypes.addressof(memory))
    try:
        listening.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
    except OSError:
        return False
    return True
