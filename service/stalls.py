"""Clients that take nothing of what was written to them are cut off, whatever they asked for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from service.state import Service

__all__ = ["StallProtocol"]


class StallProtocol(HttpToolsProtocol):
    """uvicorn's protocol with a limit on how long an answer may wait for its client."""

    service: Service
    stalled: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        """What was written is not taken."""
        super().pause_writing()
        idle_s = self.service.settings.stream_idle_timeout_s
        self.stalled = self.loop.call_later(idle_s, self.transport.abort)

    def resume_writing(self) -> None:
        """It is being taken again."""
        super().resume_writing()
        self._no_stall()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing will be taken any more."""
        self._no_stall()
        super().connection_lost(exc)

    def _no_stall(self) -> None:
        if self.stalled is not None:
            self.stalled.cancel()
            self.stalled = None
