"""Clients that take nothing of what was written to them, or do not go on with what they began."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from service.keep_alive import UNREAD_S, KeepAliveProtocol, has_unread

if TYPE_CHECKING:
    from service.state import Service

__all__ = ["StallProtocol"]


class StallProtocol(KeepAliveProtocol):
    """uvicorn's protocol with limits on how long it waits for its client.

    Bodies that a route reads have their own (`hot_routes`); here are those parts of a request for
    which no route waits yet.

    Attributes:
        in_head: a request's head has begun and not ended.
    """

    service: Service
    stalled: asyncio.TimerHandle | None = None
    idle: asyncio.TimerHandle | None = None
    in_head = False

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
        super().data_received(data)
        if self.awaits_more() and not self.transport.is_closing():
            self.idle = self._after_idle(self._nothing_came)

    def on_message_begin(self) -> None:
        """A request begins."""
        self.in_head = True
        super().on_message_begin()

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
