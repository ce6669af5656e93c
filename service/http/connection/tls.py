"""Encrypts the connections of HTTP with TLS, by uvloop's TLS protocol.

    socket ── TlsConnection (uvloop's SSLProtocol) ── TlsTransport ── FastPathProtocol

This module extends uvloop's protocol so that a connection behaves as one without TLS:

- It counts towards the limits on connections from its start, not from the end of its handshake.
- Writing pauses when the socket accepts no more bytes. uvloop would accept all of a long answer,
  and pause only the next one.
- A close waits until all bytes are sent, but not until the client has closed as well.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any

from typing_extensions import override
from uvicorn.protocols.utils import get_remote_addr
from uvloop.loop import SSLProtocol  # type: ignore[attr-defined]  # The stubs lack it.

from service.http.connection.protocol import LINGER_S, FastPathProtocol
from service.security.certificates import Certificates

logger = logging.getLogger(__name__)
FLUSH_POLL_S = 0.02
NEVER_FULL = 1 << 30  # Disables uvloop's own pause; the buffer of the socket decides.


class TlsTransport:
    """The transport of a TLS connection; wraps uvloop's to close later and count unsent bytes.

    Args:
        encrypting: uvloop's transport, which encrypts.
        raw: the transport of the socket.
    """

    def __init__(self, encrypting: asyncio.Transport, raw: asyncio.Transport) -> None:
        self._encrypting = encrypting
        self._raw = raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._encrypting, name)

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that are not sent yet."""
        return self._encrypting.get_write_buffer_size() + self._raw.get_write_buffer_size()

    def close(self) -> None:
        """Close the connection when all bytes are sent."""
        self._encrypting.close()
        self._close_when_flushed()

    def _close_when_flushed(self) -> None:
        if self._encrypting.get_write_buffer_size():
            asyncio.get_running_loop().call_later(FLUSH_POLL_S, self._close_when_flushed)
        else:
            self._raw.close()  # It sends its buffer, then closes.


class _Handshake(asyncio.Protocol):
    """Receives uvloop's transport when the handshake has succeeded."""

    def __init__(self) -> None:
        self.connection: TlsConnection | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        assert self.connection is not None
        self.connection.begin_http(transport)


class TlsConnection(SSLProtocol):  # type: ignore[misc]
    """A connection with TLS.

    Args:
        http: HTTP's protocol, which receives the connection after the handshake.
        certificates: contain the current certificate.

    Attributes:
        address: the address of the client.
    """

    def __init__(self, http: FastPathProtocol, certificates: Certificates) -> None:
        settings = http.service.settings
        handshake = _Handshake()
        handshake.connection = self
        super().__init__(
            http.loop,
            handshake,
            certificates.current.context,
            None,
            server_side=True,
            ssl_handshake_timeout=settings.head_timeout_s,
            ssl_shutdown_timeout=settings.stream_idle_timeout_s,
        )
        self.address = ""
        self._http = http
        self._raw: asyncio.Transport | None = None
        self._has_begun = False
        self._is_leaving = False
        self._is_paused = False

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:
        self._raw = transport
        client = get_remote_addr(transport)
        self.address = client[0] if client else ""
        self._http.limits.add(self)
        self._http.connections.add(self)
        super().connection_made(transport)

    def begin_http(self, transport: asyncio.Transport) -> None:
        """Pass the connection to HTTP's protocol."""
        assert self._raw is not None
        self._has_begun = True
        self._leave_handshake()
        transport.set_write_buffer_limits(NEVER_FULL)
        transport.set_protocol(self._http)
        self._http.connection_made(TlsTransport(transport, self._raw))  # type: ignore[arg-type]
        if self._is_paused:
            self._http.pause_writing()
        if self._is_leaving:
            self._http.shutdown()

    def _leave_handshake(self) -> None:
        self._http.limits.remove(self)
        self._http.connections.discard(self)

    @override
    def connection_lost(self, error: Exception | None) -> None:
        if not self._has_begun:
            self._leave_handshake()
            if isinstance(error, ssl.SSLError):
                logger.debug("no TLS with %s: %s", self.address, error)
                self._http.service.closed_connections.note("bad_handshake", self.address)
            elif isinstance(error, ConnectionAbortedError):
                self._http.service.closed_connections.note("silent", self.address)
        super().connection_lost(error)

    @override
    def pause_writing(self) -> None:
        self._is_paused = True
        super().pause_writing()
        if self._has_begun:
            self._http.pause_writing()

    @override
    def resume_writing(self) -> None:
        self._is_paused = False
        super().resume_writing()  # This writes and may pause again.
        if self._has_begun and not self._is_paused:
            self._http.resume_writing()

    def abort(self) -> None:
        """Close the connection during its handshake, and discard unsent bytes."""
        if self._raw is not None:
            self._raw.abort()

    def shutdown(self) -> None:
        """Close the connection if its handshake takes longer than LINGER_S.

        uvicorn calls this after the port has closed.
        """
        if not self._is_leaving:
            self._is_leaving = True
            self._http.loop.call_later(LINGER_S, self._end_handshake)

    def _end_handshake(self) -> None:
        if not self._has_begun:
            self.abort()


def make_tls_protocol(
    make_http: Callable[..., FastPathProtocol], certificates: Certificates
) -> Callable[..., TlsConnection]:
    """Return the function that uvicorn calls to create the protocol of each connection with TLS.

    Args:
        make_http: creates HTTP's protocol of a connection.
        certificates: contain the current certificate.
    """

    def make(**arguments: Any) -> TlsConnection:
        return TlsConnection(make_http(**arguments), certificates)

    return make
