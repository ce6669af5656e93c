"""Limits the number of connections of a process, so that silent clients do not block others.

    new connection ─ within both limits? ─yes─────────────► answered
                       │no: too many in all
                     is another one silent? ─yes: close it─► answered
                       │no, or too many of its address
                     surplus: probes and metrics are answered, everything else is refused with 503

A connection is silent until the head of its first request has arrived. Only a few surplus
connections may be open; one more closes the oldest of them, silent ones first, so that other
clients receive their refusal. File descriptors are reserved for surplus connections
(runtime/file_limits).
"""

from __future__ import annotations

import logging
from typing import Protocol

from service.core.settings import Settings
from service.observability.closed_connections import ClosedConnections
from service.runtime.file_limits import RESERVED_CONNECTIONS, limit_http_connections
from service.security.addresses import TrustedProxies, group_address

logger = logging.getLogger(__name__)


class Closable(Protocol):
    """A connection that can be closed; `address` is the address of its client."""

    address: str

    def abort(self) -> None:
        """Close the connection, and discard unsent bytes."""


class ConnectionLimits:
    """The open connections of one process, and the limits on them.

    Args:
        settings: contain the limits.
        closed: counts and logs closed connections.

    Attributes:
        limit: the maximum number of ordinary connections; further ones are surplus connections.
        proxies: the proxies of the setting `trusted_proxies`.
    """

    def __init__(self, settings: Settings, closed: ClosedConnections) -> None:
        num_processes = max(1, settings.frontends)
        self.limit = limit_http_connections(settings)
        if self.limit * num_processes < settings.max_connections:
            logger.warning("files for %d HTTP connections only (ulimit -n)", self.limit)
        self._limit_per_address = -(-settings.max_connections_per_address // num_processes)
        self.proxies = TrustedProxies(settings)
        self._closed = closed
        self._ordinary: set[Closable] = set()
        self._silent: dict[Closable, None] = {}  # In order of arrival; a subset.
        self._surplus: dict[Closable, None] = {}  # In order of arrival.
        self._silent_surplus: dict[Closable, None] = {}  # In order; a subset.
        self._by_group: dict[str, int] = {}

    @property
    def num_open(self) -> int:
        """The number of open connections."""
        return len(self._ordinary) + len(self._surplus)

    def add(self, connection: Closable) -> str:
        """Add a new connection; close another one if there are too many.

        Returns:
            "" for an ordinary connection; for a surplus one the name of the exceeded setting.
        """
        exceeded = self._find_exceeded(connection.address)
        if not exceeded:
            self._ordinary.add(connection)
            self._silent[connection] = None
            return ""
        if len(self._surplus) >= RESERVED_CONNECTIONS:
            self._close_oldest(self._silent_surplus or self._surplus, "no_room")
        self._surplus[connection] = None
        self._silent_surplus[connection] = None
        return exceeded

    def _find_exceeded(self, address: str) -> str:
        """Count a connection for its address; return the exceeded setting, or ""."""
        if address and address not in self.proxies:
            group = group_address(address)
            number = self._by_group[group] = self._by_group.get(group, 0) + 1
            if number > self._limit_per_address:
                return "max_connections_per_address"
        if len(self._ordinary) < self.limit:
            return ""
        return "" if self._close_oldest(self._silent, "make_room") else "max_connections"

    def _close_oldest(self, connections: dict[Closable, None], reason: str) -> bool:
        """Close the oldest of the given connections; return False if there are none."""
        oldest = next(iter(connections), None)
        if oldest is None:
            return False
        self._forget(oldest)
        self._closed.note(reason, oldest.address)
        oldest.abort()
        return True

    def note_head(self, connection: Closable) -> None:
        """Record that a connection has received the head of a request."""
        self._silent.pop(connection, None)
        self._silent_surplus.pop(connection, None)

    def remove(self, connection: Closable) -> None:
        """Remove a connection that has ended."""
        self._forget(connection)
        if not connection.address or connection.address in self.proxies:
            return
        group = group_address(connection.address)
        self._by_group[group] -= 1
        if not self._by_group[group]:
            del self._by_group[group]

    def _forget(self, connection: Closable) -> None:
        self._ordinary.discard(connection)
        self._silent.pop(connection, None)
        self._surplus.pop(connection, None)
        self._silent_surplus.pop(connection, None)
