"""The sockets that HTTP is listened on: bound before anything large is loaded."""

from __future__ import annotations

import errno
import socket

from service.core.settings import PREFIX, Settings


def listeners(settings: Settings) -> list[socket.socket]:
    """A socket for each address of the host, bound and not yet listening.

    Raises:
        ValueError: the address is none of this machine's, or somebody else listens there.
    """
    made: list[socket.socket] = []
    port = settings.port
    for family, kind, protocol, _, address in _addresses(settings):
        each = _bound(settings, family, kind, protocol, (address[0], port, *address[2:]))
        port = each.getsockname()[1]
        made.append(each)
    return made


def shared_listeners(settings: Settings, backlog: int, is_first: bool) -> list[socket.socket]:
    """Sockets that share the port with those of the other front ends, one for each address.

    Raises:
        ValueError: as above.
    """
    made = []
    for family, kind, protocol, _, address in _addresses(settings):
        if is_first:  # Sockets that share a port would share it with another service, too.
            _bound(settings, family, kind, protocol, address).close()
        each = _bound(settings, family, kind, protocol, address, socket.SO_REUSEPORT)
        each.listen(backlog)
        made.append(each)
    return made


def _addresses(settings: Settings) -> list[tuple[int, int, int, str, tuple[str | int, ...]]]:
    try:
        found = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise ValueError(f"{PREFIX}HOST: {settings.host}: {error.strerror}") from error
    return [(*row[:4], tuple(row[4])) for row in found]


def _bound(
    settings: Settings,
    family: int,
    kind: int,
    protocol: int,
    address: tuple[str | int, ...],
    *options: int,
) -> socket.socket:
    made = socket.socket(family, kind, protocol)
    for option in (socket.SO_REUSEADDR, *options):
        made.setsockopt(socket.SOL_SOCKET, option, 1)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    try:
        made.bind(address)
    except OSError as error:
        made.close()
        setting = "HOST" if error.errno == errno.EADDRNOTAVAIL else "PORT"
        place = f"{settings.host}:{settings.port}"
        raise ValueError(f"{PREFIX}{setting}: {place}: {error.strerror}") from error
    return made
