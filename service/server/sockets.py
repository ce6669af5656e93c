"""Binds the listening sockets of HTTP."""

from __future__ import annotations

import errno
import socket
from typing import Any, NamedTuple

from service.core.settings import PREFIX, Settings


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
        ValueError: the address is none of this machine's, or is in use.
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
        ValueError: the address is none of this machine's, or is in use.
    """
    bound = []
    for address in _find_addresses(settings):
        if is_first:  # Check that no other service uses the port: it would be shared with it, too.
            _bind(settings, address).close()
        each = _bind(settings, address, socket.SO_REUSEPORT)
        each.listen(backlog)
        bound.append(each)
    return bound


def _find_addresses(settings: Settings) -> list[_Address]:
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
