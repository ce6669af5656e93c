"""Answers of streams that are written while they are sent; what waits is bounded."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from service.core.errors import DeadlinePassed
from service.operations.stream_budget import StreamBudget

if TYPE_CHECKING:
    from starlette.types import Send

SEND_BYTES = 1 << 20  # Measured: 64 KiB pieces go out at a third of the speed, one piece at half.


class BoundedSender:
    """An answer of unknown length that is written while it is sent; what waits is bounded.

    Args:
        send: the ASGI callable.
        media_type: Content-Type of the answer.
        budget: what this and all other streams may hold.
        idle_s: the longest time in which the client may take nothing.

    The answer begins with the first byte, so that what goes wrong before it is still refused.
    """

    def __init__(self, send: Send, media_type: str, budget: StreamBudget, idle_s: float) -> None:
        self._send = send
        self._media_type = media_type.encode()
        self._idle_s = idle_s
        self._budget = budget
        self._changed = budget.changed
        self._waiting: deque[memoryview] = deque()
        self._num_bytes = 0
        self._is_closed = False

    async def put(self, *pieces: bytes | memoryview) -> None:
        """Hand bytes on; waits while too many have not been sent."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._budget.can_add(self._num_bytes))
            for data in pieces:
                for begin in range(0, len(data), SEND_BYTES):
                    self._waiting.append(memoryview(data)[begin : begin + SEND_BYTES])
                self._count(len(data))
            self._changed.notify_all()

    def _count(self, num_bytes: int) -> None:
        self._num_bytes += num_bytes
        self._budget.num_bytes += num_bytes

    async def drop(self) -> None:
        """Let go of what will not be sent any more."""
        async with self._changed:
            self._waiting.clear()
            self._count(-self._num_bytes)
            self._changed.notify_all()

    async def close(self) -> None:
        """Nothing more will come."""
        async with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    async def run(self) -> None:
        """Send until everything is sent."""
        has_begun = False
        while (piece := await self._next()) is not None:
            if not has_begun:
                headers = [(b"content-type", self._media_type)]
                await self._send({"type": "http.response.start", "status": 200, "headers": headers})
                has_begun = True
            try:
                async with asyncio.timeout(self._idle_s):
                    body = {"type": "http.response.body", "body": piece, "more_body": True}
                    await self._send(body)
            except TimeoutError as error:
                message = f"nothing was taken for {self._idle_s} s (stream_idle_timeout_s)"
                raise DeadlinePassed(message) from error
        await self._send({"type": "http.response.body", "body": b""})

    async def _next(self) -> memoryview | None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._waiting or self._is_closed)
            if not self._waiting:
                return None
            piece = self._waiting.popleft()
            self._count(-len(piece))
            self._changed.notify_all()
            return piece
