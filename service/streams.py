"""Answers that are sent while they are made: raw bytes in large pieces, refusals, broken streams.

An ASGI response in three states: nothing sent (a refusal is a problem document), begun (what goes
wrong now can only end the connection, which every HTTP client reports), done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fastapi import Request, Response
from numpy.typing import NDArray

from service.bulk_query import BatchQuery
from service.errors import TooLarge, problem
from service.state import Service
from service.work import ClientGone

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

__all__ = ["BrokenStream", "Streamed", "check_length", "octets", "slices"]

logger = logging.getLogger(__name__)
SEND_BYTES = 1 << 20  # Measured: 64 KiB pieces go out at a third of the speed, one piece at half.
OCTETS = (b"content-type", b"application/octet-stream")


class BrokenStream(Exception):
    """An answer that had begun cannot be finished; the server closes the connection."""


class Streamed(Response):
    """A response that reads, answers and sends by itself; subclasses write `answer`.

    Attributes:
        query_model: what the query string must be.
    """

    query_model: type[BatchQuery]

    def __init__(self, service: Service, request: Request) -> None:
        super().__init__()
        self.service, self.request = service, request

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the request and send the whole answer."""
        raise NotImplementedError

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer or its refusal."""
        has_begun = False

        async def send_and_note(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self.answer(scope, receive, send_and_note)
        except ClientGone:
            self.service.metrics.cancelled()
        except Exception as error:
            status, headers, document = problem(error)
            if has_begun:
                logger.warning("a stream was cut off: %s", document.decode())
                raise BrokenStream(document.decode()) from error
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": document})


def check_length(announced: int, max_bytes: int, setting: str = "max_body_bytes") -> None:
    """Raises TooLarge for a body that is announced as longer than a limit."""
    if announced > max_bytes:
        raise TooLarge(f"the body has {announced} bytes; {setting} is {max_bytes}")


def slices(arrays: Iterable[NDArray[Any]]) -> Iterator[memoryview]:
    """Arrays as bytes in pieces of at most SEND_BYTES; nothing is copied."""
    for array in arrays:
        view = memoryview(array.data).cast("B")
        for begin in range(0, len(view), SEND_BYTES):
            yield view[begin : begin + SEND_BYTES]


async def octets(
    send: Send, arrays: Sequence[NDArray[Any]], headers: list[tuple[bytes, bytes]]
) -> None:
    """Arrays with their length as a whole answer, the loop kept free between pieces."""
    size = sum(array.nbytes for array in arrays)
    headers = [OCTETS, (b"content-length", b"%d" % size), *headers]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for body in slices(arrays):
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": b""})
