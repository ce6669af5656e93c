"""Runs batches outside of the event loop: the interface, and the runner of a single process.

The batcher decides which work items form a batch, and when; a runner computes it. Front ends have a
runner that sends batches to the engine process (multiprocess/remote_runner.py).

`run_works` joins the work items of a batch and splits the batch's output. It runs on the engine's
thread, or on the event loop for a tiny batch. This module does not depend on HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from time import perf_counter
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from service.batching.work import (
    AnyResult,
    AnyWork,
    CostKey,
    CountWork,
    DecodeWork,
    EncodeWork,
    IdRows,
    LaneName,
    Output,
    QueueKey,
    Result,
    SharedWork,
    TextWork,
)
from service.core.errors import ServiceError
from service.core.settings import Settings
from service.engines.base import (
    Abandoned,
    AnswerIds,
    Codec,
    Counted,
    Decoded,
    EngineStatus,
    SharedEncoded,
)
from service.engines.fault_isolation import (
    count_isolated,
    decode_isolated,
    encode_failed,
    reraise_unless_failure,
)
from service.observability.metrics import Metrics
from service.runtime.memory_pool import Take
from vocabularies.batch.batch import Batch, Encoded, EncodeOptions
from vocabularies.model.vocabulary import Vocabulary

MAX_INLINE_S = 0.002  # The longest expected time of a batch that runs on the loop.
GPU_LONG_AT_ONCE = 2  # The device computes the next batch while the ids of the last are copied.
ISOLATED_AT_ONCE = 4  # They run in other processes; the threads only wait.
MAX_MEASURED = 4_096  # Vocabularies and operations; the least recently measured are forgotten.
MAX_GROWTH = (
    4  # The most that one measurement counts, in averages: the batch may have lost its core.
)
MIN_BYTES = 64  # A smaller batch costs as much as one of this size.
UNMEASURED_S = 0.002  # Assumed for each byte: too long for a batch that runs on the loop.

Works = Sequence[AnyWork]
PlaceIds = Callable[[NDArray[np.integer[Any]]], NDArray[np.integer[Any]]]


@dataclass(slots=True)
class BatchResults:
    """The results of a batch.

    Attributes:
        results: the rows of each work item, in order.
        seconds: the time that the engine took.
    """

    results: Sequence[AnyResult]
    seconds: float


Finish = Callable[[BatchResults | BaseException], None]
BeginEncode = Callable[[Vocabulary, Batch, AnswerIds], bool]
"""`DeviceSharing.begin_encode`."""


class CostModel:
    """Predicts how long the engine takes for a batch.

    It stores moving averages of the seconds per byte, by digest and operation.
    """

    def __init__(self) -> None:
        self._seconds_per_byte: dict[CostKey, float] = {}

    def expected_s(self, key: CostKey, num_bytes: int) -> float:
        """Predict the seconds that a number of bytes takes."""
        return num_bytes * self._seconds_per_byte.get(key, UNMEASURED_S)

    def assume(self, key: CostKey, seconds_per_byte: float) -> None:
        """Set a cost that is used until a batch has been measured."""
        self._seconds_per_byte.setdefault(key, seconds_per_byte)

    def forget(self, key: CostKey) -> None:
        """Remove a measured or assumed cost."""
        self._seconds_per_byte.pop(key, None)

    def learn(self, key: CostKey, num_bytes: int, seconds: float) -> None:
        """Add the measured time of a batch to the average."""
        measured = seconds / max(num_bytes, MIN_BYTES)
        before = self._seconds_per_byte.pop(key, measured)
        self._seconds_per_byte[key] = 0.75 * before + 0.25 * min(measured, MAX_GROWTH * before)
        if len(self._seconds_per_byte) > MAX_MEASURED:  # Uploads come and go.
            del self._seconds_per_byte[next(iter(self._seconds_per_byte))]


class BatchRunner(Protocol):
    """Runs batches; its methods are called on the event loop's thread."""

    @property
    def costs(self) -> CostModel:
        """The cost model, which the batcher updates after batches that it runs on the loop."""

    @property
    def short_at_once(self) -> int:
        """The number of batches of short requests that run at once."""

    @property
    def long_at_once(self) -> int:
        """The number of long requests that run at once."""

    @property
    def isolated_at_once(self) -> int:
        """The number of requests with unknown patterns that run at once."""

    def inline_engine(self, key: QueueKey, num_bytes: int) -> Codec | None:
        """Return the engine if this batch should run on the loop itself; None: call `run`."""

    def run(self, works: Sequence[AnyWork], lane: LaneName, finish: Finish) -> None:
        """Start a batch; later, `finish` is called on the loop with the results or the error."""

    def use_devices(self, status: EngineStatus) -> None:
        """Run as many batches at once as the devices can; called once, when all are open."""

    def record(self, works: Sequence[AnyWork], finished: BatchResults) -> None:
        """Count a batch that `run` has computed."""

    def shutdown(self) -> None:
        """Start no more batches; those that have not started are dropped without `finish`."""


class LocalRunner:
    """Runs batches on threads of this process: one for short requests, others for the other lanes.

    Args:
        engine: computes the batches.
        settings: the settings of the service.
        metrics: counts the batches.
        place_ids: copies ids to memory that front ends can read, on the batch's thread; None: ids
            are not copied.
        begin_encode: lets the process of a device begin a batch, without a thread; None: there is
            none.
    """

    def __init__(
        self,
        engine: Codec,
        settings: Settings,
        metrics: Metrics,
        place_ids: PlaceIds | None = None,
        begin_encode: BeginEncode | None = None,
    ) -> None:
        self.engine = engine
        self.costs = CostModel()
        self.short_at_once = 1
        self.long_at_once = GPU_LONG_AT_ONCE if engine.name == "gpu" else 1
        self.isolated_at_once = ISOLATED_AT_ONCE
        self._inline_batch_bytes = settings.inline_batch_bytes
        self._metrics = metrics
        self._place_ids = place_ids
        self._begin_encode = begin_encode
        self._isolated_threads = ThreadPoolExecutor(self.isolated_at_once, "engine-isolated")
        self._start_threads()

    def _start_threads(self) -> None:
        self._short_threads = ThreadPoolExecutor(self.short_at_once, "engine-short")
        self._long_threads = ThreadPoolExecutor(self.long_at_once, "engine-long")

    def use_devices(self, status: EngineStatus) -> None:
        """Run as many batches at once as the open devices can.

        With several devices the loop itself runs no batch on a device, as a hanging device would
        block it.
        """
        num_devices = len(status.up)
        if num_devices < 2:
            return
        self.short_at_once, self.long_at_once = num_devices, GPU_LONG_AT_ONCE * num_devices
        if status.crossover_bytes is not None:
            self._inline_batch_bytes = min(self._inline_batch_bytes, status.crossover_bytes - 1)
        threads = self._short_threads, self._long_threads
        self._start_threads()
        for each in threads:
            each.shutdown(wait=False)  # After the batches that they have.

    def inline_engine(self, key: QueueKey, num_bytes: int) -> Codec | None:
        """Return the engine if handing the batch to a thread would take longer than running it."""
        if num_bytes > self._inline_batch_bytes:
            return None
        expected_s = self.costs.expected_s(key.cost_key, num_bytes)
        return self.engine if expected_s <= MAX_INLINE_S else None

    def run(self, works: Sequence[AnyWork], lane: LaneName, finish: Finish) -> None:
        """Start a batch: in the process of a device if it is one request's, else on a thread."""
        match works:
            case [EncodeWork(rows=Batch() as batch, options=EncodeOptions() as options)]:
                if self._begin(works, batch.with_options(options), lane, finish):
                    return
        self._run_on_thread(works, lane, finish)

    def _begin(self, works: Works, batch: Batch, lane: LaneName, finish: Finish) -> bool:
        """Let the process of a device begin a batch; if it fails there, a thread runs it."""
        if self._begin_encode is None or batch.has_texts:
            return False
        begin = perf_counter()

        def answer(encoded: Encoded | None) -> None:
            if encoded is None:
                with suppress(RuntimeError):  # After `shutdown`, which drops batches.
                    self._run_on_thread(works, lane, finish)
                return
            try:
                results = split_encoded(works, encoded)
            except Exception as error:  # Else the batch would never end.
                finish(error)
                return
            # The texts are no longer needed: a front end gets their memory with the answer.
            works[0].rows = [""] * len(works[0].rows)
            finish(BatchResults(results, perf_counter() - begin))

        return self._begin_encode(works[0].vocabulary, batch, answer)

    def _run_on_thread(self, works: Works, lane: LaneName, finish: Finish) -> None:
        call_soon = asyncio.get_running_loop().call_soon_threadsafe
        threads = {
            "short": self._short_threads,
            "long": self._long_threads,
            "isolated": self._isolated_threads,
        }

        def run() -> None:
            # Returns nothing: the thread pool would keep the result, and the frames of an error
            # the pool's item, with all texts, until the garbage collector runs.
            call_soon(finish, self._run_works(works))

        threads[lane].submit(run)

    def _run_works(self, works: Sequence[AnyWork]) -> BatchResults | BaseException:
        try:
            return run_works(self.engine, works, self._place_ids)
        except (Abandoned, ServiceError) as error:
            # Whoever keeps the error does not keep the frames with their texts.
            return error.with_traceback(None)
        except BaseException as error:
            return error

    def record(self, works: Sequence[AnyWork], finished: BatchResults) -> None:
        """Count a batch, and update the cost per byte of its vocabulary."""
        record_batch(self._metrics, self.costs, works, finished)

    def shutdown(self) -> None:
        """Start no more batches; running ones continue."""
        for threads in (self._short_threads, self._long_threads, self._isolated_threads):
            threads.shutdown(wait=False, cancel_futures=True)


def record_batch(
    metrics: Metrics, costs: CostModel, works: Sequence[AnyWork], finished: BatchResults
) -> None:
    """Count a batch that an engine of this process ran, and update the cost per byte."""
    first, last = works[0], finished.results[-1]
    num_bytes = sum([work.num_bytes for work in works])
    num_rows = sum([len(work.rows) or 1 for work in works])
    engine = last.output.engine
    metrics.count_batch(
        engine, first.operation, num_rows, num_bytes, last.batch_tokens, finished.seconds
    )
    # All results of a batch share one output, or each has its own: see `run_works`.
    share_output = finished.results[0].output is last.output
    for result in [last] if share_output else finished.results:
        if errors := result.output.errors:
            metrics.count_refused_rows(refusal.code for refusal in errors.values())
    costs.learn(CostKey(first.vocabulary.digest, first.operation), num_bytes, finished.seconds)


def run_works(engine: Codec, works: Works, place_ids: PlaceIds | None = None) -> BatchResults:
    """Compute work items of one vocabulary and operation as one batch.

    Args:
        engine: computes the batch.
        works: at least one work item, all of one class.
        place_ids: copies ids to memory that front ends can read; None: ids are not copied.
    """
    begin = perf_counter()
    results: list[Any]
    match works[0]:
        case EncodeWork():
            results = _encode(engine, cast(Sequence[EncodeWork], works), place_ids)
        case CountWork(vocabulary=vocabulary):
            batch = _cancellable_batch(cast(Sequence[CountWork], works))
            results = split_counted(works, count_isolated(engine, vocabulary, batch))
        case DecodeWork():
            results = _decode(engine, cast(Sequence[DecodeWork], works))
        case SharedWork():
            results = [
                _encode_shared(engine.name, work) for work in cast(Sequence[SharedWork], works)
            ]
        case _:
            raise AssertionError(f"no engine has the operation {works[0].operation}")
    return BatchResults(results, perf_counter() - begin)


def _encode(
    engine: Codec, works: Sequence[EncodeWork], place_ids: PlaceIds | None
) -> list[Result[Encoded]]:
    vocabulary = works[0].vocabulary
    batch = _cancellable_batch(works)
    try:
        encoded = engine.encode(vocabulary, batch)
    except BaseException as error:
        reraise_unless_failure(error)
        encoded = encode_failed(engine, vocabulary, batch, error)
    if place_ids is not None:
        encoded.ids = place_ids(encoded.ids)
    return split_encoded(works, encoded)


def _encode_shared(engine: str, work: SharedWork) -> Result[SharedEncoded]:
    """Encode the texts of one request in shared memory, as a batch of its own."""
    offsets = work.device.encode_shared(work.vocabulary, work.rows)
    num_ids = 0 if offsets is None else int(offsets[-1])
    return Result(0, len(work.rows), SharedEncoded(offsets, engine=engine), num_ids)


def _decode(engine: Codec, works: Sequence[DecodeWork]) -> list[Result[Decoded]]:
    """Decode the flat arrays of a single request directly, or the rows of several as one list."""
    num_ids = sum(work.num_ids for work in works)
    vocabulary = works[0].vocabulary
    rows = works[0].rows
    skip = works[0].skip_special_tokens
    if len(works) == 1 and isinstance(rows, IdRows):
        try:
            decoded = engine.decode(vocabulary, rows.ids.astype(np.int64), rows.offsets, skip)
            return split_decoded(works, decoded, num_ids)
        except BaseException as error:
            reraise_unless_failure(error)
    decoded = decode_isolated(engine, vocabulary, join_id_rows(works), skip)
    return split_decoded(works, decoded, num_ids)


def _cancellable_batch(works: Sequence[TextWork[Any]]) -> Batch:
    """Make a batch of all texts; the engine abandons it once no request waits for it any more."""
    futures = [work.future for work in works if work.future]
    batch = join_texts(works)
    batch.should_continue = lambda: not futures or not all(future.done() for future in futures)
    return batch


def join_texts(works: Sequence[TextWork[Any]], take: Take | None = None) -> Batch:
    """Join the texts of work items with their options; they stay strings if all are strings.

    Args:
        works: work items of one vocabulary.
        take: allocates memory for joined bytes; None: NumPy allocates it.
    """
    if len(works) == 1 and isinstance(works[0].rows, list):
        return Batch(works[0].rows, options=works[0].options)
    options = _join_options(works)
    if any(isinstance(work.rows, Batch) for work in works):
        return Batch.joined([_as_batch(work.rows) for work in works], options, take)
    texts = [cast(Sequence[str], work.rows) for work in works]
    return Batch(texts[0] if len(texts) == 1 else [*chain.from_iterable(texts)], options=options)


def _join_options(works: Sequence[TextWork[Any]]) -> EncodeOptions | list[EncodeOptions]:
    """Return the options that all texts share, as is common, or else a list with one per text."""
    first = works[0].options
    if isinstance(first, EncodeOptions) and all(work.options is first for work in works):
        return first
    joined: list[EncodeOptions] = []
    for work in works:
        options = work.options
        joined += [options] * len(work.rows) if isinstance(options, EncodeOptions) else options
    return joined


def _as_batch(texts: Sequence[str] | Batch) -> Batch:
    return texts if isinstance(texts, Batch) else Batch(texts)


def join_id_rows(works: Sequence[DecodeWork]) -> list[Sequence[int]]:
    """List the rows of ids of all work items."""
    joined: list[Sequence[int]] = []
    for work in works:
        joined += work.rows.lists() if isinstance(work.rows, IdRows) else work.rows
    return joined


def split_encoded(works: Works, encoded: Encoded) -> list[Result[Encoded]]:
    """Split the ids of a batch into the rows of each work item."""
    offsets = encoded.offsets.tolist()
    return _split(works, encoded, offsets[-1], offsets)


def split_counted(works: Works, counted: Counted) -> list[Result[Counted]]:
    """Split the counts of a batch into the rows of each work item."""
    return _split(works, counted, int(counted.counts.sum()), [])


def split_decoded(works: Works, decoded: Decoded, num_ids: int) -> list[Result[Decoded]]:
    """Split the decoded bytes of a batch of `num_ids` ids into the rows of each work item."""
    return _split(works, decoded, num_ids, decoded.offsets.tolist())


def _split(
    works: Works, output: Output, batch_tokens: int, offsets: list[int]
) -> list[Result[Output]]:
    results: list[Result[Output]] = []
    begin = 0
    for work in works:
        end = begin + len(work.rows)
        results.append(Result(begin, end, output, batch_tokens, offsets))
        begin = end
    return results
