"""Joins waiting requests into batches and hands them to a runner, on one event loop.

    submit ──► queue of its QueueKey ──► take ─┬► a small batch runs on the loop itself ──┐
               queues are served in turn,      └► any other is the lane's next ─► runner ─┤
               and clients within a queue                                                 ▼
               by deficit round robin                                 completions ◄── finish

There is no artificial delay: requests that arrive in one tick of the loop form a batch, and while
the runner is busy, the next batch fills. Short and long requests have separate lanes, so that short
requests never wait for one above `long_request_bytes`. Requests whose vocabulary has unknown
patterns may take unbounded time, and have a third lane. This module depends neither on HTTP nor on
the contents of a vocabulary.

A work item is counted when it is admitted, and again when it ends: as answered, failed, cancelled,
or by the code of its refusal.

Work items of one vocabulary, operation and lane wait in one queue, which serves its clients by
deficit round robin [1]: the client that is served gets QUANTUM bytes of credit, spends them on its
work items, and keeps the rest for the next round; a client without waiting work items loses its
credit. So each of n busy clients gets 1 / n of the bytes, whether it sends many small texts or a
few large ones.

The queues of a lane are served in turn. In the lane of short requests, several requests form a
batch. In the lane of long requests each request is its own batch, as joining them would copy many
bytes. The isolated lane does the same, and stops batches that take too long; one vocabulary may use
only some of its places.

    [1] M. Shreedhar, G. Varghese: Efficient fair queuing using deficit round-robin. 1996.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from time import perf_counter
from typing import NoReturn

from service.batching.runner import BatchResults, BatchRunner, record_batch, run_works
from service.batching.work import (
    ENDED,
    AnyResult,
    AnyWork,
    ClientGone,
    Completion,
    CostKey,
    DecodeWork,
    LaneName,
    Output,
    QueueKey,
    Result,
    WorkItem,
)
from service.core.errors import DeadlinePassed, Draining, QueueFull, ServiceError
from service.core.settings import Settings
from service.engines.base import Abandoned, EngineStatus
from service.observability.metrics import Metrics
from service.security.rate_limits import Limits

logger = logging.getLogger(__name__)

DRAIN_PERIOD_S = 0.02
SWEEP_S = 0.05
# A client may have as many bytes in the queue as this many times the free bytes: one busy client
# gets four fifths of the queue, two get four ninths each, and some bytes are always free.
MAX_CLIENT_TO_FREE = 4
ANSWERED = "answered"
CANCELLED = "cancelled"
FAILED = "failed"
IN_QUEUE = "the deadline passed in the queue"
QUANTUM = 65_536  # Bytes; above most requests, so that a client is mostly served one in a round.
NUM_PREPARED = 1  # Batches that wait beside those that run, so that the runner is never idle.
ONE_REQUEST_BYTES = 1  # The limit of a batch that is one request, whatever its size.


class Admission:
    """Admits work items, and counts the bytes and rows of those that have not ended.

    Attributes:
        num_bytes, num_rows: the totals of all admitted work items that have not ended; a work item
            without rows counts as one row.
        bytes_elsewhere: the waiting bytes in other processes of the same service, as reported some
            time ago.
    """

    def __init__(self, settings: Settings, metrics: Metrics, limits: Limits) -> None:
        self.max_bytes = settings.max_queue_bytes
        # A report may be half a second old, while a GPU empties the whole queue in a tenth of that.
        self.share_bytes = self.max_bytes // max(1, settings.frontends)
        self.metrics = metrics
        self.limits = limits
        self.num_bytes = 0
        self.num_rows = 0
        self.bytes_elsewhere = 0
        self._client_bytes: defaultdict[str, int] = defaultdict(int)

    def enter(self, work: AnyWork) -> None:
        """Admit a work item, and count it.

        Raises:
            QueueFull: the total would exceed `max_queue_bytes` and the bytes of this process its
                share of them, or the client's bytes would exceed MAX_CLIENT_TO_FREE times the free
                bytes.
            RateLimited: the client has sent too many bytes in the last seconds.
        """
        waiting = self.num_bytes + self.bytes_elsewhere
        free_bytes = max(self.max_bytes - waiting, self.share_bytes - self.num_bytes)
        if work.num_bytes > free_bytes and waiting:
            self._refuse(f"{waiting} bytes are waiting")
        if client := work.client:
            own_bytes = self._client_bytes[client]
            if own_bytes and own_bytes + work.num_bytes > MAX_CLIENT_TO_FREE * free_bytes:
                self._refuse(f"{own_bytes} bytes of {client} are waiting, {free_bytes} are free")
            self.limits.check_bytes(client)
            self.limits.charge(client, work.num_bytes)
            self._client_bytes[client] += work.num_bytes
        self.num_bytes += work.num_bytes
        self.num_rows += len(work.rows) or 1
        self.metrics.count_accepted()

    def _refuse(self, reason: str) -> NoReturn:
        raise QueueFull(f"{reason}; max_queue_bytes is {self.max_bytes}; try again")

    def leave(self, work: AnyWork, outcome: str) -> None:
        """Count the end of a work item whose future is done."""
        self.num_bytes -= work.num_bytes
        self.num_rows -= len(work.rows) or 1
        if work.client:
            self._client_bytes[work.client] -= work.num_bytes
            if not self._client_bytes[work.client]:
                del self._client_bytes[work.client]
        self.metrics.count_finished(outcome)


def make_queue_key(work: AnyWork, long_request_bytes: int) -> QueueKey:
    """Make the key of the queue that a work item belongs to."""
    is_long = work.num_bytes > long_request_bytes if work.is_long is None else work.is_long
    lane: LaneName = "long" if is_long else "short"
    if work.vocabulary.may_take_long:
        lane = "isolated"
    skip = isinstance(work, DecodeWork) and work.skip_special_tokens
    return _make_key(work.vocabulary.digest, work.operation, skip, lane)


@lru_cache(1024)
def _make_key(digest: str, operation: str, skip: bool, lane: LaneName) -> QueueKey:
    return QueueKey(CostKey(digest, operation), skip, lane)


@dataclass(slots=True)
class Queue:
    """Waiting work items by client; the client that is served next comes first.

    Attributes:
        num_bytes: the bytes of all waiting work items.
    """

    num_bytes: int = 0
    _waiting: dict[str, deque[AnyWork]] = field(default_factory=dict)
    _credits: dict[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __iter__(self) -> Iterator[AnyWork]:
        for works in self._waiting.values():
            yield from works

    def add(self, work: AnyWork) -> None:
        """Append a work item to those of its client."""
        works = self._waiting.get(work.client)
        if works is None:
            works = self._waiting[work.client] = deque()
            self._credits[work.client] = QUANTUM
        works.append(work)
        self.num_bytes += work.num_bytes

    def take(self, max_bytes: int, drop_if_unwanted: Callable[[AnyWork], bool]) -> list[AnyWork]:
        """Remove and return work items for a batch: one of any size, or several up to `max_bytes`.

        Args:
            max_bytes: the limit of the batch.
            drop_if_unwanted: completes a work item for which nobody waits and returns True; the
                queue then drops it.
        """
        works: list[AnyWork] = []
        free_bytes = max_bytes
        while self._waiting:
            client, waiting = next(iter(self._waiting.items()))
            credit = self._credits[client] if len(self._waiting) > 1 else None
            while waiting and (credit is None or waiting[0].num_bytes <= credit):
                work = waiting[0]
                if works and work.num_bytes > free_bytes:
                    self._credits[client] = QUANTUM if credit is None else credit
                    return works
                self.num_bytes -= waiting.popleft().num_bytes
                if drop_if_unwanted(work):
                    continue
                works.append(work)
                free_bytes -= work.num_bytes
                credit = None if credit is None else credit - work.num_bytes
            self._move_to_end(client, credit or 0)
        return works

    def _move_to_end(self, client: str, credit: int) -> None:
        """Move a client to the end, or remove it if it has no waiting work items."""
        waiting = self._waiting.pop(client)
        del self._credits[client]
        if waiting:
            self._waiting[client] = waiting
            self._credits[client] = credit + QUANTUM

    def remove(self, drop_if_unwanted: Callable[[AnyWork], bool]) -> None:
        """Remove the work items for which `drop_if_unwanted` returns True."""
        for client, waiting in list(self._waiting.items()):
            kept = deque(work for work in waiting if not drop_if_unwanted(work))
            if kept:
                self._waiting[client] = kept
            else:
                del self._waiting[client], self._credits[client]
        self.num_bytes = sum(work.num_bytes for work in self)


@dataclass(slots=True)
class Lane:
    """Queues that are served in turn, and their running and prepared batches.

    Attributes:
        name: the name of the lane in the keys of its queues.
        at_once: the number of batches that may run at once.
        max_batch_bytes: the limit of a batch of several requests.
        num_prepared: the number of batches that may wait in addition to the running ones.
        max_per_vocabulary: the most batches of one vocabulary at once; None: any number.
        queues: the keys of queues with waiting work items; the first one is served next.
        batches: the running batches, followed by the prepared ones.
    """

    name: LaneName
    at_once: int
    max_batch_bytes: int
    num_prepared: int = NUM_PREPARED
    max_per_vocabulary: int | None = None
    queues: deque[QueueKey] = field(default_factory=deque)
    batches: deque[list[AnyWork]] = field(default_factory=deque)

    def find_next(self) -> QueueKey | None:
        """Return the next queue whose batch may be handed to the runner; None if there is none."""
        if not self.queues or len(self.batches) >= self.at_once + self.num_prepared:
            return None
        if self.max_per_vocabulary is None:
            return self.queues[0]
        running = Counter(works[0].vocabulary.digest for works in self.batches)
        for key in self.queues:
            if running[key.cost_key.digest] < self.max_per_vocabulary:
                return key
        return None


class Batcher:
    """Joins waiting work items into batches, and returns to each request its rows of the results.

    All methods run on the event loop's thread; only the runner has other threads.

    Args:
        runner: computes the batches.
        settings: the settings of the service.
        metrics: counts requests and batches.
        limits: the rate limits of clients; None: no limits.

    Attributes:
        num_streams: the number of open streams, counted by the code that opens and closes them.
    """

    def __init__(
        self,
        runner: BatchRunner,
        settings: Settings,
        metrics: Metrics,
        limits: Limits | None = None,
    ) -> None:
        self.runner = runner
        self.metrics = metrics
        self.admission = Admission(settings, metrics, limits or Limits())
        self.long_request_bytes = settings.long_request_bytes
        self.num_streams = 0
        self.short_lane = Lane("short", runner.short_at_once, settings.max_batch_bytes)
        self.long_lane = Lane("long", runner.long_at_once, ONE_REQUEST_BYTES)
        self.isolated_lane = Lane(
            "isolated", runner.isolated_at_once, ONE_REQUEST_BYTES, 0, runner.isolated_at_once // 2
        )
        self._lanes = {
            lane.name: lane for lane in (self.short_lane, self.long_lane, self.isolated_lane)
        }
        self._queues: dict[QueueKey, Queue] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_tick_scheduled = False
        self._sweep: asyncio.TimerHandle | None = None
        self._is_draining = False
        self._is_stopped = False

    def use_devices(self, status: EngineStatus) -> None:
        """Run as many batches at once as the open devices can."""
        self.runner.use_devices(status)
        self.short_lane.at_once = self.runner.short_at_once
        self.long_lane.at_once = self.runner.long_at_once

    @property
    def queue_bytes(self) -> int:
        """The bytes that wait or are being computed."""
        return self.admission.num_bytes

    @property
    def queue_rows(self) -> int:
        """The rows that wait or are being computed."""
        return self.admission.num_rows

    def start(self) -> None:
        """Begin to accept work items, on the running loop."""
        self._loop = asyncio.get_running_loop()

    def submit(self, work: WorkItem[Output]) -> Completion[Result[Output]]:
        """Add a work item to its queue and return its completion; make a future if it has none.

        Raises:
            QueueFull, RateLimited: see `Admission.enter`; the work item was not queued.
            Draining: the service is stopping.
        """
        loop = self._loop
        if loop is None or self._is_stopped or (self._is_draining and not work.is_part):
            raise Draining("the service is stopping; try another replica")
        key = make_queue_key(work, self.long_request_bytes)
        self.admission.enter(work)
        if work.future is None:
            work.future = loop.create_future()
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = Queue()
            self._lanes[key.lane].queues.append(key)
        queue.add(work)
        if not self._is_tick_scheduled:
            self._is_tick_scheduled = True
            loop.call_soon(self._tick)
        return work.future

    async def run(self, work: WorkItem[Output]) -> Result[Output]:
        """Submit a work item and wait for its rows; cancelling the caller cancels the work item.

        Raises:
            ServiceError: the work item was refused, or its deadline passed in the queue.
            ClientGone: the client has closed the connection.
        """
        future: asyncio.Future[Result[Output]] = asyncio.get_running_loop().create_future()
        work.future = future
        self.submit(work)
        try:
            return await future
        except asyncio.CancelledError:
            if work.is_gone:
                raise ClientGone from None
            raise
        except BaseException:
            # The traceback refers to the work item, which shall not refer to the error: the circle
            # would keep the text until the garbage collector runs.
            work.future = ENDED
            del future
            raise
        finally:
            work.unwatch()

    def _tick(self) -> None:
        """Start all batches that may start; called once at the end of each tick of the loop."""
        self._is_tick_scheduled = False
        for lane in self._lanes.values():
            if not lane.queues:
                continue
            if lane is not self.isolated_lane:
                self._run_inline(lane)
            while (key := lane.find_next()) is not None:
                self._start_next(lane, key)
        self._plan_sweep()

    def _run_inline(self, lane: Lane) -> None:
        """Run small batches on the loop, where handing them to a thread would take longer."""
        for key in list(lane.queues):
            engine = self.runner.inline_engine(key, self._queues[key].num_bytes)
            if engine is not None and (works := self._take(lane, key)):
                finished = run_works(engine, works)
                self._finish(works, finished)
                record_batch(self.metrics, self.runner.costs, works, finished)

    def _start_next(self, lane: Lane, key: QueueKey) -> None:
        """Hand a queue's next batch to the runner, unless all of its work items are dropped."""
        if works := self._take(lane, key):
            lane.batches.append(works)
            self.runner.run(works, lane.name, partial(self._finish_started, lane, works))

    def _take(self, lane: Lane, key: QueueKey) -> list[AnyWork]:
        """Take whole requests from a queue up to the lane's limit; remove the queue if empty."""
        queue = self._queues[key]
        now = perf_counter()
        works = queue.take(lane.max_batch_bytes, partial(self._drop_if_unwanted, now=now))
        for work in works:
            work.started = now
        lane.queues.remove(key)
        if queue:
            lane.queues.append(key)
        else:
            del self._queues[key]
        return works

    def _drop_if_unwanted(self, work: AnyWork, now: float) -> bool:
        """Complete a work item if its client is gone or its deadline passed; return whether so."""
        is_done = work.future is not None and work.future.done()
        if now < work.deadline and not is_done:
            return False
        self._settle(work, DeadlinePassed(IN_QUEUE))
        return True

    def _finish_started(
        self, lane: Lane, works: list[AnyWork], finished: BatchResults | BaseException
    ) -> None:
        """Answer the requests of a computed batch, or refuse them if the batch failed."""
        if works not in lane.batches:  # `stop` has refused it.
            return
        lane.batches.remove(works)
        if isinstance(finished, BatchResults):
            self._finish(works, finished)
            self.runner.record(works, finished)
        else:
            if not isinstance(finished, ServiceError | Abandoned):
                text = "This is a bug. A batch of %d requests failed"
                logger.error(text, len(works), exc_info=finished)
            self._fail(works, finished)
        self._tick()

    def _fail(self, works: Sequence[AnyWork], error: BaseException) -> None:
        for work in works:
            self._settle(work, error)

    def _finish(self, works: Sequence[AnyWork], finished: BatchResults) -> None:
        """Complete each request with its rows."""
        now = perf_counter()
        queue_seconds = self.metrics.queue_seconds
        for work, result in zip(works, finished.results, strict=True):
            waited_s = work.started - work.submitted
            queue_seconds.add(waited_s)
            result.seconds = finished.seconds
            if (times := work.times) is not None:
                times.queue_s += waited_s
                times.encode_s += finished.seconds
                times.finished = now
                times.num_works += 1
            self._settle(work, result)

    def _settle(self, work: AnyWork, answer: AnyResult | BaseException) -> None:
        """Complete a work item unless it is already refused or cancelled, and count its outcome."""
        future = work.future
        assert future is not None
        if future.done():
            outcome = work.refusal or CANCELLED
        elif isinstance(answer, BaseException):
            outcome = answer.code if isinstance(answer, ServiceError) else FAILED
            future.set_exception(answer)
        else:
            outcome = ANSWERED
            future.set_result(answer)
        self.admission.leave(work, outcome)

    def _plan_sweep(self) -> None:
        """Schedule a sweep of waiting and running requests in SWEEP_S seconds, if there are any."""
        is_busy = self._queues or any([lane.batches for lane in self._lanes.values()])
        if is_busy and self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep_all)

    def _sweep_all(self) -> None:
        """Drop requests whose deadline has passed or whose client has disconnected."""
        self._sweep = None
        now = perf_counter()
        for key, queue in list(self._queues.items()):
            queue.remove(partial(self._drop_if_unwanted, now=now))
            for work in queue:
                work.watch()
            if not queue:
                del self._queues[key]
                self._lanes[key.lane].queues.remove(key)
        for lane in self._lanes.values():
            batches = list(lane.batches)
            for works in batches[: lane.at_once]:
                self._sweep_running(works, now)
            for works in batches[lane.at_once :]:
                for work in works:
                    self._refuse_late(work, now >= work.deadline, IN_QUEUE)
        self._plan_sweep()

    def _sweep_running(self, works: Sequence[AnyWork], now: float) -> None:
        """Refuse late requests of a running batch; watch the clients of a batch that takes long."""
        for work in works:
            self._refuse_late(work, now >= work.ends_at, "the deadline passed before the ids came")
            if now - work.started > SWEEP_S and not work.is_done:
                work.watch()

    def _refuse_late(self, work: AnyWork, is_late: bool, message: str) -> None:
        """Refuse a work item if its deadline has passed; the batch still computes it."""
        if is_late and work.future is not None and not work.future.done():
            work.refusal = DeadlinePassed.code
            work.future.set_exception(DeadlinePassed(message))

    @property
    def is_draining(self) -> bool:
        """Whether new requests are refused, as the service stops."""
        return self._is_draining

    async def stop(self, grace_s: float) -> None:
        """Refuse new requests, finish accepted ones within the grace time, and refuse the others.

        A stream is accepted as a whole, so its parts are accepted until it ends.
        """
        self._is_draining = True
        try:
            async with asyncio.timeout(grace_s):
                while self.num_streams or self._queues or self.queue_rows:
                    await asyncio.sleep(DRAIN_PERIOD_S)
        except TimeoutError:
            logger.warning("drain: %d rows were not computed in time", self.queue_rows)
        self._is_stopped = True
        stopped = Draining("the service stopped before it had computed this request")
        while self._queues:
            self._fail(list(self._queues.popitem()[1]), stopped)
        self.runner.shutdown()
        for lane in self._lanes.values():
            lane.queues.clear()
            while lane.batches:
                self._fail(lane.batches.popleft(), stopped)
