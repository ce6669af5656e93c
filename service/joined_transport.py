"""An answer's head and body in one write; uvicorn makes two, each a system call and a packet.

The head waits for the first write after it, which for a small answer comes at once; whatever ends
the answer or the connection lets it go, so that nothing is ever held back.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["JoinedProtocol", "JoinedTransport"]


class JoinedTransport:
    """A transport that keeps an answer's head until its body is written."""

    __slots__ = ("_head", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""

    def write(self, data: bytes) -> None:
        """Write, together with the head that waits; a head alone waits."""
        if self._head:
            self._transport.write(self._head + data)
            self._head = b""
        elif data.startswith(b"HTTP/1.1 ") and data.endswith(b"\r\n\r\n") and data[9:10] != b"1":
            self._head = data  # "100 Continue" must go at once: the client waits for it.
        else:
            self._transport.write(data)

    def flush(self) -> None:
        """Write a head that waits, for an answer without a body."""
        if self._head:
            self._transport.write(self._head)
            self._head = b""

    def close(self) -> None:
        """Close when everything is written."""
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class JoinedProtocol(HttpToolsProtocol):
    """uvicorn's protocol over a JoinedTransport."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin a connection."""
        super().connection_made(JoinedTransport(transport))  # type: ignore[arg-type]

    def on_response_complete(self) -> None:
        """End an answer."""
        self.transport.flush()  # type: ignore[attr-defined]
        super().on_response_complete()
