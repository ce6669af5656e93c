"""Reads request bodies; decompresses them and counts their bytes while they arrive.

The limit applies to the decompressed bytes; at most one piece beyond it is decompressed. This
module depends on no vocabulary and no route.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from service.batching.work import ClientGone
from service.core.errors import TooLarge, make_body_timeout
from service.http.body.decompression import check_whole, decompress, make_decompressor
from service.http.body.pace import PACE_KEY
from service.http.body.takeover import BodyReceiver

if TYPE_CHECKING:
    from starlette.types import Receive, Scope

FIRST_BYTES = 1 << 16  # The first array for a body of unknown length; doubled when full.


async def body_pieces(
    receive: Receive,
    encoding: str | None,
    max_bytes: int | None,
    setting: str = "max_body_bytes",
    idle_s: float | None = None,
) -> AsyncIterator[bytes]:
    """Read the body of a request in decompressed pieces that are not empty.

    Args:
        receive: the ASGI callable.
        encoding: the request's Content-Encoding.
        max_bytes: the maximum number of decompressed bytes; None: no limit.
        setting: the name of the setting for this limit, for the refusal.
        idle_s: the maximum number of seconds to wait for a piece; None: no limit.

    Raises:
        UnsupportedFormat: the encoding is not supported.
        BadBody: the body is not valid in its encoding, or ends too early.
        TooLarge: the body has more than `max_bytes` bytes.
        BodyTimeout: nothing arrived for `idle_s` seconds.
        ClientGone: the client disconnected before the end of the body.
    """
    decompressor = make_decompressor(encoding)
    size = 0
    has_more = is_empty = True
    while has_more:
        try:
            async with asyncio.timeout(idle_s):
                message = await receive()
        except TimeoutError as error:
            raise make_body_timeout(idle_s) from error
        if message["type"] == "http.disconnect":
            raise ClientGone
        data, has_more = message.get("body", b""), message.get("more_body", False)
        is_empty = is_empty and not data
        pieces: Iterable[bytes] = [data] if data else []
        if decompressor:
            pieces = decompress(decompressor, data)
        for piece in pieces:
            size += len(piece)
            if max_bytes is not None and size > max_bytes:
                raise TooLarge(f"the body has more than {max_bytes} bytes (setting {setting})")
            yield piece
    if decompressor and not is_empty:
        check_whole(decompressor)


class RequestBody:
    """Reads a body into the caller's memory, directly from the socket where possible.

    Args:
        receive, encoding, max_bytes, idle_s: as for `body_pieces`.
        scope: the ASGI scope of the request; None: read only through `receive`.
        setting: the name of the setting for `max_bytes`, for the refusal.
    """

    def __init__(
        self,
        receive: Receive,
        encoding: str | None,
        max_bytes: int | None,
        scope: Scope | None = None,
        idle_s: float | None = None,
        setting: str = "max_body_bytes",
    ) -> None:
        self._scope = scope
        self._pieces = body_pieces(receive, encoding, max_bytes, setting, idle_s)
        self._can_take_over = scope is not None and make_decompressor(encoding) is None
        self._rest = memoryview(b"")
        self._num_received = 0
        self._receiver: BodyReceiver | None = None

    async def read_into(self, buffer: NDArray[np.uint8], min_bytes: int | None = None) -> int:
        """Read at least `min_bytes`, fewer at the end of the body; return the number of bytes.

        Args:
            buffer: the memory to write to; its size is the maximum number of bytes.
            min_bytes: the minimum number of bytes; None: fill the buffer.

        Raises:
            ServiceError, ClientGone: as `body_pieces`.
        """
        size = 0
        min_bytes = len(buffer) if min_bytes is None else min_bytes
        view = buffer.data
        while size < min_bytes and await self.has_more():
            if not self._rest:
                size += await self._receive_into(view[size:], min_bytes - size)
                continue
            part = self._rest[: len(buffer) - size]
            buffer[size : size + len(part)] = np.frombuffer(part, np.uint8)
            self._rest = self._rest[len(part) :]
            size += len(part)
        return size

    async def has_more(self) -> bool:
        """Return whether the body has more bytes; wait until that is known."""
        if not self._rest and self._receiver is None:
            piece = await anext(self._pieces, b"")
            self._rest = memoryview(piece)
            self._num_received += len(piece)
            if self._can_take_over and piece:
                assert self._scope is not None
                self._receiver = BodyReceiver.take_over(self._scope, self._num_received)
        return bool(self._rest or (self._receiver is not None and self._receiver.num_remaining))

    async def _receive_into(self, view: memoryview, min_bytes: int) -> int:
        assert self._receiver is not None and self._scope is not None
        pace = self._scope.get(PACE_KEY)
        return await self._receiver.read_into(view, min_bytes, pace)


async def collect(
    body: RequestBody, expected_bytes: int, memory: Callable[[int], NDArray[np.uint8]] | None = None
) -> NDArray[np.uint8]:
    """Read a whole body into one array uint8[N].

    Args:
        body: the body, not read yet.
        expected_bytes: N as announced by the request; 0 or a wrong number only costs copies.
        memory: a function that allocates an array of a number of bytes; None: use NumPy.
    """
    allocate = memory or (lambda num_bytes: np.empty(num_bytes, np.uint8))
    array, size = allocate(expected_bytes or FIRST_BYTES), 0
    while await body.has_more():
        if size == len(array):
            larger = allocate(2 * size)
            larger[:size] = array
            array = larger
        size += await body.read_into(array[size:])
    return array[:size]
