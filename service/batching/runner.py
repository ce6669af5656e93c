"""Has batches computed outside of the event loop: the interface, and the runner of one process.

The batcher decides which work items make a batch, and when; a runner has it computed. Front ends
have a runner that sends batches to the engine process (multiprocess/remote_runner.py).
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

MAX_INLINE_S = 0.002  # The longest expected time of a batch that runs on the loop.
GPU_LONG_AT_ONCE = 2  # The device computes the next batch while the ids of the last are copied.
MAX_MEASURED = 4_096  # Vocabularies and operations; the least recently measured are forgotten.
MAX_GROWTH = (
    4  # The most that one measurement counts, in averages: the batch may have lost its core.
)
MIN_BYTES = 64  # A smaller batch costs as much as one of this size.
UNMEASURED_S = 0.002  # Assumed for each byte: too long for a batch that runs on the loop.

Finish = Callable[[BatchResults | BaseException], None]


class CostModel:
    """Predicts how long the engine takes for a batch.

    It keeps moving averages of the seconds for a byte, by digest and operation.
    """

    def __init__(self) -> None:
        self._seconds_per_byte: dict[CostKey, float] = {}

    def expected_s(self, key: CostKey, num_bytes: int) -> float:
        """Predict the seconds for a number of bytes."""
        return num_bytes * self._seconds_per_byte.get(key, UNMEASURED_S)

    def assume(self, key: CostKey, seconds_per_byte: float) -> None:
        """Assume a cost until a batch has been measured."""
        self._seconds_per_byte.setdefault(key, seconds_per_byte)

    def forget(self, key: CostKey) -> None:
        """Forget a measured or assumed cost."""
        self._seconds_per_byte.pop(key, None)

    def learn(self, key: CostKey, num_bytes: int, seconds: float) -> None:
        """Add the measured time of a batch to the average."""
        measured = seconds / max(num_bytes, MIN_BYTES)
        before = self._seconds_per_byte.pop(key, measured)
        self._seconds_per_byte[key] = 0.75 * before + 0.25 * min(measured, MAX_GROWTH * before)
        if len(self._seconds_per_byte) > MAX_MEASURED:  # Uploads come and go.
            del self._seconds_per_byte[next(iter(self._seconds_per_byte))]


class BatchRunner(Protocol):
    """Has batches computed; its methods are called on the event loop's thread."""

    @property
    def costs(self) -> CostModel:
        """The costs of batches that run on the loop."""

    @property
    def long_at_once(self) -> int:
        """The number of long requests that run at once."""

    def inline_engine(self, key: QueueKey, num_bytes: int) -> Codec | None:
        """Return the engine that computes this batch on the loop itself; None: call `run`."""

    def run(self, works: Sequence[AnyWork], is_long: bool, finish: Finish) -> None:
        """Start a batch; `finish` is called later, on the loop, with its results or its error."""

    def record(self, works: Sequence[AnyWork], finished: BatchResults) -> None:
        """Count a batch that `run` has computed."""

    def shutdown(self) -> None:
        """Start no more batches; those that have not started are dropped without `finish`."""


class LocalRunner:
    """Runs batches on threads of this process: one for short requests, others for long ones.

    Args:
        engine: computes the batches.
        settings: the settings of the service.
        metrics: counts the batches.
        place_ids: copies ids into memory that front ends read, on the batch's thread; None: they
            may lie anywhere.
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
        self.long_at_once = GPU_LONG_AT_ONCE if engine.name == "gpu" else 1
        self._inline_batch_bytes = settings.inline_batch_bytes
        self._metrics = metrics
        self._place_ids = place_ids
        self._short_threads = ThreadPoolExecutor(1, "engine-short")
        self._long_threads = ThreadPoolExecutor(self.long_at_once, "engine-long")

    def inline_engine(self, key: QueueKey, num_bytes: int) -> Codec | None:
        """Return the engine if handing the batch to a thread would cost more than running it."""
        if num_bytes > self._inline_batch_bytes:
            return None
        expected_s = self.costs.expected_s(key.cost_key, num_bytes)
        return self.engine if expected_s <= MAX_INLINE_S else None

    def run(self, works: Sequence[AnyWork], is_long: bool, finish: Finish) -> None:
        """Start a batch on a thread."""
        call_soon = asyncio.get_running_loop().call_soon_threadsafe
        threads = self._long_threads if is_long else self._short_threads
        threads.submit(lambda: call_soon(finish, self._run_works(works)))

    def _run_works(self, works: Sequence[AnyWork]) -> BatchResults | BaseException:
        try:
            return run_works(self.engine, works, self._place_ids)
        except BaseException as error:
            return error

    def record(self, works: Sequence[AnyWork], finished: BatchResults) -> None:
        """Count a batch, and learn what a byte of its vocabulary costs."""
        record_batch(self._metrics, self.costs, works, finished)

    def shutdown(self) -> None:
        """Start no more batches; those that run go on."""
        for threads in (self._short_threads, self._long_threads):
            threads.shutdown(wait=False, cancel_futures=True)


def record_batch(
    metrics: Metrics, costs: CostModel, works: Sequence[AnyWork], finished: BatchResults
) -> None:
    """Count a batch that an engine of this process ran, and learn what its bytes cost."""
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
