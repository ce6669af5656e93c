"""The batcher of a front end: the same queues and lanes, batches run in the engine process.

    submit ──► queues ──► take ─┬► link ──► engine process: its batcher joins all front ends' ──► …
                                └► encoders of our own, for small batches (local_encoders.py)

At most two batches of short requests are on their way, so that what arrives meanwhile is joined
here, and what waits, waits here, where it is counted in bytes and refused above `max_queue_bytes`.
Long requests are not joined: a few more of them keep the engine busy while answers travel.
"""

from __future__ import annotations

import asyncio
from itertools import chain
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from service.batching.batch import (
    joined_rows,
    joined_texts,
    num_ids_of,
    split_counted,
    split_decoded,
    split_encoded,
)
from service.batching.batcher import INLINE_S, Batcher, Outcome
from service.batching.lanes import PREPARED, Key, Lane
from service.batching.work import IdRows, Result, Work
from service.core.errors import DeadlinePassed, EngineLost, ServiceError
from service.core.settings import Settings
from service.engines.base import Engine
from service.multiprocess.link.batch_messages import (
    counted_of,
    decode_message,
    decoded_of,
    encoded_of,
    texts_message,
)
from service.multiprocess.link.frames import Message
from service.multiprocess.local_encoders import OwnEncoders
from service.multiprocess.remote_engine import UNKNOWN_DIGEST, LinkedEngine
from service.observability.metrics import Metrics
from service.runtime.memory_pool import Take
from service.security.rate_limits import Limits

GRACE_S = 1.0  # After the deadline, which is the engine process's to see.
LOOK_S = 0.1  # How often it is looked whether anybody still waits for a batch.
LONG_ON_THE_WAY = 4


class LinkedBatcher(Batcher):
    """Joins waiting work into batches for the engine process."""

    def __init__(
        self,
        engine: LinkedEngine,
        own: OwnEncoders,
        settings: Settings,
        metrics: Metrics,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(engine, settings, metrics, limits)
        if settings.crossover_bytes is not None:  # What is meant for the GPU is not kept from it.
            self.inline_batch_bytes = min(self.inline_batch_bytes, settings.crossover_bytes - 1)
        self.linked, self.own = engine, own
        self._asked: set[Asked] = set()
        self._looking: asyncio.TimerHandle | None = None
        self._lanes[True].at_once = LONG_ON_THE_WAY - PREPARED

    def _inline_engine(self, key: Key, num_bytes: int) -> Engine | None:
        """An encoder of our own; now and then a batch still goes to the engine process.

        While that is not there, batches are encoded here however slow the last ones were: they
        would be refused otherwise.
        """
        digest, kind = key[0], key[:2]
        cost = self.own.cost(digest)
        if cost is None or num_bytes > self.inline_batch_bytes:
            return None
        if self.linked.link is None:
            return self.own.engine
        if self.own.is_untold(digest, perf_counter()):
            self.costs.forget(kind)  # What was slow for once is tried again.
            return None
        self.costs.begin(kind, cost)
        return self.own.engine if self.costs.expected_s(kind, num_bytes) <= INLINE_S else None

    def _run(self, lane: Lane, works: list[Work]) -> None:
        try:
            message = _message(works, self.linked.memory.take)
        except Exception as error:
            self._finish_soon(lane, works, error)
            return
        if message is None:
            super()._run(lane, works)
            return
        deadline = max([work.deadline for work in works])
        num_bytes = sum([work.num_bytes for work in works])
        if num_bytes <= self.inline_batch_bytes and works[0].operation != "decode":
            self.own.note(works)
        message.values |= {
            "bytes": num_bytes,
            "is_long": lane is self._lanes[True],
            "deadline": deadline,
        }
        self._ask(Asked(self, lane, works, message, deadline))

    def _ask(self, asked: Asked) -> None:
        """Send a batch to the engine process."""
        try:
            asked.number = self.linked.ask(asked.message, asked)
        except EngineLost as error:
            self._finish_soon(asked.lane, asked.works, error)
            return
        self._asked.add(asked)
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _finish_soon(self, lane: Lane, works: list[Work], error: Exception) -> None:
        """Refuse a batch in the loop's next turn: the one that waits behind it comes then."""
        asyncio.get_running_loop().call_soon(self._finish_running, lane, works, error)

    def answered(self, asked: Asked, answer: Message | BaseException) -> None:
        """Take the answer to a batch, or why there is none."""
        if isinstance(answer, ServiceError) and answer.code == UNKNOWN_DIGEST:
            asked.teaching = asyncio.ensure_future(self._teach(asked))
            return
        self._asked.discard(asked)
        lane, works = asked.lane, asked.works
        try:
            outcome = answer if isinstance(answer, BaseException) else _results(works, answer)
        except Exception as error:
            outcome = error
        if isinstance(outcome, list):
            self._finish_running(lane, works, (outcome, perf_counter() - works[0].started))
        else:
            self._finish_running(lane, works, outcome)

    async def _teach(self, asked: Asked) -> None:
        """Send a vocabulary that the engine process does not know, and the batch again."""
        try:
            await self.linked.teach(asked.works[0].vocabulary)
        except Exception as error:
            self.answered(asked, error)
        else:
            if asked in self._asked:
                self._ask(asked)

    def _look(self) -> None:
        """Give up batches that nobody waits for any more, or that are not answered in time."""
        self._looking, now = None, perf_counter()
        for asked in list(self._asked):
            if now > asked.deadline + GRACE_S or asked.is_unwanted():
                self._asked.discard(asked)
                self.linked.give_up(asked.number)
                late = DeadlinePassed("the engine process did not answer in time")
                self._finish_running(asked.lane, asked.works, late)
        if self._asked:
            self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _measure_running(self, works: list[Work], outcome: Outcome) -> None:
        """The engine process counts what its engine ran; here it is a time on the way."""
        self.metrics.stage("link", outcome[1])


class Asked:
    """A batch on its way, which the link tells its answer."""

    __slots__ = ("batcher", "deadline", "lane", "message", "number", "teaching", "works")

    def __init__(
        self,
        batcher: LinkedBatcher,
        lane: Lane,
        works: list[Work],
        message: Message,
        deadline: float,
    ) -> None:
        self.batcher, self.lane, self.works, self.message = batcher, lane, works, message
        self.deadline, self.number = deadline, 0
        self.teaching: asyncio.Task[None] | None = None  # Kept from being collected.

    def done(self) -> bool:
        """Whether there is nothing to wait for any more: it is given up then."""
        return False

    def is_unwanted(self) -> bool:
        """Whether nobody waits for it any more."""
        return all(work.future is not None and work.future.done() for work in self.works)

    def set_result(self, message: Message) -> None:
        """The answer is there."""
        self.batcher.answered(self, message)

    def set_exception(self, error: BaseException) -> None:
        """There will be no answer."""
        self.batcher.answered(self, error)


def _message(works: list[Work], take: Take) -> Message | None:
    """All works as one message; None where their rows of ids do not make one.

    Args:
        works: of one operation.
        take: gives memory for texts that are joined.
    """
    first = works[0]
    if first.operation != "decode":
        return texts_message(first.operation, first.vocabulary.digest, joined_texts(works, take))
    if any(work.skip_special_tokens != first.skip_special_tokens for work in works):
        return None
    try:
        ids, offsets = _flat_ids(works)
    except OverflowError:
        return None
    return decode_message(first.vocabulary.digest, ids, offsets, first.skip_special_tokens)


def _flat_ids(works: list[Work]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All rows as int64[T] and offsets int64[B + 1]."""
    rows = works[0].rows
    if len(works) == 1 and isinstance(rows, IdRows):
        return rows.ids.astype(np.int64, copy=False), rows.offsets
    lists = joined_rows(works)
    offsets = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(row) for row in lists], out=offsets[1:])
    return np.fromiter(chain.from_iterable(lists), np.int64, int(offsets[-1])), offsets


def _results(works: list[Work], answer: Message) -> list[Result]:
    """Each work's part of the answer."""
    match works[0].operation:
        case "encode":
            return split_encoded(works, encoded_of(answer))
        case "count":
            return split_counted(works, counted_of(answer))
        case "decode":
            return split_decoded(works, decoded_of(answer), sum(map(num_ids_of, works)))
        case "encode_shared":
            raise AssertionError("a front end shares no memory with a device")
