"""The batcher of a front end: the same queues and lanes, batches run in the engine process.

    submit ──► queues ──► take ──► link ──► engine process: its batcher joins all front ends' ──► …

At most two batches of short requests are on their way, so that what arrives meanwhile is joined
here, and what waits, waits here, where it is counted in bytes and refused above `max_queue_bytes`.
Long requests are not joined: a few more of them keep the engine busy while answers travel.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from itertools import chain
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.batcher import Batcher, Outcome
from service.batches import (
    joined_rows,
    joined_texts,
    num_ids_of,
    run_works,
    split_counted,
    split_decoded,
    split_encoded,
)
from service.errors import DeadlinePassed
from service.lanes import PREPARED, Lane
from service.large_memory import Take
from service.link import Message
from service.link_batches import (
    counted_of,
    decode_message,
    decoded_of,
    encoded_of,
    texts_message,
)
from service.linked_engine import LinkedEngine
from service.metrics import Metrics
from service.rates import Limits
from service.settings import Settings
from service.work import IdRows, Result, Work

__all__ = ["LinkedBatcher"]

GRACE_S = 1.0  # After the deadline, which is the engine process's to see.
GONE_S = 0.1  # How often it is looked whether anybody still waits for a batch.
LONG_ON_THE_WAY = 4
NEVER = -1  # Bytes up to which a batch runs on the loop itself.


class LinkedBatcher(Batcher):
    """Joins waiting work into batches for the engine process."""

    def __init__(
        self,
        engine: LinkedEngine,
        settings: Settings,
        metrics: Metrics,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(engine, settings, metrics, limits)
        self.linked, self.inline_batch_bytes = engine, NEVER
        self._lanes[True].at_once = LONG_ON_THE_WAY - PREPARED

    def _run(self, lane: Lane, works: list[Work]) -> asyncio.Future[Outcome]:
        return asyncio.ensure_future(self._ask(lane, works))

    async def _ask(self, lane: Lane, works: list[Work]) -> Outcome:
        begin, vocabulary = perf_counter(), works[0].vocabulary
        message = _message(works, self.linked.memory.take)
        if message is None:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(lane.thread, run_works, self.linked, works)
        deadline = max(work.deadline for work in works)
        patience_s = None if deadline == math.inf else max(0.0, deadline - begin) + GRACE_S
        message.values |= {
            "bytes": sum(work.num_bytes for work in works),
            "is_long": lane is self._lanes[True],
            "deadline": deadline,
        }
        try:
            async with asyncio.timeout(patience_s):
                answer = await _wanted(self.linked.run(vocabulary, message), works)
        except TimeoutError as error:
            raise DeadlinePassed("the engine process did not answer in time") from error
        return _results(works, answer), perf_counter() - begin

    def _measure(
        self, works: list[Work], results: list[Result], num_bytes: int, seconds: float
    ) -> None:
        """The engine process counts what its engine ran; here it is a time on the way."""
        self.metrics.stage("link", seconds)


async def _wanted(call: Coroutine[Any, Any, Message], works: list[Work]) -> Message:
    """The answer to a call, which is given up when nobody waits for it any more."""
    asked = asyncio.ensure_future(call)
    try:
        while not (await asyncio.wait({asked}, timeout=GONE_S))[0]:
            if all(work.future is not None and work.future.done() for work in works):
                asked.cancel()
        return await asked
    finally:
        asked.cancel()


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
