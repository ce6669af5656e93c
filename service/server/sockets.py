"""Binds the listening sockets of HTTP, and keeps new connections from them before they close."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
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

ACCEPT_S = 0.05  # The seconds for handshakes that have begun when a port is about to close.
HANDSHAKE_S = 1.0  # The most seconds for handshakes that take longer, of clients that are far away.
MAX_ACCEPT_S = 0.5  # The most seconds for waiting connections where new ones cannot be kept away.
POLL_S = 0.005
HANDSHAKE_POLL_S = 0.02  # Reading the table of a system with many connections takes milliseconds.
TCP_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
SYN_RECEIVED = b"03"  # The state in these tables of a handshake that the client has not ended.
SO_ATTACH_FILTER = 26  # The socket module has no name for it.
TCP_NOTSENT_LOWAT = 25  # As well.
MAX_UNSENT_BYTES = 131_072  # Of a connection, in the kernel; the transport keeps the rest.
# A classic BPF program (code, jump if true, jump if false, operand): drop segments with SYN.
DROP_SYN = (
    (0x30, 0, 0, 13),  # Load the flags of the TCP header.
    (0x45, 0, 1, 0x02),  # Is SYN one of them?
    (0x06, 0, 0, 0),  # Drop.
    (0x06, 0, 0, 0xFFFFFFFF),  # Accept.
)


class _Address(NamedTuple):
    """An address to listen on, as getaddrinfo gives it.

    Attributes:
        socket_address: the host, the port, and for IPv6 more.
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
    """Bind a socket for each address of the host; they do not listen yet.

    Raises:
        ValueError: the address does not belong to this machine, or is in use.
    """
    bound: list[socket.socket] = []
    port = settings.port
    for address in _find_addresses(settings):
        each = _bind(settings, address.with_port(port))
        port = each.getsockname()[1]
        bound.append(each)
    return bound


def bind_shared_sockets(settings: Settings, backlog: int, is_first: bool) -> list[socket.socket]:
    """Bind a listening socket for each address, which shares its port with other front ends.

    Raises:
        ValueError: the address does not belong to this machine, or is in use.
    """
    bound = []
    for address in _find_addresses(settings):
        if is_first:  # Check that no other service uses the port: it would be shared with it, too.
            _bind(settings, address).close()
        each = _bind(settings, address, socket.SO_REUSEPORT)
        each.listen(backlog)
        bound.append(each)
    return bound


def bind_unix_socket(settings: Settings) -> socket.socket | None:
    """Bind the setting `unix_socket`, which does not listen yet; return None if it is unset.

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
    """Remove the file of the setting `unix_socket`, so that no new connection is made."""
    if settings.unix_socket is not None:
        settings.unix_socket.unlink(missing_ok=True)


def _find_addresses(settings: Settings) -> list[_Address]:
    if not settings.has_ports:
        return []
    try:
        found = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise ValueError(f"{PREFIX}HOST: {settings.host}: {error.strerror}") from error
    return [
        _Address(family, kind, protocol, tuple(address))
        for family, kind, protocol, _, address in found
    ]


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

    When a port closes, the system resets the connections that nobody has accepted, and with them
    the requests on them. So new ones are kept away before. Their clients try again a second later,
    when the port is closed and refuses them.

    uvloop accepts one connection in each iteration of the loop, and on a busy machine iterations
    take long. So this waits for as long as connections do. It also waits for handshakes that have
    begun: their clients may already send requests, which the system would reset as well.

    Args:
        sockets: the listening sockets.
        timeout_s: the most seconds to wait.
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
    # The handshakes first: one that ends between the two checks waits to be accepted then.
    while monotonic() < begin + min(max_s, HANDSHAKE_S) and _has_handshakes(ports):
        await asyncio.sleep(HANDSHAKE_POLL_S)
    while poll.poll(0) and monotonic() < begin + max_s:
        await asyncio.sleep(POLL_S)


def _has_handshakes(ports: Collection[int]) -> bool:
    """Return whether a client has begun a handshake with a port and not ended it; Linux knows."""
    local_ports = b"|".join(b"%04X" % port for port in ports)
    row = re.compile(rb":(?:%b) [0-9A-F]+:[0-9A-F]{4} %b " % (local_ports, SYN_RECEIVED))
    for table in TCP_TABLES:
        with contextlib.suppress(OSError):
            if ports and row.search(table.read_bytes()):
                return True
    return False


def _drop_new_connections(listening: socket.socket) -> bool:
    """Drop the segments that would begin a new connection; return whether the system can."""
    instructions = b"".join(struct.pack("HBBI", *each) for each in DROP_SYN)
    memory = ctypes.create_string_buffer(instructions)
    program = struct.pack("HP", len(DROP_SYN), ctypes.addressof(memory))
    try:
        listening.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
    except OSError:
        return False
    return True
