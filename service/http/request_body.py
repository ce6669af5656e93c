"""Request bodies as bytes: decompressed and counted while they arrive, collected without joining.

Knows no vocabulary and no route. The limit is on what comes out of the decompressor, and no more
than a piece beyond it is ever made.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from service.batching.work import ClientGone
from service.core.errors import TooLarge, make_body_timeout
from service.http.body_takeover import BodyReceiver
from service.http.decompression import check_whole, decompress, make_decompressor

if TYPE_CHECKING:
    from starlette.types import Receive, Scope

FIRST_BYTES = 1 << 16  # Room for a body of unknown length at first; doubled when full.


async def body_pieces(
    receive: Receive,
    encoding: str | None,
    max_bytes: int | None,
    setting: str = "max_body_bytes",
    idle_s: float | None = None,
) -> AsyncIterator[bytes]:
    """The body of a request piece by piece, decompressed; none is empty.

    Args:
        receive: the ASGI callable.
        encoding: the request's Content-Encoding.
        max_bytes: the limit on the decompressed bytes; None: there is none.
        setting: the limit's name, for the refusal.
        idle_s: the longest wait for a piece; None: any.

    Raises:
        UnsupportedFormat: an encoding that is not read.
        BadBody: the body is not what its encoding says, or ends too early.
        TooLarge: it has more bytes than `max_bytes`.
        BodyTimeout: nothing came for `idle_s`.
        ClientGone: the connection ended before the body did.
    """
    decompressor = make_decompressor(encoding)
    size, more, is_empty = 0, True, True
    while more:
        try:
            async with asyncio.timeout(idle_s):
                message = await receive()
        except TimeoutError as error:
            raise make_body_timeout(idle_s) from error
        if message["type"] == "http.disconnect":
            raise ClientGone
        data, more = message.get("body", b""), message.get("more_body", False)
        is_empty = is_empty and not data
        pieces = decompress(decompressor, data) if decompressor else ((data,) if data else ())
        for piece in pieces:
            size += len(piece)
            if max_bytes is not None and size > max_bytes:
                raise TooLarge(f"the body has more than {max_bytes} bytes ({setting})")
            yield piece
    if decompressor and not is_empty:
        check_whole(decompressor)


class RequestBody:
    """A body that is read into the reader's memory; what can be is received there.

    Args:
        receive, encoding, max_bytes, idle_s: as for `body_pieces`.
        scope: the request's; None: nothing is received but through `receive`.
        setting: the name of the limit `max_bytes`, for the refusal.
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
        self._idle_s = idle_s
        self._pieces = body_pieces(receive, encoding, max_bytes, setting, idle_s)
        self._is_plain = scope is not None and make_decompressor(encoding) is None
        self._rest = memoryview(b"")
        self._num_received = 0
        self._receiver: BodyReceiver | None = None

    async def read_into(self, buffer: NDArray[np.uint8], wanted: int | None = None) -> int:
        """Read until so many bytes are there, or the body has ended; returns how many there are.

        Args:
            buffer: where they go.
            wanted: None: as many as there is room for.

        Raises:
            ServiceError, ClientGone: as `body_pieces`.
        """
        size, wanted = 0, len(buffer) if wanted is None else wanted
        view = buffer.data
        while size < wanted and await self.has_more():
            if not self._rest:
                size += await self._received(view[size:], wanted - size)
                continue
            taken = self._rest[: len(buffer) - size]
            buffer[size : size + len(taken)] = np.frombuffer(taken, np.uint8)
            self._rest = self._rest[len(taken) :]
            size += len(taken)
        return size

    async def has_more(self) -> bool:
        """Whether the body has not ended yet; waits until that is known."""
        if not self._rest and self._receiver is None:
            piece = await anext(self._pieces, b"")
            self._rest = memoryview(piece)
            self._num_received += len(piece)
            if self._is_plain and piece:
                assert self._scope is not None
                self._receiver = BodyReceiver.take_over(self._scope, self._num_received)
        return bool(self._rest or (self._receiver is not None and self._receiver.num_left))

    async def _received(self, view: memoryview, wanted: int) -> int:
        assert self._receiver is not None
        try:
            return await self._receiver.read_into(view, wanted, self._idle_s)
        except TimeoutError as error:
            raise make_body_timeout(self._idle_s) from error


async def collect(
    body: RequestBody, expected_bytes: int, memory: Callable[[int], NDArray[np.uint8]] | None = None
) -> NDArray[np.uint8]:
    """uint8[N]: a whole body in one array, received there where its length was announced.

    Args:
        body: not read yet.
        expected_bytes: N as announced; 0 or wrong costs copies, nothing else.
        memory: gives so many bytes of it.
    """
    make = memory or (lambda num_bytes: np.empty(num_bytes, np.uint8))
    array, size = make(expected_bytes or FIRST_BYTES), 0
    while await body.has_more():
        if size == len(array):
            larger = make(2 * size)
            larger[:size], array = array, larger
        size += await body.read_into(array[size:])
    return array[:size]
