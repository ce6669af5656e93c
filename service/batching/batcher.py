"""Waiting requests -> batches -> engine -> each its part, on one event loop.

Knows no HTTP and no vocabulary's meaning. There is no artificial delay: what arrives in one tick
of the loop goes together; while the engine is busy the next batch collects.

    submit ──► queue of its (digest, operation, lane) ──► take ──► engine ──► finish ──► futures
                 one queue each, served in turn,           │
                 clients inside by deficit round robin     │
                                                           ├─ a small batch runs on the loop itself
                                                           └─ others on their lane's thread, one
                                                              running and one prepared (lanes.py)

Two lanes: a request above `long_request_bytes` never stands in front of short ones.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from time import perf_counter

from service.batching.admission import ANSWERED, Admission, outcome_of
from service.batching.batch import Placed, run_works
from service.batching.cost_model import Costs
from service.batching.fair_queue import Queue
from service.batching.lanes import PREPARED, Key, Lane, make_lanes
from service.batching.work import ClientGone, Result, Waiter, Work
from service.core.errors import DeadlinePassed, Draining, ServiceError
from service.core.settings import Settings
from service.engines.base import Abandoned, Engine
from service.observability.metrics import Metrics
from service.security.rate_limits import Limits

logger = logging.getLogger(__name__)

Outcome = tuple[list[Result], float]  # Each work's part, and the seconds that the engine took.
DRAIN_PERIOD_S = 0.02
SWEEP_S = 0.05
INLINE_S = 0.002  # The longest a batch may be expected to hold the loop.


class Batcher:
    """Joins waiting work into batches and gives each request its part.

    All methods belong to the event loop's thread; only the engine runs elsewhere.
    """

    def __init__(
        self, engine: Engine, settings: Settings, metrics: Metrics, limits: Limits | None = None
    ) -> None:
        self.engine, self.metrics = engine, metrics
        self.admission = Admission(settings, metrics, limits or Limits())
        self.inline_batch_bytes = settings.inline_batch_bytes
        self.long_request_bytes = settings.long_request_bytes
        self.placed: Placed | None = None  # Puts ids where they are wanted, on the lane's thread.
        self.num_streams = 0  # Streams that still bring work; whoever opens one counts it.
        self._queues: dict[Key, Queue] = {}
        self._lanes = make_lanes(settings.max_batch_bytes, engine.name == "gpu")
        self.costs = Costs()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tick_scheduled = False
        self._sweep: asyncio.TimerHandle | None = None
        self._draining = self._stopped = False

    @property
    def queue_bytes(self) -> int:
        """Bytes waiting or being computed."""
        return self.admission.num_bytes

    @property
    def queue_rows(self) -> int:
        """Rows waiting or being computed."""
        return self.admission.num_rows

    def start(self) -> None:
        """Begin to accept work, on the running loop."""
        self._loop = asyncio.get_running_loop()

    def submit(self, work: Work) -> Waiter:
        """Put work into its queue; what waits for its part of a batch, a future if need be.

        Raises:
            QueueFull, RateLimited: see `Admission.enter`; nothing was taken.
            Draining: the service is stopping.
        """
        loop = self._loop
        if loop is None or self._stopped or (self._draining and not work.is_part):
            raise Draining("the service is stopping; ask another replica")
        self.admission.enter(work)
        work.future = work.future or loop.create_future()
        is_long = work.num_bytes > self.long_request_bytes if work.is_long is None else work.is_long
        key = (work.vocabulary.digest, work.operation, is_long)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = Queue()
            self._lanes[key[2]].turns.append(key)
        queue.add(work)
        if not self._tick_scheduled:
            self._tick_scheduled = True
            loop.call_soon(self._tick)
        return work.future

    def _tick(self) -> None:
        """At the end of a loop tick: start whatever may start now."""
        self._tick_scheduled = False
        for lane in self._lanes.values():
            self._start_inline(lane)
            while lane.turns and len(lane.batches) < lane.at_once + PREPARED:
                self._start_next(lane)
        self._plan_sweep()

    def _plan_sweep(self) -> None:
        lanes = self._lanes.values()
        waiting = self._queues or any(len(lane.batches) > lane.at_once for lane in lanes)
        if waiting and self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep_waiting)

    def _start_inline(self, lane: Lane) -> None:
        """Run batches so small that handing them over would cost more than they do."""
        for key in list(lane.turns):
            engine = self._inline_engine(key, self._queues[key].num_bytes)
            if engine is not None and (works := self._take(lane, key)):
                outcome = run_works(engine, works)
                self._finish(works, outcome)
                self._measure(works, outcome)

    def _inline_engine(self, key: Key, num_bytes: int) -> Engine | None:
        """What runs so many bytes of a queue on the loop itself; None: another thread does."""
        if num_bytes > self.inline_batch_bytes:
            return None
        return self.engine if self.costs.expected_s(key[:2], num_bytes) <= INLINE_S else None

    def _start_next(self, lane: Lane) -> None:
        if not (works := self._take(lane, lane.turns[0])):
            return
        lane.batches.append(works)
        self._run(lane, works)

    def _run(self, lane: Lane, works: list[Work]) -> None:
        """Begin a batch that the loop itself does not run; `_finish_running` is told its end."""
        call_soon, call = asyncio.get_running_loop().call_soon_threadsafe, self._run_works
        finish = self._finish_running
        lane.threads.submit(lambda: call_soon(finish, lane, works, call(works)))

    def _run_works(self, works: list[Work]) -> Outcome | BaseException:
        """What the engine makes of a batch, on its lane's thread."""
        try:
            return run_works(self.engine, works, self.placed)
        except BaseException as error:
            return error

    def _take(self, lane: Lane, key: Key) -> list[Work]:
        """Whole requests of one queue up to the byte budget; an emptied queue leaves the turns."""
        queue, now = self._queues[key], perf_counter()
        works = queue.take(lane.max_batch_bytes, partial(self._is_dropped, now=now))
        for work in works:
            work.started = now
        lane.turns.remove(key)
        if queue:
            lane.turns.append(key)
        else:
            del self._queues[key]
        return works

    def _is_dropped(self, work: Work, now: float) -> bool:
        """Whether nobody wants the work any more: its client is gone, or its deadline passed."""
        assert work.future is not None
        if not work.future.done():
            if now < work.deadline:
                return False
        self._settle(work, DeadlinePassed("the deadline passed in the queue"))
        return True

    def _settle(self, work: Work, outcome: Result | BaseException) -> None:
        """Answer or refuse accepted work, unless its client is gone or was told; count it."""
        future = work.future
        assert future is not None
        if future.done():
            self.admission.leave(work, outcome_of(future))
        elif isinstance(outcome, Result):
            future.set_result(outcome)
            self.admission.leave(work, ANSWERED)
        else:
            future.set_exception(outcome)
            self.admission.leave(work, outcome_of(future))

    def _finish_running(
        self, lane: Lane, works: list[Work], outcome: Outcome | BaseException
    ) -> None:
        if works not in lane.batches:  # It was refused when the grace time was over.
            return
        lane.batches.remove(works)
        if isinstance(outcome, tuple):
            self._finish(works, outcome)
            self._measure_running(works, outcome)
        else:
            if not isinstance(outcome, ServiceError | Abandoned):
                text = "This is a bug. A batch of %d requests failed"
                logger.error(text, len(works), exc_info=outcome)
            self._fail(works, outcome)
        self._tick()

    def _fail(self, works: list[Work], error: BaseException) -> None:
        for work in works:
            self._settle(work, error)

    def _finish(self, works: list[Work], outcome: Outcome) -> None:
        """Hand every request its part."""
        results, seconds = outcome
        now, queued = perf_counter(), self.metrics.queue_seconds
        for work, result in zip(works, results, strict=True):
            waited_s = work.started - work.submitted
            queued.add(waited_s)
            if work.times is not None:
                work.times.finish_work(waited_s, seconds, now)
            self._settle(work, result)

    def _measure_running(self, works: list[Work], outcome: Outcome) -> None:
        """Count a batch that `_run` had run."""
        self._measure(works, outcome)

    def _measure(self, works: list[Work], outcome: Outcome) -> None:
        """Count a batch that an engine ran, and remember what a byte of its vocabulary costs."""
        (results, seconds), first = outcome, works[0]
        num_bytes = sum([work.num_bytes for work in works])
        num_rows, last = sum([work.num_rows for work in works]), results[-1]
        self.metrics.batch(last.engine, first.operation, num_rows, num_bytes, last.batch_tokens)
        # The parts of a batch share one dictionary of refusals, or a few: see batches.run_works.
        for errors in {id(part.errors): part.errors for part in results if part.errors}.values():
            self.metrics.rows_refused(refusal.code for refusal in errors.values())
        self.metrics.stage("encode", seconds)
        self.costs.note((first.vocabulary.digest, first.operation), num_bytes, seconds)

    def _sweep_waiting(self) -> None:
        """While requests wait: answer those whose deadline passed, and notice gone clients."""
        self._sweep = None
        now = perf_counter()
        for key, queue in list(self._queues.items()):
            queue.remove(partial(self._is_dropped, now=now))
            for work in queue:
                work.watch()
            if not queue:
                del self._queues[key]
                self._lanes[key[2]].turns.remove(key)
        for lane in self._lanes.values():
            for works in list(lane.batches)[lane.at_once :]:
                for work in works:
                    self._expire_prepared(work, now)
        self._plan_sweep()

    def _expire_prepared(self, work: Work, now: float) -> None:
        """A prepared batch stays as it is; who cannot wait for it is told so now."""
        assert work.future is not None
        if now >= work.deadline and not work.future.done():
            work.future.set_exception(DeadlinePassed("the deadline passed before its turn"))

    async def run(self, work: Work) -> Result:
        """Submit work and wait for its part; a cancelled caller takes its work out of the queue.

        Raises:
            ServiceError: refused, or the deadline passed in the queue.
            ClientGone: nobody waits for the answer any more.
        """
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
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

    async def stop(self, grace_s: float) -> None:
        """Refuse new work, finish what was accepted within the grace time, refuse the rest.

        A stream was accepted as a whole: its parts are taken until it ends.
        """
        self._draining = True
        try:
            async with asyncio.timeout(grace_s):
                while self.num_streams or self._queues or self.queue_rows:
                    await asyncio.sleep(DRAIN_PERIOD_S)
        except TimeoutError:
            logger.warning("drain: %d rows were not reached in time", self.queue_rows)
        self._stopped = True
        late = Draining("the service stopped before this request's turn")
        while self._queues:
            self._fail(list(self._queues.popitem()[1]), late)
        for lane in self._lanes.values():
            lane.turns.clear()
            lane.threads.shutdown()
            while lane.batches:
                self._fail(lane.batches.popleft(), late)
