"""One timer for a connection that waits for its next request, instead of one for each request."""

from __future__ import annotations

import asyncio
import select

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

UNREAD_S = 0.1  # A loop that was busy for longer looks again.


def has_unread(transport: asyncio.Transport) -> bool:
    """Whether something has come on an open connection that the loop has not read yet.

    A loop that was busy runs the timers that are due meanwhile before it reads again.
    """
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(poll.poll(0))


class KeepAliveProtocol(HttpToolsProtocol):
    """uvicorn's protocol, whose timer goes on while requests that it knows nothing of are answered.

    uvicorn ends its timer when something comes and starts another one behind each answer. A call
    that it does not see leaves the timer alone; when that has run out, it starts again for what is
    left since the last answer.

    Attributes:
        waiting_since: the loop's time of the last answer's end.
    """

    waiting_since = 0.0

    def on_response_complete(self) -> None:
        """An answer has ended, and no timer goes on: uvicorn starts one."""
        super().on_response_complete()
        self.waiting_since = self.loop.time()

    def on_unseen_response_complete(self) -> None:
        """An answer has ended of a request during which the timer went on."""
        if self.timeout_keep_alive_task is None or self.pipeline or self.transport.is_closing():
            self.on_response_complete()
            return
        self.server_state.total_requests += 1
        self.waiting_since = self.loop.time()
        self.flow.resume_reading()

    def timeout_keep_alive_handler(self) -> None:
        """The timer has run out: the time may have begun anew, or not begun at all."""
        self.timeout_keep_alive_task = None
        if self.cycle is not None and not self.cycle.response_complete:
            return  # Its answer's end starts the timer.
        left = self.waiting_since + self.timeout_keep_alive - self.loop.time()
        if left <= 0 and not self.transport.is_closing() and has_unread(self.transport):
            left = UNREAD_S  # The next request, which ends the timer as soon as it is read.
        if left > 0:
            handler = self.timeout_keep_alive_handler
            self.timeout_keep_alive_task = self.loop.call_later(left, handler)
        else:
            super().timeout_keep_alive_handler()
