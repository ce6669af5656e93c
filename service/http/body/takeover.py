"""Receives the rest of a body from the socket directly into the caller's memory.

uvicorn copies each byte four times before a route receives it: from the socket, in the parser, into
the request's buffer, and out of it. A body of known length needs no parser:

    parser ─► head, first piece ─► route ─► take_over ─► socket ─► the caller's memory
                                                └ after the last byte uvicorn owns the connection
                                                  again, with a new parser for the next request

If a route stops reading before the end of the body, for example because it refuses the request, the
rest of the body is received and discarded after the answer, as in uvicorn. If the connection were
closed at once, the client's kernel could drop the answer before the client has read it. If
discarding takes longer than DISCARD_S, the connection is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from service.batching.work import ClientGone
from service.http.body.pace import BodyPace

if TYPE_CHECKING:
    from starlette.types import Scope

PROTOCOL = "warptok.protocol"  # A scope extension: a weak reference to uvicorn's protocol.
MIN_BYTES = 1 << 16  # For fewer remaining bytes, a takeover is not faster.
DISCARDED = memoryview(bytearray(1 << 16))  # Receives discarded bytes of all connections.
DISCARD_S = 60.0  # The maximum number of seconds to discard a body.
TICK_BYTES = 1 << 20  # Received at once, in some 0.3 ms; without a limit it took up to 17 ms.


def find_protocol(scope: Scope) -> Any:
    """Return uvicorn's protocol object of a request's connection.

    The result is None if the connection has ended, or if a server other than uvicorn owns it.
    """
    reference = scope.get("extensions", {}).get(PROTOCOL)
    return None if reference is None else reference()


class BodyReceiver(asyncio.BufferedProtocol):
    """The protocol of a connection from a takeover to the end of the body.

    Args:
        http: uvicorn's protocol object of the connection.
        cycle: uvicorn's object of the request.
        num_remaining: the number of bytes of the body that are not received yet, at least one.
    """

    def __init__(self, http: Any, cycle: Any, num_remaining: int) -> None:
        self._http = http
        self._cycle = cycle
        self.num_remaining = num_remaining
        self._view = memoryview(b"")
        self._size = 0
        self._min_bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._discard_end: float | None = None  # None before anything is discarded.

    @classmethod
    def take_over(cls, scope: Scope, num_received: int) -> BodyReceiver | None:
        """Take over the connection of a request.

        Args:
            scope: the ASGI scope of the request.
            num_received: the number of bytes of the body that were read; uvicorn has received no
                further bytes.

        Returns:
            The receiver; None if fewer than MIN_BYTES remain, if the length is unknown, or if the
            connections of this server cannot be taken over.
        """
        http = find_protocol(scope)
        headers = dict(scope["headers"])
        if http is None or b"transfer-encoding" in headers:
            return None
        cycle, length = http.cycle, headers.get(b"content-length", b"")
        is_ours = cycle is not None and cycle.scope["headers"] is scope["headers"]
        if not is_ours or not cycle.more_body or cycle.disconnected or cycle.body:
            return None
        num_remaining = int(length) - num_received if length.isdigit() else 0
        if num_remaining < MIN_BYTES:
            return None
        receiver = cls(http, cycle, num_remaining)
        # A transport reads its protocol's type only when it begins to read.
        http.flow.pause_reading()
        http.transport.set_protocol(receiver)
        return receiver

    async def read_into(self, view: memoryview, min_bytes: int, pace: BodyPace | None) -> int:
        """Receive at least `min_bytes`, or the rest of the body; return the number of bytes.

        Args:
            view: the memory to write to; its size is the maximum number of bytes.
            min_bytes: the minimum number of bytes, at most the size of the view.
            pace: limits how slowly the bytes may arrive; None: no limit.

        Raises:
            BodyTimeout: the bytes arrive too slowly.
            ClientGone: the client disconnected before the end of the body.
        """
        self._view = view[: self.num_remaining]
        self._size = 0
        self._min_bytes = min(min_bytes, self.num_remaining)
        loop = asyncio.get_running_loop()
        try:
            while self._size < self._min_bytes:
                if self._cycle.disconnected:
                    raise ClientGone
                size_before = self._size
                begin = loop.time()
                self._waiter = loop.create_future()
                self._http.flow.resume_reading()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if pace is None else pace.wait_s):
                        await self._waiter
                if pace is not None:
                    pace.add(self._size - size_before, loop.time() - begin)
                    if pace.is_too_slow and self._size < self._min_bytes:
                        self._cycle.keep_alive = False
                        raise pace.make_refusal()
        finally:
            if not self._cycle.response_complete:  # Else read on, to discard the rest.
                self._http.flow.pause_reading()
            self._view = memoryview(b"")
            self.num_remaining -= self._size
            if not self.num_remaining:
                self._give_back()
        return self._size

    def _give_back(self) -> None:
        """Return the connection to uvicorn's protocol, in the state after a complete body."""
        http = self._http
        http.parser = type(http.parser)(http)
        http.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._cycle.more_body = False
        http.between_messages = True
        http.transport.set_protocol(http)
        http.flow.resume_reading()

    @override
    def get_buffer(self, sizehint: int) -> memoryview:
        if not self._view:  # uvicorn reads on, as the answer is complete.
            return DISCARDED[: self.num_remaining]
        return self._view[self._size : self._size + TICK_BYTES]

    @override
    def buffer_updated(self, num_bytes: int) -> None:
        if not self._view:
            self._discard(num_bytes)
            return
        self._size += num_bytes
        if self._size >= self._min_bytes:
            self._http.flow.pause_reading()
            self._wake()
        elif num_bytes == TICK_BYTES:  # Let the loop read other connections first.
            self._http.flow.pause_reading()
            asyncio.get_running_loop().call_soon(self._continue)

    def _discard(self, num_bytes: int) -> None:
        """Discard bytes of the body; after the last one return the connection to uvicorn."""
        loop = asyncio.get_running_loop()
        self.num_remaining -= num_bytes
        if not self.num_remaining:
            self._http.flow.pause_reading()
            loop.call_soon(self._give_back)
        elif self._discard_end is None:
            self._discard_end = loop.time() + DISCARD_S
        elif loop.time() > self._discard_end:
            self._http.transport.close()

    def _continue(self) -> None:
        """Resume receiving if `read_into` is still waiting."""
        if self._waiter is not None and not self._waiter.done():
            self._http.flow.resume_reading()

    def _wake(self) -> None:
        """Wake `read_into` if it is waiting."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

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
