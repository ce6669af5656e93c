"""Joins waiting requests into batches and hands them to a runner, on one event loop.

    submit ──► queue of its QueueKey ──► take ─┬► a small batch runs on the loop itself ──┐
               queues are served in turn,      └► any other is the lane's next ─► runner ─┤
               and clients within a queue                                                 ▼
               by deficit round robin                                 completions ◄── finish

There is no artificial delay: requests that arrive in one tick of the loop go together, and while
the runner is busy, the next batch collects. Short and long requests have a lane each (queues.py),
so that short requests never wait for one above `long_request_bytes`. Knows no HTTP, and not what a
vocabulary means.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from time import perf_counter

from service.batching.batch import BatchResults, run_works
from service.batching.queues import (
    ANSWERED,
    CANCELLED,
    FAILED,
    ONE_REQUEST_BYTES,
    Admission,
    Lane,
    Queue,
    QueueKey,
    make_queue_key,
)
from service.batching.runner import BatchRunner, record_batch
from service.batching.work import (
    AnyResult,
    AnyWork,
    ClientGone,
    Completion,
    Output,
    Result,
    WorkItem,
)
from service.core.errors import DeadlinePassed, Draining, ServiceError
from service.core.settings import Settings
from service.engines.base import Abandoned
from service.observability.metrics import Metrics
from service.security.rate_limits import Limits

logger = logging.getLogger(__name__)

DRAIN_PERIOD_S = 0.02
SWEEP_S = 0.05


class Batcher:
    """Joins waiting work items into batches and gives each request its rows of the results.

    All methods run on the event loop's thread; only the runner has other threads.

    Args:
        runner: has batches computed.
        settings: the settings of the service.
        metrics: counts requests and batches.
        limits: the rate limits of clients; None: there are none.

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
        self.short_lane = Lane(False, 1, settings.max_batch_bytes)
        self.long_lane = Lane(True, runner.long_at_once, ONE_REQUEST_BYTES)
        self._queues: dict[QueueKey, Queue] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_tick_scheduled = False
        self._sweep: asyncio.TimerHandle | None = None
        self._is_draining = False
        self._is_stopped = False

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
        """Put a work item into its queue and return its completion; make a future if it has none.

        Raises:
            QueueFull, RateLimited: see `Admission.enter`; the work item is in no queue.
            Draining: the service is stopping.
        """
        loop = self._loop
        if loop is None or self._is_stopped or (self._is_draining and not work.is_part):
            raise Draining("the service is stopping; ask another replica")
        key = make_queue_key(work, self.long_request_bytes)
        self.admission.enter(work)
        if work.future is None:
            work.future = loop.create_future()
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = Queue()
            self._lane_of(key).queues.append(key)
        queue.add(work)
        if not self._is_tick_scheduled:
            self._is_tick_scheduled = True
            loop.call_soon(self._tick)
        return work.future

    async def run(self, work: WorkItem[Output]) -> Result[Output]:
        """Submit a work item and wait for its rows; a cancelled caller cancels the work item.

        Raises:
            ServiceError: it was refused, or its deadline passed in the queue.
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
        finally:
            work.unwatch()

    def _lane_of(self, key: QueueKey) -> Lane:
        return self.long_lane if key.is_long else self.short_lane

    def _tick(self) -> None:
        """Start all batches that may start; called once at the end of a tick of the loop."""
        self._is_tick_scheduled = False
        for lane in (self.short_lane, self.long_lane):
            self._run_inline(lane)
            while lane.queues and lane.can_start:
                self._start_next(lane)
        self._plan_sweep()

    def _run_inline(self, lane: Lane) -> None:
        """Run the batches that are so small that handing them over would cost more."""
        for key in list(lane.queues):
            engine = self.runner.inline_engine(key, self._queues[key].num_bytes)
            if engine is not None and (works := self._take(lane, key)):
                finished = run_works(engine, works)
                self._finish(works, finished)
                record_batch(self.metrics, self.runner.costs, works, finished)

    def _start_next(self, lane: Lane) -> None:
        """Hand the next queue's batch to the runner, unless all of its work items are dropped."""
        if works := self._take(lane, lane.queues[0]):
            lane.batches.append(works)
            self.runner.run(works, lane.is_long, partial(self._finish_started, lane, works))

    def _take(self, lane: Lane, key: QueueKey) -> list[AnyWork]:
        """Take whole requests of a queue up to the lane's limit; an empty queue leaves the lane."""
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
        """Settle a work item if its client is gone or its deadline has passed; return if so."""
        if now < work.deadline and not work.is_done:
            return False
        self._settle(work, DeadlinePassed("the deadline passed in the queue"))
        return True

    def _finish_started(
        self, lane: Lane, works: list[AnyWork], finished: BatchResults | BaseException
    ) -> None:
        """Answer a batch that the runner has computed, or refuse it if that failed."""
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
        """Give every request its rows."""
        now = perf_counter()
        queue_seconds = self.metrics.queue_seconds
        for work, result in zip(works, finished.results, strict=True):
            waited_s = work.started - work.submitted
            queue_seconds.add(waited_s)
            if work.times is not None:
                work.times.finish_work(waited_s, finished.seconds, now)
            self._settle(work, result)

    def _settle(self, work: AnyWork, answer: AnyResult | BaseException) -> None:
        """Complete a work item that is not refused or cancelled yet, and count its outcome."""
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
        """Schedule a sweep of the waiting requests in SWEEP_S seconds, if there are any."""
        lanes = (self.short_lane, self.long_lane)
        is_waiting = self._queues or any(len(lane.batches) > lane.at_once for lane in lanes)
        if is_waiting and self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep_waiting)

    def _sweep_waiting(self) -> None:
        """Refuse requests whose deadline has passed, and watch for clients that disconnect."""
        self._sweep = None
        now = perf_counter()
        for key, queue in list(self._queues.items()):
            queue.remove(partial(self._drop_if_unwanted, now=now))
            for work in queue:
                work.watch()
            if not queue:
                del self._queues[key]
                self._lane_of(key).queues.remove(key)
        for lane in (self.short_lane, self.long_lane):
            for works in list(lane.batches)[lane.at_once :]:
                for work in works:
                    self._refuse_late(work, now)
        self._plan_sweep()

    def _refuse_late(self, work: AnyWork, now: float) -> None:
        """Refuse a work item of a prepared batch if its deadline has passed; the batch keeps it."""
        if now >= work.deadline and work.future is not None and not work.future.done():
            work.refusal = DeadlinePassed.code
            work.future.set_exception(DeadlinePassed("the deadline passed in the queue"))

    async def stop(self, grace_s: float) -> None:
        """Refuse new requests, finish accepted ones within the grace time, refuse the rest.

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
        for lane in (self.short_lane, self.long_lane):
            lane.queues.clear()
            while lane.batches:
                self._fail(lane.batches.popleft(), stopped)
