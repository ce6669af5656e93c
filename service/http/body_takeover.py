"""The rest of a body, received straight into the memory of whoever reads it.

On uvicorn's way a byte is copied four times before a route sees it: out of the socket, by the
parser, into the request's buffer, out of it. A body whose length is known needs no parser:

    parser ─► head, first piece ─► route ─► take_over ─► socket ─► the reader's memory
                                                └ after the last byte the connection is uvicorn's
                                                  again, with a new parser for the next request

A reader that gives up before the body's end leaves the connection where it is: it is closed after
the answer, because nobody knows any more where the next request begins.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from service.batching.work import ClientGone

if TYPE_CHECKING:
    from starlette.types import Scope

PROTOCOL = "warptok.protocol"  # Among the extensions of a request's scope.
WORTH_BYTES = 1 << 16  # For less the change is not worth its while.
TICK_BYTES = 1 << 18  # Received before others have their turn; all that had come took up to 17 ms.


class BodyReceiver(asyncio.BufferedProtocol):
    """A connection's protocol until a body has ended.

    Args:
        http: uvicorn's protocol, whose connection it is.
        cycle: the request, as uvicorn knows it.
        num_left: bytes that the body still has, at least one.
    """

    def __init__(self, http: Any, cycle: Any, num_left: int) -> None:
        self._http = http
        self._cycle = cycle
        self.num_left = num_left
        self._view = memoryview(b"")
        self._size = 0
        self._wanted = 0
        self._woken: asyncio.Future[None] | None = None

    @classmethod
    def take_over(cls, scope: Scope, num_received: int) -> BodyReceiver | None:
        """The connection of a request of which so many bytes of the body were read, all there were.

        None where the body ends within a few bytes, has no known length, or the server is none
        whose connections can be taken over.
        """
        http = scope.get("extensions", {}).get(PROTOCOL)
        headers = dict(scope["headers"])
        if http is None or b"transfer-encoding" in headers:
            return None
        cycle, length = http.cycle, headers.get(b"content-length", b"")
        is_ours = cycle is not None and cycle.scope["headers"] is scope["headers"]
        if not is_ours or not cycle.more_body or cycle.disconnected or cycle.body:
            return None
        num_left = int(length) - num_received if length.isdigit() else 0
        if num_left < WORTH_BYTES:
            return None
        receiver = cls(http, cycle, num_left)
        http.flow.pause_reading()  # A transport asks only at the begin what its protocol is.
        http.transport.set_protocol(receiver)
        return receiver

    async def read_into(self, view: memoryview, wanted: int, idle_s: float | None = None) -> int:
        """Receive until so many bytes or all of the body have come; maybe more of them.

        Args:
            view: where they go; more never come.
            wanted: at most as many as there is room for.
            idle_s: the longest time without any.

        Raises:
            TimeoutError: nothing came for that long.
            ClientGone: the connection ended before the body did.
        """
        self._view, self._size = view[: self.num_left], 0
        self._wanted = min(wanted, self.num_left)
        loop = asyncio.get_running_loop()
        try:
            while self._size < self._wanted:
                if self._cycle.disconnected:
                    raise ClientGone
                before, self._woken = self._size, loop.create_future()
                self._http.flow.resume_reading()
                try:
                    async with asyncio.timeout(idle_s):
                        await self._woken
                except TimeoutError:
                    if self._size == before:
                        raise
        except BaseException:
            self._cycle.keep_alive = False
            raise
        finally:
            self._http.flow.pause_reading()
            self._view = memoryview(b"")
        self.num_left -= self._size
        if not self.num_left:
            self._give_back()
        return self._size

    def _give_back(self) -> None:
        """The connection is uvicorn's again, as it is after a body."""
        http = self._http
        http.parser = type(http.parser)(http)
        http.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._cycle.more_body = False
        http.transport.set_protocol(http)
        http.flow.resume_reading()

    @override
    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._size : self._size + TICK_BYTES]

    @override
    def buffer_updated(self, num_bytes: int) -> None:
        self._size += num_bytes
        if self._size >= self._wanted:
            self._http.flow.pause_reading()
            self._wake()
        elif num_bytes == TICK_BYTES:  # There is more, which the loop would read at once.
            self._http.flow.pause_reading()
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._http.flow.resume_reading()

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    @override
    def eof_received(self) -> None:
        pass

    @override
    def connection_lost(self, error: Exception | None) -> None:
        self._http.connection_lost(error)
        self._wake()

    @override
    def pause_writing(self) -> None:
        self._http.pause_writing()

    @override
    def resume_writing(self) -> None:
        self._http.resume_writing()
