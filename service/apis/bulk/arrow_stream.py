"""Answers with Arrow streams: reads, encodes and sends at the same time, in bounded memory.

    body ─► read exactly n bytes ─► texts ─► batcher ─► record batch ─► 1 MiB at a time
              │ on the loop          │ on a separate thread for each stream
              └ while a batch is read, an earlier one is encoded, and a still earlier one is sent

An error before the first record batch of the answer becomes a refusal. After a later error, the
answer ends with a record batch that describes the error; the rest of the body is not read.

Memory does not grow with the stream, as the bytes that wait to be sent are bounded. A client that
reads the answer only after it has sent the whole body can send only as much as fits that limit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from service.apis.bulk.arrow_reader import MEDIA_TYPE, TextBatch
from service.batching.work import EncodeWork, Result
from service.core.call import read_timeout
from service.core.errors import ServiceError, TooLarge
from service.core.extras import check_installed
from service.http.backpressure import BoundedSender
from service.http.body.request_body import RequestBody
from service.http.streaming_response import StreamedResponse, run_part, stream_thread
from service.operations.augmented_texts import RowAugmenter, check_augmentation
from service.operations.encode import check_dtype
from service.operations.operation import check_digest, check_rows, find_entry, make_bulk_work
from service.operations.query_schemas import DTYPES, StreamQuery, parse_query
from service.operations.unknown_ids import MAX_STREAM_IDS, find_share_of_result, make_warning
from vocabularies.batch.batch import Encoded, EncodeOptions
from vocabularies.model.vocabulary import Vocabulary

if TYPE_CHECKING:
    from fastapi import Request
    from starlette.types import Receive, Scope, Send

    from service.core.settings import Settings
    from service.operations.context import Service
    from service.registry.entries import LoadedVocabulary

logger = logging.getLogger(__name__)
AHEAD_BYTES = 1 << 16  # The minimum size of a read from the body.
READ_AHEAD = 2  # Maximum number of batches that are encoded or not written yet.


@dataclass(frozen=True, slots=True)
class TimedBatch:
    """Texts that were read from a body, and the number of seconds that parsing them took."""

    batch: TextBatch
    seconds: float


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """The ids of a batch of texts, and the metadata of the texts."""

    result: Result[Encoded]
    metadata: Any


Encoding = asyncio.Task[EncodedBatch | ServiceError]


class Source(Protocol):
    """Reads batches of texts from a body."""

    def next_batch(self) -> TextBatch | None:
        """Read the next texts; return None at the end. May block."""


class Messages(Protocol):
    """Writes an Arrow stream, message by message.

    Attributes:
        END: the bytes that end the stream.
        has_kernel_time: whether record batches contain the time that computing them took.
    """

    END: bytes
    has_kernel_time: bool

    def head(self) -> memoryview:
        """Return the message that begins the stream."""

    def is_quick(self, result: Result[Encoded]) -> bool:
        """Return whether writing a result is faster than passing it to a thread."""

    def message(self, result: Result[Encoded], metadata: Any) -> list[memoryview]:
        """Return a record batch of ids as pieces; `metadata` is that of the texts."""

    def failure(self, error: ServiceError) -> list[memoryview]:
        """Return the record batch that describes why the stream ends too early."""


class BodyReader:
    """Reads a body from a thread other than that of the event loop.

    Args:
        body: the body, not read yet.
        max_bytes: the maximum size of one read, as a message may claim any size.
        memory: a function that allocates an array of a number of bytes.

    Attributes:
        waited_s: the total number of seconds for which `read` waited for bytes.
    """

    def __init__(
        self, body: RequestBody, max_bytes: int, memory: Callable[[int], NDArray[np.uint8]]
    ) -> None:
        self._body = body
        self._max_bytes = max_bytes
        self._memory = memory
        self._rest = memoryview(b"")
        self._loop = asyncio.get_running_loop()
        self._pending: Future[memoryview] | None = None
        self.waited_s = 0.0

    def read(self, num_bytes: int) -> memoryview:
        """Read exactly `num_bytes`, fewer at the end; must not be called on the event loop.

        Raises:
            TooLarge: `num_bytes` exceeds `max_bytes`; nothing was read.
        """
        if num_bytes > self._max_bytes:
            limit = f"max_body_bytes is {self._max_bytes}, for each record batch"
            raise TooLarge(f"a message has {num_bytes} bytes; {limit}")
        if len(self._rest) >= num_bytes:  # Safe: no read is pending on the loop.
            return self._take(num_bytes)
        begin = perf_counter()
        pending = asyncio.run_coroutine_threadsafe(self._read(num_bytes), self._loop)
        self._pending = pending
        try:
            read = pending.result()
        finally:
            # Break a cycle: an exception in it would refer to this object.
            self._pending = None
        self.waited_s += perf_counter() - begin
        return read

    def close(self) -> None:
        """Wake a thread that waits in `read`, which then raises CancelledError."""
        if (pending := self._pending) is not None:
            pending.cancel()

    async def _read(self, num_bytes: int) -> memoryview:
        """Read `num_bytes` from the rest and the body; small reads read ahead."""
        array, size = self._memory(max(num_bytes, AHEAD_BYTES)), len(self._rest)
        array[:size] = np.frombuffer(self._take(size), np.uint8)
        unread = array[size:] if num_bytes < AHEAD_BYTES else array[size:num_bytes]
        size += await self._body.read_into(unread, num_bytes - size)
        self._rest = array[:size].data
        return self._take(num_bytes)

    def _take(self, num_bytes: int) -> memoryview:
        data = self._rest[:num_bytes]
        self._rest = self._rest[num_bytes:]
        return data


class TimedSource:
    """Reads a source, and measures the time of each batch without the waits for its bytes."""

    def __init__(self, source: Source, body: BodyReader) -> None:
        self._source = source
        self._body = body

    def next_batch(self) -> TimedBatch | None:
        """Read the next texts; return None at the end. May block."""
        begin, waited_s = perf_counter(), self._body.waited_s
        batch = self._source.next_batch()
        if batch is None:
            return None
        waiting_s = self._body.waited_s - waited_s
        return TimedBatch(batch, perf_counter() - begin - waiting_s)


class AugmentedSource:
    """Reads a source, and augments the texts."""

    def __init__(self, source: Source, augmenter: RowAugmenter) -> None:
        self._source = source
        self._augmenter = augmenter

    def next_batch(self) -> TextBatch | None:
        """Read the next texts and augment them; return None at the end. May block.

        Raises:
            InvalidRequest: a text contains letters beyond ASCII.
        """
        batch = self._source.next_batch()
        if batch is None:
            return None
        return batch._replace(texts=self._augmenter.augment(batch.texts))


class ArrowStream(StreamedResponse):
    """Answers with an Arrow stream; subclasses choose the reader and the writer.

    Attributes:
        query: the options of the call, of the type `query_model`.
        dtype: the type of the ids in the answer.
        vocabulary: the vocabulary of the request; set before `source` is called.
        extras: the names of the extras that the subclass needs.
    """

    query_model = StreamQuery
    extras: tuple[str, ...] = ("arrow",)
    query: Any
    vocabulary: Vocabulary

    def __init__(self, service: Service, request: Request) -> None:
        super().__init__(service, request)
        check_installed("Arrow streams", *self.extras)
        self.query = parse_query(self.query_model, request.query_params)
        read_timeout(self.call)
        self.dtype = DTYPES[self.query.dtype]

    def source(self, body: BodyReader) -> Source:
        """Create the reader of the body."""
        raise NotImplementedError

    def messages(self) -> Messages:
        """Create the writer of the answer."""
        raise NotImplementedError

    def options(self) -> EncodeOptions:
        """Return the encode options of each text."""
        options: EncodeOptions = self.query.options()
        return options

    def max_read_bytes(self, settings: Settings) -> int:
        """Return the maximum size of one read, which is that of a whole body."""
        return settings.max_body_bytes

    @override
    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        entry = await find_entry(self.service, self.call, self.query.vocabulary)
        check_digest(entry, self.query.if_digest)
        check_dtype(entry.vocabulary, self.query.dtype)
        self.vocabulary = entry.vocabulary
        if self.query.augmentation() is not None:
            check_augmentation(entry.vocabulary, "/seed")
        settings = self.service.settings
        idle_s = settings.stream_idle_timeout_s
        request_body = RequestBody(receive, self.call.encoding, None, scope, idle_s)
        memory = self.service.engine.host_memory
        body = BodyReader(request_body, self.max_read_bytes(settings), memory)
        sender = BoundedSender(send, MEDIA_TYPE, self.service.streams, idle_s)
        encoded: asyncio.Queue[Encoding | ServiceError | None] = asyncio.Queue(READ_AHEAD)
        with stream_thread(self.service) as thread:
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(sender.run())
                    source = TimedSource(self._augmented(self.source(body)), body)
                    reading = tasks.create_task(self._read(entry, source, thread, encoded, tasks))
                    tasks.create_task(self._write(encoded, sender, reading))
            except BaseExceptionGroup as group:
                raise group.exceptions[0] from None
            finally:
                body.close()
                await sender.drop()

    def _augmented(self, source: Source) -> Source:
        """Return a source of augmented texts if the options request it; else the same source."""
        augmentation = self.query.augmentation()
        if augmentation is None:
            return source
        return AugmentedSource(source, RowAugmenter(augmentation, "row {}"))

    async def _read(
        self,
        entry: LoadedVocabulary,
        source: TimedSource,
        thread: ThreadPoolExecutor,
        encoded: asyncio.Queue[Encoding | ServiceError | None],
        tasks: asyncio.TaskGroup,
    ) -> None:
        """Read batches one after another, and start a task that encodes each."""
        loop, options, number = asyncio.get_running_loop(), self.options(), 0
        try:
            while (timed := await loop.run_in_executor(thread, source.next_batch)) is not None:
                texts = timed.batch.texts
                self.call.times.read = perf_counter() - timed.seconds
                check_rows(self.service, len(texts), f"record batch {number}")
                number += 1
                texts.id_dtype = self.dtype
                work = make_bulk_work(self.service, self.call, EncodeWork, entry, texts, options)
                await encoded.put(tasks.create_task(self._encode(work, timed.batch.metadata)))
            await encoded.put(None)
        except ServiceError as error:
            await encoded.put(error)

    async def _encode(self, work: EncodeWork, metadata: Any) -> EncodedBatch | ServiceError:
        try:
            return EncodedBatch(await run_part(self.service.batcher, work), metadata)
        except ServiceError as error:
            return error

    async def _write(
        self,
        encoded: asyncio.Queue[Encoding | ServiceError | None],
        sender: BoundedSender,
        reading: asyncio.Task[None],
    ) -> None:
        """Write the ids of each batch in order, as soon as they are encoded.

        Raises:
            ServiceError: an error occurred before anything was sent.
        """
        messages = self.messages()
        messages.has_kernel_time = self.query.return_kernel_time
        head: bytes | memoryview = messages.head()
        try:
            while (item := await encoded.get()) is not None:
                batch = item if isinstance(item, ServiceError) else await item
                if isinstance(batch, ServiceError):
                    raise batch
                message = await self._write_batch(messages, batch)
                if head:
                    result = batch.result
                    share = find_share_of_result(self.vocabulary, result, MAX_STREAM_IDS)
                    sender.headers += make_warning(share)
                await sender.put(head, *message)
                head = b""
        except ServiceError as error:
            if head:
                raise
            reading.cancel()
            self.call.refusal = error.code
            # Do not log the message, as it could contain input.
            logger.warning("a stream ended with an error: %s at %s", error.code, error.where)
            await sender.put(*messages.failure(error))
            error.__traceback__ = None  # Break a cycle: error, batch, work item.
        await sender.put(head, messages.END)
        await sender.close()

    async def _write_batch(self, messages: Messages, batch: EncodedBatch) -> list[memoryview]:
        """Write the ids of one batch, in a thread if this takes long."""
        begin = perf_counter()
        if messages.is_quick(batch.result):
            message = messages.message(batch.result, batch.metadata)
        else:
            message = await asyncio.to_thread(messages.message, batch.result, batch.metadata)
        self.service.observer.add_serialize_time(self.call, perf_counter() - begin)
        return message
