"""Sends streamed answers while they are computed, with a limit on the unsent bytes."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from service.core.errors import DeadlinePassed
from service.operations.stream_budget import StreamBudget

if TYPE_CHECKING:
    from starlette.types import Send

SEND_BYTES = 1 << 20  # Pieces of 64 KiB are sent at a third of this speed, whole answers at half.


class BoundedSender:
    """Sends an answer of unknown length while it is computed, with a limit on its unsent bytes.

    Args:
        send: the ASGI callable.
        media_type: the Content-Type of the answer.
        budget: limits the unsent bytes of this stream and of all streams together.
        idle_s: the maximum number of seconds in which the client reads nothing.

    The head of the answer is sent with its first byte, so that an earlier error can still be a
    refusal.

    Attributes:
        headers: further headers of the answer; may change until the first `put`.
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
        self.headers: list[tuple[bytes, bytes]] = []

    async def put(self, *pieces: bytes | memoryview) -> None:
        """Append pieces to the answer; wait while too many bytes are unsent."""
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
        """Discard the unsent bytes."""
        async with self._changed:
            self._waiting.clear()
            self._count(-self._num_bytes)
            self._changed.notify_all()

    async def close(self) -> None:
        """Mark the answer as complete; no pieces are added afterwards."""
        async with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    async def run(self) -> None:
        """Send the answer until it is closed and all of it is sent.

        Raises:
            DeadlinePassed: the client reads nothing for `idle_s` seconds.
        """
        has_begun = False
        while (piece := await self._next()) is not None:
            if not has_begun:
                headers = [(b"content-type", self._media_type), *self.headers]
                await self._send({"type": "http.response.start", "status": 200, "headers": headers})
                has_begun = True
            try:
                async with asyncio.timeout(self._idle_s):
                    body = {"type": "http.response.body", "body": piece, "more_body": True}
                    await self._send(body)
            except TimeoutError as error:
                message = (
                    f"the client read nothing for {self._idle_s} s (setting stream_idle_timeout_s)"
                )
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
