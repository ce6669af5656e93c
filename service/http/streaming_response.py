"""Answers that are sent while they are made: raw bytes in large pieces, refusals, broken streams.

An ASGI response in three states: nothing sent (a refusal is a problem document), begun (what goes
wrong now can only end the connection, which every HTTP client reports), done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from fastapi import Request, Response
from numpy.typing import NDArray

from service.batching.batcher import Batcher
from service.batching.work import ClientGone, Output, Result, WorkItem
from service.core.call import get_call
from service.core.errors import QueueFull, RateLimited, TooLarge
from service.core.problem_details import as_service_error
from service.http.asgi_fast_path import send_problem
from service.http.backpressure import SEND_BYTES
from service.operations.context import Service
from service.operations.query_schemas import BatchQuery

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

logger = logging.getLogger(__name__)
FULL_S = 0.02  # How long a stream waits before it asks a full queue again.
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
        self.service = service
        self.request = request
        self.call = get_call(request.scope)

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
            self.call.is_gone = True
        except Exception as error:
            if not has_begun:
                await send_problem(send, self.call, error)
                return
            # Nothing of the input belongs into a log.
            code = self.call.refusal = as_service_error(error).code
            logger.warning("a stream was cut off: %s", code)
            raise BrokenStream(code) from None


def check_length(announced: int, max_bytes: int, setting: str = "max_body_bytes") -> None:
    """Raises TooLarge for a body that is announced as longer than a limit."""
    if announced > max_bytes:
        raise TooLarge(f"the body has {announced} bytes; {setting} is {max_bytes}")


def slices(arrays: Iterable[NDArray[Any]], dtype: Any = None) -> Iterator[memoryview]:
    """Arrays as bytes in pieces of at most SEND_BYTES; copied only where they are to be wider."""
    for array in arrays:
        if dtype is None or array.dtype == dtype:
            view = memoryview(array.data).cast("B")
            for begin in range(0, len(view), SEND_BYTES):
                yield view[begin : begin + SEND_BYTES]
            continue
        size = SEND_BYTES // np.dtype(dtype).itemsize
        for begin in range(0, len(array), size):
            yield memoryview(array[begin : begin + size].astype(dtype).data).cast("B")


async def octets(
    send: Send,
    arrays: Sequence[NDArray[Any]],
    headers: list[tuple[bytes, bytes]],
    dtype: Any = None,
) -> None:
    """Arrays with their length as a whole answer, the loop kept free between pieces.

    Args:
        send: the ASGI callable.
        arrays: contiguous.
        headers: of the answer.
        dtype: what their elements become while they are sent; None: they stay as they are.
    """
    width = np.dtype(dtype).itemsize if dtype is not None else 0
    size = sum(len(array) * width if width else array.nbytes for array in arrays)
    headers = [(b"content-length", b"%d" % size), *headers]
    if all(name != b"content-type" for name, _ in headers):
        headers.append(OCTETS)
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    pieces = slices(arrays, dtype)
    body = next(pieces, b"")
    for following in pieces:
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await asyncio.sleep(0)
        body = following
    await send({"type": "http.response.body", "body": body})


@contextmanager
def stream_thread(service: Service) -> Iterator[ThreadPoolExecutor]:
    """A thread for one stream; who leaves does not wait for it.

    Raises:
        TooManyStreams: there are `max_streams` already.
    """
    with service.streams.open_stream():
        thread = ThreadPoolExecutor(1, "stream")
        service.batcher.num_streams += 1
        try:
            yield thread
        finally:
            service.batcher.num_streams -= 1
            thread.shutdown(wait=False, cancel_futures=True)


async def run_patiently(batcher: Batcher, work: WorkItem[Output]) -> Result[Output]:
    """A part of a stream; it waits while the queue is full or its client has sent too much.

    Raises:
        ServiceError: refused, or the deadline passed.
    """
    work.is_part = True
    while True:
        try:
            return await batcher.run(work)
        except (QueueFull, RateLimited):
            if perf_counter() >= work.deadline:
                raise
            await asyncio.sleep(FULL_S)
