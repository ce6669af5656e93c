"""Counts and logs the connections that the service closes before the client does."""

from __future__ import annotations

import asyncio
import logging

from service.observability.metrics import Metrics
from service.security.addresses import format_address

logger = logging.getLogger(__name__)
PERIOD_S = 10.0  # Each reason is logged at most once in so many seconds.
REASONS = {
    "bad_handshake": "spoke no TLS, or refused a certificate or had one that is refused",
    "bad_head": "sent something that is not HTTP/1.1, or too long a head",
    "silent": "sent no request in time (head_timeout_s)",
    "slow_head": "sent the head of a request too slowly (head_timeout_s)",
    "slow_body": "sent the body of a request too slowly (min_body_bytes_per_s)",
    "slow_read": "did not read an answer in time (stream_idle_timeout_s)",
    "make_room": "had sent no request when others needed room (max_connections)",
    "no_room": "came when there was no room (max_connections)",
}


class ClosedConnections:
    """The connections that one service has closed, counted by the reasons in REASONS.

    Args:
        metrics: counts the connections.
        client_addresses: the setting `client_addresses`.
    """

    def __init__(self, metrics: Metrics, client_addresses: str) -> None:
        self._metrics = metrics
        self._client_addresses = client_addresses
        self._unlogged: dict[str, int] = {}
        self._address = ""

    def note(self, reason: str, address: str) -> None:
        """Count a connection; log it now, or together with later ones closed for the same reason.

        Args:
            reason: a key of REASONS.
            address: the address of the client.
        """
        self._metrics.count_closed_connection(reason)
        self._address = address
        if reason in self._unlogged:
            self._unlogged[reason] += 1
            return
        self._unlogged[reason] = 1
        self._log(reason)

    def _log(self, reason: str) -> None:
        """Log the connections closed since the last line; stop after a period without any."""
        number = self._unlogged.pop(reason)
        if not number:
            return
        logger.warning(
            "%d connections closed, the last of %s: %s",
            number,
            format_address(self._address, self._client_addresses) or "a client",
            REASONS[reason],
        )
        self._unlogged[reason] = 0
        asyncio.get_running_loop().call_later(PERIOD_S, self._log, reason)
