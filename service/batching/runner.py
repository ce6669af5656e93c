"""Runs batches outside of the event loop: the interface, and the runner of an engine in-process.

The batcher decides which works are a batch and when; a runner has it computed. A front end has
another runner, which sends batches to the engine process (multiprocess/remote_runner.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from service.batching.batch import BatchResults, PlaceIds, run_works
from service.batching.queues import CostKey, QueueKey
from service.batching.work import AnyWork
from service.core.settings import Settings
from service.engines.base import Codec
from service.observability.metrics import Metrics

INLINE_S = 0.002  # The longest a batch may be expected to hold the loop.
LONG_ON_GPU = 2  # The device has the next one while the ids of the last are taken away.
MAX_MEASURED = 4_096  # Vocabularies and operations; the last ones stay.
MOST_TIMES = 4  # The most by which one batch may exceed the average: it may have lost its core.
LEAST_BYTES = 64  # A smaller batch costs as much.
UNKNOWN_S = 0.002  # A byte, until it is measured: longer than a batch may hold the loop.

Finish = Callable[[BatchResults | BaseException], None]


class CostModel:
    """Predicts how long the engine takes for a batch, from what its last batches took.

    It keeps moving averages of seconds a byte, by digest and operation.
    """

    def __init__(self) -> None:
        self._seconds_per_byte: dict[CostKey, float] = {}

    def expected_s(self, key: CostKey, num_bytes: int) -> float:
        """Seconds that so many bytes should take."""
        return num_bytes * self._seconds_per_byte.get(key, UNKNOWN_S)

    def assume(self, key: CostKey, seconds_per_byte: float) -> None:
        """Assume a cost until a batch has been measured."""
        self._seconds_per_byte.setdefault(key, seconds_per_byte)

    def forget(self, key: CostKey) -> None:
        """Forget what was measured."""
        self._seconds_per_byte.pop(key, None)

    def learn(self, key: CostKey, num_bytes: int, seconds: float) -> None:
        """Learn from a batch that took so many seconds."""
        measured = seconds / max(num_bytes, LEAST_BYTES)
        before = self._seconds_per_byte.pop(key, measured)
        self._seconds_per_byte[key] = 0.75 * before + 0.25 * min(measured, MOST_TIMES * before)
        if len(self._seconds_per_byte) > MAX_MEASURED:  # Uploads come and go.
            del self._seconds_per_byte[next(iter(self._seconds_per_byte))]


class BatchRunner(Protocol):
    """Has batches computed; all methods belong to the event loop's thread."""

    @property
    def costs(self) -> CostModel:
        """What batches that run on the loop cost."""

    @property
    def long_at_once(self) -> int:
        """Long requests that run at once."""

    def inline_engine(self, key: QueueKey, num_bytes: int) -> Codec | None:
        """What computes so many bytes of a queue on the loop itself; None: `run` is for them."""

    def run(self, works: Sequence[AnyWork], is_long: bool, finish: Finish) -> None:
        """Begin a batch; `finish` is called later, on the loop, with its results or its error."""

    def record(self, works: Sequence[AnyWork], finished: BatchResults) -> None:
        """Count a batch that `run` has computed."""

    def shutdown(self) -> None:
        """Begin nothing more; batches that have not begun are dropped without `finish`."""


class LocalRunner:
    """Runs batches on threads of this process, those of short and of long requests apart.

    Args:
        engine: computes them.
        settings: of the service.
        metrics: counts them.
        place_ids: puts ids where they are wanted, on the batch's thread; None: anywhere will do.
    """

    def __init__(
        self,
        engine: Codec,
        settings: Settings,
        metrics: Metrics,
        place_ids: PlaceIds | None = None,
    ) -> None:
        self.engine = engine
        self.costs = CostModel()
        self.long_at_once = LONG_ON_GPU if engine.name == "gpu" else 1
        self._inline_batch_bytes = settings.inline_batch_bytes
        self._metrics = metrics
        self._place_ids = place_ids
        self._short_threads = ThreadPoolExecutor(1, "engine-short")
        self._long_threads = ThreadPoolExecutor(self.long_at_once, "engine-long")

    def inline_engine(self, key: QueueKey, num_bytes: int) -> Codec | None:
        """The engine, where a batch is so small that handing it over would cost more."""
        if num_bytes > self._inline_batch_bytes:
            return None
        return self.engine if self.costs.expected_s(key.cost_key, num_bytes) <= INLINE_S else None

    def run(self, works: Sequence[AnyWork], is_long: bool, finish: Finish) -> None:
        """Begin a batch on a thread."""
        call_soon = asyncio.get_running_loop().call_soon_threadsafe
        threads = self._long_threads if is_long else self._short_threads
        threads.submit(lambda: call_soon(finish, self._run_works(works)))

    def _run_works(self, works: Sequence[AnyWork]) -> BatchResults | BaseException:
        try:
            return run_works(self.engine, works, self._place_ids)
        except BaseException as error:
            return error

    def record(self, works: Sequence[AnyWork], finished: BatchResults) -> None:
        """Count a batch, and remember what a byte of its vocabulary costs."""
        record_batch(self._metrics, self.costs, works, finished)

    def shutdown(self) -> None:
        """Begin nothing more; what a thread is at goes on."""
        for threads in (self._short_threads, self._long_threads):
            threads.shutdown(wait=False, cancel_futures=True)


def record_batch(
    metrics: Metrics, costs: CostModel, works: Sequence[AnyWork], finished: BatchResults
) -> None:
    """Count a batch that an engine of this process ran, and remember what its bytes cost."""
    first, last = works[0], finished.results[-1]
    num_bytes = sum([work.num_bytes for work in works])
    num_rows = sum([work.num_rows or 1 for work in works])
    engine = last.output.engine
    metrics.batch(engine, first.operation, num_rows, num_bytes, last.batch_tokens)
    metrics.stage("encode", finished.seconds)
    # All results of a batch share one output, or each has its own: see `batch.run_works`.
    for output in {id(result.output): result.output for result in finished.results}.values():
        if output.errors:
            metrics.rows_refused(refusal.code for refusal in output.errors.values())
    costs.learn(CostKey(first.vocabulary.digest, first.operation), num_bytes, finished.seconds)
