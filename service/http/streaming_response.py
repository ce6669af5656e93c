"""Sends answers in large pieces while they are computed.

An error before the first byte becomes a problem document. A later error can only close the
connection, which every HTTP client reports; Arrow streams end with a description of the error
instead.
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
RETRY_S = 0.02  # How long a stream waits before it retries a full queue.
OCTETS = (b"content-type", b"application/octet-stream")


class BrokenStream(Exception):
    """An answer has begun and cannot be finished; the server closes the connection.

    Attributes:
        is_logged: whether the reason is in the log, so that uvicorn's message and traceback are
            omitted.
    """

    is_logged = True


class StreamedResponse(Response):
    """A response that reads its request itself; subclasses implement `answer`.

    Attributes:
        query_model: the model of the query string.
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
        """Read the request, and send the answer or the refusal."""
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
            # Log only the code, as the message could contain input.
            code = self.call.refusal = as_service_error(error).code
            logger.warning("a stream was cut off: %s", code)
            raise BrokenStream(code) from None


def check_length(announced: int, max_bytes: int, setting: str = "max_body_bytes") -> None:
    """Raise TooLarge if the announced length of a body exceeds a limit."""
    if announced > max_bytes:
        raise TooLarge(f"the body has {announced} bytes; {setting} is {max_bytes}")


def slices(arrays: Iterable[NDArray[Any]], dtype: Any = None) -> Iterator[memoryview]:
    """View arrays as bytes in pieces of SEND_BYTES; copy only if converted to `dtype`."""
    for array in arrays:
        if dtype is None or array.dtype == dtype:
            view = memoryview(array.data).cast("B")
            for begin in range(0, len(view), SEND_BYTES):
                yield view[begin : begin + SEND_BYTES]
            continue
        size = SEND_BYTES // np.dtype(dtype).itemsize
        for begin in range(0, len(array), size):
            yield memoryview(array[begin : begin + size].astype(dtype).data).cast("B")


async def send_arrays(
    send: Send,
    arrays: Sequence[NDArray[Any]],
    headers: list[tuple[bytes, bytes]],
    dtype: Any = None,
) -> None:
    """Send arrays one after another as one answer with its length, in pieces.

    Args:
        send: the ASGI callable.
        arrays: contiguous arrays.
        headers: the headers of the answer, without its length.
        dtype: the type to which elements are converted; None: no conversion.
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
    """Provide a stream with its own thread; leaving the context does not wait for the thread.

    Raises:
        TooManyStreams: `max_streams` streams are open already.
    """
    with service.streams.open_stream():
        thread = ThreadPoolExecutor(1, "stream")
        service.batcher.num_streams += 1
        try:
            yield thread
        finally:
            service.batcher.num_streams -= 1
            thread.shutdown(wait=False, cancel_futures=True)


async def run_part(batcher: Batcher, work: WorkItem[Output]) -> Result[Output]:
    """Run one work item of a stream; wait while the queue is full or the client exceeds its rate.

    Raises:
        ServiceError: the work item is refused, or its deadline has passed.
    """
    work.is_part = True
    while True:
        try:
            return await batcher.run(work)
        except (QueueFull, RateLimited):
            if perf_counter() >= work.deadline:
                raise
            await asyncio.sleep(RETRY_S)
