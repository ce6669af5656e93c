"""Timers of a connection whose client takes nothing, or does not go on with what it began."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable

UNREAD_S = 0.1  # A loop that was busy for longer looks again.


def has_unread(transport: asyncio.Transport) -> bool:
    """Whether something has come on an open connection that the loop has not read yet.

    A loop that was busy runs the timers that are due meanwhile before it reads again.
    """
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(poll.poll(0))


class IdleTimer:
    """Calls a function when nothing has happened for some time.

    Args:
        loop: the connection's.
        idle_s: the time.
        call: the function.
    """

    __slots__ = ("_call", "_handle", "_idle_s", "_loop")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, idle_s: float, call: Callable[[], object]
    ) -> None:
        self._loop = loop
        self._idle_s = idle_s
        self._call = call
        self._handle: asyncio.TimerHandle | None = None

    def start(self, seconds: float | None = None) -> None:
        """Begin to wait, for the timer's own time unless another one is given."""
        self.cancel()
        self._handle = self._loop.call_later(
            self._idle_s if seconds is None else seconds, self._call
        )

    def cancel(self) -> None:
        """Wait no more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
