"""Clients that take nothing of what was written to them, or do not go on with what they began.

Or go on with a head for ever, which the parser and uvicorn keep whole, whatever its length.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from service.http.connection.keep_alive import UNREAD_S, KeepAliveProtocol, has_unread

if TYPE_CHECKING:
    from service.operations.context import Service

MAX_HEAD_BYTES = 1 << 20  # What comes at once is a quarter of it, and may hold more than a head.


class _Trailers(list[tuple[bytes, bytes]]):
    """Where fields behind a body go: they are no part of the head, and nobody reads them."""

    def append(self, field: tuple[bytes, bytes]) -> None:
        """Forget a field."""


class StallProtocol(KeepAliveProtocol):
    """uvicorn's protocol with limits on how long it waits for its client.

    Bodies that a route reads have their own (`asgi_fast_path`); here are those parts of a request
    for which no route waits yet.

    Attributes:
        in_head: a request's head has begun and not ended.
        head_bytes: of it, and perhaps of what is behind it, but for what its begin came with.
    """

    service: Service
    stalled: asyncio.TimerHandle | None = None
    idle: asyncio.TimerHandle | None = None
    in_head = False
    head_bytes = 0

    def pause_writing(self) -> None:
        """What was written is not taken."""
        super().pause_writing()
        self.stalled = self._after_idle(self.transport.abort)

    def resume_writing(self) -> None:
        """It is being taken again."""
        super().resume_writing()
        self._no_stall()

    def data_received(self, data: bytes) -> None:
        """Something has come; the rest must not let wait for too long."""
        self._no_idle()
        if self.in_head:
            self.head_bytes += len(data)
            if self.head_bytes > MAX_HEAD_BYTES:
                self.refuse_head()
                return
        super().data_received(data)
        if self.awaits_more() and not self.transport.is_closing():
            self.idle = self._after_idle(self._nothing_came)

    def on_message_begin(self) -> None:
        """A request begins."""
        self.in_head, self.head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """A head has ended."""
        super().on_headers_complete()
        self.headers = _Trailers()

    def refuse_head(self) -> None:
        """A head does not end; where an answer is on its way, only the connection does."""
        message = f"The head of the request has more than {MAX_HEAD_BYTES} bytes."
        self.logger.warning(message)
        if self.cycle is None or self.cycle.response_complete:
            self.send_400_response(message)
        else:
            self.transport.close()

    def awaits_more(self) -> bool:
        """Whether a request has begun of which no route can wait for the rest."""
        return self.in_head

    def give_up(self) -> None:
        """Nothing came of it for too long."""
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing will come or be taken any more."""
        self._no_stall()
        self._no_idle()
        super().connection_lost(exc)

    def _after_idle(self, call: Callable[[], object]) -> asyncio.TimerHandle:
        return self.loop.call_later(self.service.settings.stream_idle_timeout_s, call)

    def _nothing_came(self) -> None:
        self.idle = None
        if not self.transport.is_closing() and has_unread(self.transport):
            self.idle = self.loop.call_later(UNREAD_S, self._nothing_came)
        elif self.in_head and self.cycle is not None and not self.cycle.response_complete:
            self.idle = self._after_idle(self._nothing_came)  # The one before is being answered.
        else:
            self.give_up()

    def _no_stall(self) -> None:
        if self.stalled is not None:
            self.stalled.cancel()
            self.stalled = None

    def _no_idle(self) -> None:
        if self.idle is not None:
            self.idle.cancel()
            self.idle = None
