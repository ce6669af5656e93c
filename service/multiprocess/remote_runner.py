"""The runner of a front end: batches are computed in the engine process.

    batcher ──► run ─┬► link ──► engine process: its batcher joins all front ends' ──► …
                     └► encoders of this process, for small batches (local_encoders.py)

At most two batches of short requests are on their way, so that what arrives meanwhile is joined
here, and what waits, waits here, where it is counted in bytes and refused above `max_queue_bytes`.
Long requests are not joined: a few more of them keep the engine busy while answers travel.
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
    QueueKey,
    TextWork,
)
from service.core.errors import DeadlinePassed, EngineLost, ServiceError
from service.core.settings import Settings
from service.engines.base import Codec
from service.multiprocess.link.batch_messages import (
    counted_of,
    decode_message,
    decoded_of,
    encoded_of,
    texts_message,
)
from service.multiprocess.link.frames import Message
from service.multiprocess.local_encoders import LocalEncoders
from service.multiprocess.remote_engine import UNKNOWN_DIGEST, RemoteEngine
from service.observability.metrics import Metrics
from service.runtime.memory_pool import Take

GRACE_S = 1.0  # After the deadline, which is the engine process's to see.
LOOK_S = 0.1  # How often it is looked whether anybody still waits for a batch.
LONG_ON_THE_WAY = 4


class RemoteRunner:
    """Sends batches to the engine process; see `service.batching.runner.BatchRunner`.

    Args:
        engine: the engine process.
        encoders: of this process.
        settings: of the service.
        metrics: counts the time that batches are on their way.
    """

    def __init__(
        self, engine: RemoteEngine, encoders: LocalEncoders, settings: Settings, metrics: Metrics
    ) -> None:
        self.engine = engine
        self.encoders = encoders
        self.long_at_once = LONG_ON_THE_WAY - NUM_PREPARED
        self._metrics = metrics
        # Batches that make no message: a thread asks the engine process for each row if need be.
        self._local = LocalRunner(engine, settings, metrics)
        self.costs = self._local.costs
        self._inline_batch_bytes = settings.inline_batch_bytes
        if settings.crossover_bytes is not None:  # What is meant for the GPU is not kept from it.
            self._inline_batch_bytes = min(self._inline_batch_bytes, settings.crossover_bytes - 1)
        self._pending: set[PendingBatch] = set()
        self._looking: asyncio.TimerHandle | None = None

    def inline_engine(self, key: QueueKey, num_bytes: int) -> Codec | None:
        """An encoder of this process; now and then a batch still goes to the engine process.

        While that is not there, batches are encoded here however slow the last ones were: they
        would be refused otherwise.
        """
        digest = key.cost_key.digest
        cost = self.encoders.cost(digest)
        if cost is None or num_bytes > self._inline_batch_bytes:
            return None
        if self.engine.link is None:
            return self.encoders.engine
        if self.encoders.claim_report(digest, perf_counter()):
            self.costs.forget(key.cost_key)  # What was slow for once is tried again.
            return None
        self.costs.assume(key.cost_key, cost)
        expected_s = self.costs.expected_s(key.cost_key, num_bytes)
        return self.encoders.engine if expected_s <= MAX_INLINE_S else None

    def run(self, works: Sequence[AnyWork], is_long: bool, finish: Finish) -> None:
        """Send a batch to the engine process."""
        try:
            message = _make_message(works, self.engine.memory.take)
        except Exception as error:
            _finish_soon(finish, error)
            return
        if message is None:
            self._local.run(works, is_long, finish)
            return
        deadline = max([work.deadline for work in works])
        num_bytes = sum([work.num_bytes for work in works])
        if num_bytes <= self._inline_batch_bytes and isinstance(works[0], TextWork):
            self.encoders.count_batch(cast(Sequence[TextWork[Any]], works))
        message.values |= {"bytes": num_bytes, "is_long": is_long, "deadline": deadline}
        self._send(PendingBatch(self, works, message, deadline, finish))

    def _send(self, batch: PendingBatch) -> None:
        try:
            batch.number = self.engine.ask(batch.message, batch)
        except EngineLost as error:
            _finish_soon(batch.finish, error)
            return
        self._pending.add(batch)
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def take_answer(self, batch: PendingBatch, answer: Message | BaseException) -> None:
        """Finish a batch with its answer, or with the reason why there is none."""
        if isinstance(answer, ServiceError) and answer.code == UNKNOWN_DIGEST:
            batch.sending = asyncio.ensure_future(self._send_vocabulary(batch))
            return
        self._pending.discard(batch)
        try:
            if isinstance(answer, BaseException):
                raise answer
            results = _read_results(batch.works, answer)
        except BaseException as error:
            batch.finish(error)
        else:
            batch.finish(BatchResults(results, perf_counter() - batch.works[0].started))

    async def _send_vocabulary(self, batch: PendingBatch) -> None:
        """Send a vocabulary that the engine process does not know, and the batch again."""
        try:
            await self.engine.send_vocabulary(batch.works[0].vocabulary)
        except Exception as error:
            self.take_answer(batch, error)
        else:
            if batch in self._pending:
                self._send(batch)

    def _look(self) -> None:
        """Give up batches that nobody waits for any more, or that are not answered in time."""
        self._looking, now = None, perf_counter()
        for batch in list(self._pending):
            if now > batch.deadline + GRACE_S or all(work.is_done for work in batch.works):
                self._pending.discard(batch)
                batch.cancel()
                batch.finish(DeadlinePassed("the engine process did not answer in time"))
        if self._pending:
            self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def record(self, works: Sequence[AnyWork], finished: BatchResults) -> None:
        """The engine process counts what its engine ran; here it is a time on the way."""
        self._metrics.stage("link", finished.seconds)

    def shutdown(self) -> None:
        """Begin nothing more."""
        self._local.shutdown()


class PendingBatch:
    """A batch on its way; a `Completion` that the link gives its answer."""

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
        """Whether there is nothing to wait for any more: it is cancelled then."""
        return False

    def cancel(self) -> None:
        """Tell the engine process that nobody wants the answer any more."""
        self.runner.engine.give_up(self.number)

    def set_result(self, message: Message) -> None:
        """Take the answer."""
        self.runner.take_answer(self, message)

    def set_exception(self, error: BaseException) -> None:
        """Take the reason why there is no answer."""
        self.runner.take_answer(self, error)


def _finish_soon(finish: Finish, error: Exception) -> None:
    """Refuse a batch in the loop's next turn: the one that waits behind it comes then."""
    asyncio.get_running_loop().call_soon(finish, error)


def _make_message(works: Sequence[AnyWork], take: Take) -> Message | None:
    """All works as one message; None where an id is too large for an array.

    Args:
        works: of one operation.
        take: gives memory for texts that are joined.
    """
    match works[0]:
        case TextWork() as first:
            batch = join_texts(cast(Sequence[TextWork[Any]], works), take)
            return texts_message(first.operation, first.vocabulary.digest, batch)
        case DecodeWork() as first:
            try:
                ids, offsets = _flat_ids(cast(Sequence[DecodeWork], works))
            except OverflowError:
                return None
            digest = first.vocabulary.digest
            return decode_message(digest, ids, offsets, first.skip_special_tokens)
        case _:
            raise AssertionError("a front end shares no memory with a device")


def _flat_ids(works: Sequence[DecodeWork]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All rows as int64[T] and offsets int64[B + 1]."""
    rows = works[0].rows
    if len(works) == 1 and isinstance(rows, IdRows):
        return rows.ids.astype(np.int64, copy=False), rows.offsets
    lists = join_id_rows(works)
    offsets = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(row) for row in lists], out=offsets[1:])
    return np.fromiter(chain.from_iterable(lists), np.int64, int(offsets[-1])), offsets


def _read_results(works: Sequence[AnyWork], answer: Message) -> Sequence[AnyResult]:
    """Each work's rows of the answer."""
    match works[0]:
        case EncodeWork():
            return split_encoded(works, encoded_of(answer))
        case CountWork():
            return split_counted(works, counted_of(answer))
        case _:
            num_ids = sum(work.num_ids for work in cast(Sequence[DecodeWork], works))
            return split_decoded(works, decoded_of(answer), num_ids)
