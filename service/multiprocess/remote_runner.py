"""Defines the batch runner of a front end, which sends batches to the engine process.

    batcher ──► run ─┬► link ──► engine process: its batcher joins the batches of all front ends
                     └► encoders of this process, for small batches (local_encoders.py)

At most two batches of short requests are in flight. Requests that arrive in the meantime wait and
are joined in the front end, which counts them, and refuses them above `max_queue_bytes`. Long
requests are not joined; more of them may be in flight, to keep the engine busy while answers are
sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import chain
from time import perf_counter
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from service.batching.batcher import NUM_PREPARED
from service.batching.runner import (
    MAX_INLINE_S,
    BatchResults,
    Finish,
    LocalRunner,
    join_id_rows,
    join_texts,
    split_counted,
    split_decoded,
    split_encoded,
)
from service.batching.work import (
    AnyResult,
    AnyWork,
    CountWork,
    DecodeWork,
    EncodeWork,
    IdRows,
    LaneName,
    QueueKey,
    TextWork,
)
from service.core.errors import DeadlinePassed, EngineLost, ServiceError
from service.core.settings import Settings
from service.engines.base import Codec, EngineStatus
from service.multiprocess.link.batch_messages import (
    make_decode_message,
    make_texts_message,
    read_counted,
    read_decoded,
    read_encoded,
)
from service.multiprocess.link.frames import Message
from service.multiprocess.local_encoders import LocalEncoders
from service.multiprocess.remote_engine import UNKNOWN_DIGEST, RemoteEngine
from service.observability.metrics import Metrics
from service.runtime.memory_pool import Take

GRACE_S = 1.0  # After the deadline, which the engine process itself enforces.
CHECK_PERIOD_S = 0.1  # Between checks whether a request still waits for a batch.
MAX_LONG_IN_FLIGHT = 4
MAX_ISOLATED_IN_FLIGHT = 64  # The engine process decides which of them run.


class RemoteRunner:
    """A `service.batching.runner.BatchRunner` that sends batches to the engine process.

    Args:
        engine: the engine process.
        encoders: the encoders of this process, for small batches.
        settings: the settings of the service.
        metrics: counts the time of batches, which includes the transport over the link.
    """

    def __init__(
        self, engine: RemoteEngine, encoders: LocalEncoders, settings: Settings, metrics: Metrics
    ) -> None:
        self.engine = engine
        self.encoders = encoders
        self.short_at_once = 1
        self.long_at_once = MAX_LONG_IN_FLIGHT - NUM_PREPARED
        self.isolated_at_once = MAX_ISOLATED_IN_FLIGHT
        self._metrics = metrics
        # Runs batches that cannot be a message: its thread calls the engine process row by row.
        self._local = LocalRunner(engine, settings, metrics)
        self.costs = self._local.costs
        self._inline_batch_bytes = settings.inline_batch_bytes
        if settings.crossover_bytes is not None:  # Larger batches are for the GPU.
            self._inline_batch_bytes = min(self._inline_batch_bytes, settings.crossover_bytes - 1)
        self._pending: set[PendingBatch] = set()
        self._check_timer: asyncio.TimerHandle | None = None

    def inline_engine(self, key: QueueKey, num_bytes: int) -> Codec | None:
        """Return the engine of this process for a small batch of a vocabulary that it has loaded.

        Every REPORT_S seconds a batch still goes to the engine process. While the engine process is
        down, every small batch is encoded here, even if that is slow, because it would otherwise be
        refused.
        """
        digest = key.cost_key.digest
        cost = self.encoders.cost(digest)
        if cost is None or num_bytes > self._inline_batch_bytes:
            return None
        if self.engine.link is None:
            return self.encoders.engine
        if self.encoders.claim_report(digest, perf_counter()):
            self.costs.forget(key.cost_key)  # A vocabulary that was slow once is tried again.
            return None
        self.costs.assume(key.cost_key, cost)
        expected_s = self.costs.expected_s(key.cost_key, num_bytes)
        return self.encoders.engine if expected_s <= MAX_INLINE_S else None

    def use_devices(self, status: EngineStatus) -> None:
        """Do nothing, as the devices belong to the engine process."""

    def run(self, works: Sequence[AnyWork], lane: LaneName, finish: Finish) -> None:
        """Send a batch to the engine process."""
        try:
            message = _make_message(works, self.engine.memory.take)
        except Exception as error:
            _finish_soon(finish, error)
            return
        if message is None:
            self._local.run(works, lane, finish)
            return
        deadline = max([work.deadline for work in works])
        num_bytes = sum([work.num_bytes for work in works])
        is_small = num_bytes <= self._inline_batch_bytes and lane != "isolated"
        if is_small and isinstance(works[0], TextWork):
            self.encoders.count_batch(cast(Sequence[TextWork[Any]], works))
        message.values |= {"bytes": num_bytes, "is_long": lane == "long", "deadline": deadline}
        self._send(PendingBatch(self, works, message, deadline, finish))

    def _send(self, batch: PendingBatch) -> None:
        try:
            batch.number = self.engine.start_call(batch.message, batch)
        except EngineLost as error:
            _finish_soon(batch.finish, error)
            return
        self._pending.add(batch)
        self._plan_check()

    def handle_answer(self, batch: PendingBatch, answer: Message | BaseException) -> None:
        """Finish a batch with its answer or error.

        If the engine process lacks the vocabulary, send the vocabulary, and then the batch again.
        """
        if isinstance(answer, ServiceError) and answer.code == UNKNOWN_DIGEST:
            batch.sending = asyncio.ensure_future(self._send_vocabulary(batch))
            return
        self._pending.discard(batch)
        if isinstance(answer, BaseException):
            batch.finish(answer)
            return
        try:
            results = _read_results(batch.works, answer)
        except BaseException as error:
            batch.finish(error)
        else:
            batch.finish(BatchResults(results, perf_counter() - batch.works[0].started))

    async def _send_vocabulary(self, batch: PendingBatch) -> None:
        """Send the batch's vocabulary to the engine process, and then the batch again."""
        try:
            await self.engine.send_vocabulary(batch.works[0].vocabulary)
        except Exception as error:
            self.handle_answer(batch, error)
        else:
            if batch in self._pending:
                self._send(batch)

    def _plan_check(self) -> None:
        if self._check_timer is None and self._pending:
            loop = asyncio.get_running_loop()
            self._check_timer = loop.call_later(CHECK_PERIOD_S, self._check_pending)

    def _check_pending(self) -> None:
        """Cancel batches for which no request waits any more, or whose answer is too late."""
        self._check_timer = None
        now = perf_counter()
        for batch in list(self._pending):
            if now > batch.deadline + GRACE_S or all(work.is_done for work in batch.works):
                self._pending.discard(batch)
                batch.cancel()
                batch.finish(DeadlinePassed("the engine process did not answer in time"))
        self._plan_check()

    def record(self, works: Sequence[AnyWork], finished: BatchResults) -> None:
        """Count the time of a batch; the engine process counts the batch itself."""
        self._metrics.add_stage_time("link", finished.seconds)

    def shutdown(self) -> None:
        """Start no more batches."""
        self._local.shutdown()


class PendingBatch:
    """A batch in flight: the `Completion` of its call."""

    __slots__ = ("deadline", "finish", "message", "number", "runner", "sending", "works")

    def __init__(
        self,
        runner: RemoteRunner,
        works: Sequence[AnyWork],
        message: Message,
        deadline: float,
        finish: Finish,
    ) -> None:
        self.runner = runner
        self.works = works
        self.message = message
        self.deadline = deadline
        self.finish = finish
        self.number = 0
        self.sending: asyncio.Task[None] | None = None  # Kept from being collected.

    def done(self) -> bool:
        """Return False, as the link drops the calls of batches that are done."""
        return False

    def cancel(self) -> None:
        """Cancel the call of the batch."""
        self.runner.engine.cancel_call(self.number)

    def set_result(self, message: Message) -> None:
        """Finish the batch with its answer."""
        self.runner.handle_answer(self, message)

    def set_exception(self, error: BaseException) -> None:
        """Finish the batch with an error."""
        self.runner.handle_answer(self, error)


def _finish_soon(finish: Finish, error: Exception) -> None:
    """Refuse a batch in the next tick of the loop, because `finish` must not be called in `run`."""
    asyncio.get_running_loop().call_soon(finish, error)


def _make_message(works: Sequence[AnyWork], take: Take) -> Message | None:
    """Make one message from work items; None if an id is too large for an array.

    Args:
        works: work items of one operation.
        take: allocates memory for joined texts.
    """
    match works[0]:
        case TextWork() as first:
            batch = join_texts(cast(Sequence[TextWork[Any]], works), take)
            return make_texts_message(first.operation, first.vocabulary.digest, batch)
        case DecodeWork() as first:
            try:
                ids, offsets = _flat_ids(cast(Sequence[DecodeWork], works))
            except OverflowError:
                return None
            digest = first.vocabulary.digest
            return make_decode_message(digest, ids, offsets, first.skip_special_tokens)
        case _:
            raise AssertionError("a front end shares no memory with a device")


def _flat_ids(works: Sequence[DecodeWork]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Join all rows to ids int64[T] and offsets int64[B + 1]."""
    rows = works[0].rows
    if len(works) == 1 and isinstance(rows, IdRows):
        return rows.ids.astype(np.int64, copy=False), rows.offsets
    lists = join_id_rows(works)
    offsets = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(row) for row in lists], out=offsets[1:])
    return np.fromiter(chain.from_iterable(lists), np.int64, int(offsets[-1])), offsets


def _read_results(works: Sequence[AnyWork], answer: Message) -> Sequence[AnyResult]:
    """Split the answer into the results of the work items."""
    match works[0]:
        case EncodeWork():
            return split_encoded(works, read_encoded(answer))
        case CountWork():
            return split_counted(works, read_counted(answer))
        case _:
            num_ids = sum(work.num_ids for work in cast(Sequence[DecodeWork], works))
            return split_decoded(works, read_decoded(answer), num_ids)
