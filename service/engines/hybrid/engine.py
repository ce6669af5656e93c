"""Computes small batches on the CPU engine, and large ones on the GPU.

`_choose_gpu` decides it for each batch; docs/internals/service.md, "Two engines", draws how. Each
large batch that the CPU engine computes is counted by reason; a reason is logged at most once a
minute. After MAX_FAILURES consecutive failures a circuit breaker excludes the GPU for REST_S
seconds. A lost GPU gets no more batches (device_loss.py). This module does not depend on HTTP, and
on CUDA only through its errors.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import monotonic, perf_counter
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gpu.errors import NotCovered, OutOfMemory
from gpu.runtime.stage_timer import STAGES
from service.engines.base import (
    AnswerIds,
    Counted,
    Decoded,
    DeviceMemory,
    Engine,
    EngineStatus,
    Holding,
    Residency,
)
from service.engines.concatenate import join_counted, join_decoded, join_encoded
from service.engines.hybrid.crossover_measurement import Differs, log_crossover, measure_crossover
from service.engines.hybrid.device_loss import DeviceLoss
from service.engines.hybrid.gpu_selftest import Gpu
from service.engines.hybrid.residency import REST_S, GpuResidency, GpuVocabularies, OpenedGpu
from vocabularies.batch.batch import Batch, Encoded
from vocabularies.batch.shared_rows import SharedMemory, SharedRows
from vocabularies.model.vocabulary import Vocabulary

logger = logging.getLogger(__name__)

DEFAULT_CROSSOVER_BYTES = 32 * 1024  # Until it is measured.
BYTES_PER_ID = 4
MAX_HALVINGS = 64  # Of one batch: enough for some rows that do not fit, too few for 65,536.
MAX_FAILURES = 3
LOG_PERIOD_S = 60.0
Output = TypeVar("Output")
Int64s = NDArray[np.int64]


class Fallbacks:
    """Counts of fallbacks by reason, and the circuit breaker of the GPU.

    It is thread-safe.

    Attributes:
        has_breaker: whether failures exclude the GPU for a time; several GPUs have their own
            breakers.
        loss: whether the GPU is lost to this process.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.has_breaker = True
        self.loss = DeviceLoss()
        self._clock = clock
        self._counts: Counter[str] = Counter()
        self._logged: dict[str, tuple[float, int]] = {}
        self._num_failures = 0
        self._rests_until = float("-inf")
        self._lock = threading.Lock()

    def add(self, reason: str, message: str) -> None:
        """Count a fallback; log its message unless its reason was logged in the last minute."""
        with self._lock:
            self._counts[reason] += 1
            count, now = self._counts[reason], self._clock()
            logged_at, before = self._logged.get(reason, (float("-inf"), 0))
            if now - logged_at < LOG_PERIOD_S:
                return
            self._logged[reason] = now, count
        logger.warning("fallback %s (%d since the last line): %s", reason, count - before, message)

    def counts(self) -> dict[str, int]:
        """Return the number of fallbacks by reason."""
        with self._lock:
            return dict(self._counts)

    def failed(self, error: Exception) -> None:
        """Record that the GPU failed; after MAX_FAILURES in a row, exclude it for REST_S."""
        self.loss.note_error(error)
        with self._lock:
            self._num_failures += 1
            if self._num_failures >= MAX_FAILURES and self.has_breaker:
                self._rests_until = self._clock() + REST_S

    def succeeded(self) -> None:
        """Record that the GPU computed a batch."""
        if self._num_failures:
            with self._lock:
                self._num_failures = 0

    @property
    def is_resting(self) -> bool:
        """Return whether the GPU is excluded; after that time one failure excludes it again."""
        return self._clock() < self._rests_until

    def run(
        self,
        num_rows: int,
        gpu: Callable[[int, int], Output],
        cpu: Callable[[int, int], Output],
        join: Callable[[Sequence[Output]], Output],
    ) -> Output:
        """Compute the rows of a batch on the GPU, and those that it cannot compute on the CPU.

        Args:
            num_rows: the number of rows.
            gpu: computes the rows from begin to end on the GPU, or raises.
            cpu: computes such rows on the CPU.
            join: joins the outputs of consecutive rows.
        """
        try:
            parts = self._run_in_halves(num_rows, gpu)
        except NotCovered as error:
            self.add("option", f"the GPU does not cover the options of a row: {error}")
            return cpu(0, num_rows)
        except Exception as error:
            self.add("device_error", f"the GPU failed on a batch: {error!r}")
            self.failed(error)
            return cpu(0, num_rows)
        self.succeeded()
        outputs = [cpu(begin, end) if output is None else output for begin, end, output in parts]
        return outputs[0] if len(outputs) == 1 else join(outputs)

    def _run_in_halves(
        self, num_rows: int, gpu: Callable[[int, int], Output]
    ) -> list[tuple[int, int, Output | None]]:
        """Yield begin, end and output of each part, in order; None if it does not fit the GPU."""
        waiting = [(0, num_rows)]
        num_halvings = 0
        parts: list[tuple[int, int, Output | None]] = []
        while waiting:
            begin, end = waiting.pop()
            try:
                parts.append((begin, end, gpu(begin, end)))
            except OutOfMemory as error:
                self.loss.note_error(error)
                if self.loss.is_lost:
                    raise
                num_halvings += 1
                self.add("out_of_memory", f"{end - begin} rows do not fit: {error}")
                if end - begin > 1 and num_halvings <= MAX_HALVINGS:
                    middle = (begin + end) // 2
                    waiting += [(middle, end), (begin, middle)]
                else:
                    parts.append((begin, end, None))
        return parts


class HybridEngine:
    """An `service.engines.base.Engine` that computes on the GPU or the CPU.

    Args:
        cpu: the engine for small batches, and for all batches that the GPU cannot compute.
        open_gpu: opens the GPU, or raises DeviceUnavailable; called in the background.
        crossover_bytes: the size of the smallest batch for the GPU; None: `settle` measures it.

    Until `settle` is called, `load` does not wait for the GPU, so that the service starts quickly.
    """

    name = "gpu"  # In answers and in the status: where it computes on the CPU, the name of `cpu`.

    def __init__(
        self, cpu: Engine, open_gpu: Callable[[], OpenedGpu], crossover_bytes: int | None = None
    ) -> None:
        self.cpu = cpu
        self.fallbacks = Fallbacks()
        self._is_measured = crossover_bytes is not None
        self.crossover_bytes = crossover_bytes or 0
        if not self._is_measured:
            self.crossover_bytes = DEFAULT_CROSSOVER_BYTES

        def open_and_note() -> OpenedGpu:
            opened = open_gpu()
            self.fallbacks.has_breaker = not opened.has_breakers
            self.fallbacks.loss.note_opened()
            return opened

        loss = self.fallbacks.loss
        self.vocabularies = GpuVocabularies(cpu, open_and_note, self._measure, loss)

    def load(self, vocabulary: Vocabulary, permanent: bool = False) -> Residency:
        """Load a vocabulary and compare its ids with the witness's; a second call changes nothing.

        Args:
            vocabulary: the vocabulary.
            permanent: whether the GPU never evicts it.

        Raises:
            VocabularyError: no encoder can compute this vocabulary.
        """
        return self.vocabularies.load(vocabulary, permanent)

    def unload(self, digest: str) -> None:
        """Unload a vocabulary; calls that are using it still finish."""
        self.vocabularies.unload(digest)

    def residency(self, digest: str) -> Residency | None:
        """Return the state of a vocabulary; None if it is not loaded."""
        entry = self.vocabularies.entries.get(digest)
        return None if entry is None else self.vocabularies.residency(entry)

    def holdings(self) -> dict[str, Holding]:
        """Return the loaded vocabularies by digest."""
        return self.vocabularies.holdings()

    def settle(self) -> None:
        """Wait for the GPU and all uploads, then measure the crossover."""
        self.vocabularies.settle()

    def _measure(self, opened: OpenedGpu, entry: GpuResidency) -> None:
        """Measure the crossover once, with the first vocabulary that is ready on the GPU."""
        if self._is_measured:
            return
        self._is_measured = True
        vocabulary = entry.vocabulary
        try:
            self.crossover_bytes = measure_crossover(
                lambda batch: self.cpu.encode(vocabulary, batch),
                lambda batch: opened.gpu.encode(vocabulary, batch),
            )
        except Differs as error:
            test = replace(entry.residency.self_test, num_different=1, first_difference=str(error))
            self.vocabularies.refuse(entry, test)
            self._is_measured = False
        except Exception as error:
            self.fallbacks.loss.note_error(error)
            logger.exception("the crossover could not be measured: %r", error)
        log_crossover(self.crossover_bytes)

    def status(self) -> EngineStatus:
        """Return the engine's state and its counts so far."""
        opened = self.vocabularies.opened
        fallbacks = self.fallbacks.counts() | self.cpu.status().fallbacks
        if opened is None:
            return EngineStatus((self.cpu.name,), fallbacks=fallbacks)
        activity = opened.activity
        states = {
            name: activity[name].state if activity else self._own_state() for name in opened.each
        }
        described = [each.device | {"state": states[name]} for name, each in opened.each.items()]
        # A device that hangs would not return from the question for its memory.
        answering = {
            name: each
            for name, each in opened.each.items()
            if states[name] not in ("hanging", "lost")
        }
        return EngineStatus(
            (self.name, self.cpu.name),
            (*described, *opened.unavailable),
            self.crossover_bytes,
            fallbacks,
            {name: _read_memory(each.gpu) for name, each in answering.items()},
            {name: each.gpu.page_locked_bytes for name, each in opened.each.items()},
            {name: state == "ready" for name, state in states.items()},
            activity,
        )

    def _own_state(self) -> str:
        """Name the state of a GPU that has no circuit breaker of its own."""
        if self.fallbacks.loss.is_lost:
            return "lost"
        return "resting" if self.fallbacks.is_resting else "ready"

    def take_stage_seconds(self) -> dict[str, list[float]]:
        """Return the seconds in each stage of the batches timed since the last call."""
        opened = self.vocabularies.opened
        if opened is None:
            return {}
        by_stage: dict[str, list[float]] = {stage: [] for stage in STAGES}
        for stage, seconds in opened.gpu.stage_times.take():
            by_stage[stage].append(seconds)
        return by_stage

    def close(self) -> None:
        """Release all memory and threads."""
        self.vocabularies.close()

    def _usable(self) -> OpenedGpu | None:
        """Return the open GPU; None if it is not open, or is lost."""
        return None if self.fallbacks.loss.is_lost else self.vocabularies.opened

    def host_memory(self, num_bytes: int) -> NDArray[np.uint8]:
        """Allocate pinned memory, which the device reads directly, or else ordinary memory."""
        opened = self._usable()
        if opened is not None and num_bytes >= self.crossover_bytes:
            if (memory := opened.gpu.host_memory(num_bytes)) is not None:
                return memory
        return self.cpu.host_memory(num_bytes)

    def open_shared(self, handle: bytes, num_bytes: int, device_id: int = 0) -> DeviceMemory | None:
        """Open device memory of another process; return None if the GPU is not open, or is lost.

        Raises:
            ValueError: the device cannot open it.
        """
        opened = self._usable()
        return None if opened is None else opened.open_shared(handle, num_bytes, device_id)

    def share_host(self, file: int, offset: int, num_bytes: int) -> SharedMemory | None:
        """Page-lock a part of a memory file; count a failure as a fallback, and return None.

        Raises:
            ValueError: the file is shorter.
        """
        if (opened := self._usable()) is None:
            return None
        try:
            return opened.gpu.share_host(file, offset, num_bytes)
        except (OutOfMemory, OSError) as error:
            self.fallbacks.add("out_of_memory", str(error))
            return None

    def encode_shared(self, vocabulary: Vocabulary, rows: SharedRows) -> Int64s | None:
        """Encode texts in shared memory; None if the host has to, which may count as a fallback."""
        on_device = rows.text.memory.on_device or rows.out.on_device
        gpu = self._choose_gpu(
            vocabulary, lambda num_bytes: on_device or len(rows.text) >= num_bytes
        )
        if gpu is None:
            return None
        try:
            offsets = gpu.encode_shared(vocabulary, rows)
        except NotCovered as error:
            self.fallbacks.add("option", f"shared texts need the host: {error}")
            return None
        except (ValueError, IndexError) as error:
            # The host reports to the client what is wrong.
            self.fallbacks.add("shared_memory", f"shared memory cannot be used: {error}")
            return None
        except OutOfMemory as error:
            self.fallbacks.loss.note_error(error)
            self.fallbacks.add("out_of_memory", f"shared texts do not fit: {error}")
            return None
        except Exception as error:
            self.fallbacks.add("device_error", f"the GPU failed on shared texts: {error!r}")
            self.fallbacks.failed(error)
            return None
        self.fallbacks.succeeded()
        return offsets

    def encode(self, vocabulary: Vocabulary, batch: Batch) -> Encoded:
        """Encode each row, and load the vocabulary if needed; refuse rows that cannot be encoded.

        Raises:
            Abandoned: no request waits for the batch any more.
            ValueError: the vocabulary's ids do not fit the batch's `id_dtype`.
        """
        batch.check_id_dtype(len(vocabulary.tokens))
        gpu = self._choose_gpu(vocabulary, batch.has_bytes)
        if gpu is None:
            return self.cpu.encode(vocabulary, batch)
        return self.fallbacks.run(
            batch.num_rows,
            lambda begin, end: gpu.encode(vocabulary, batch.part(begin, end)),
            lambda begin, end: self.cpu.encode(vocabulary, batch.part(begin, end)),
            join_encoded,
        )

    def begin_encode(self, vocabulary: Vocabulary, batch: Batch, answer: AnswerIds) -> bool:
        """See `DeviceSharing.begin_encode`; `encode` decides, and counts, why a GPU does not."""
        opened, entry = self.vocabularies.opened, self.vocabularies.entries.get(vocabulary.digest)
        if opened is None or entry is None or not entry.is_ready:
            return False
        if len(batch.data) < self.crossover_bytes:
            return False
        entry.used = perf_counter()
        return opened.begin_encode(vocabulary, batch, answer)

    def count(self, vocabulary: Vocabulary, batch: Batch) -> Counted:
        """Count the ids that `encode` would return for each row."""
        gpu = self._choose_gpu(vocabulary, batch.has_bytes)
        if gpu is None:
            return self.cpu.count(vocabulary, batch)

        def count_on_gpu(begin: int, end: int) -> Counted:
            counts, errors = gpu.count(vocabulary, batch.part(begin, end))
            return Counted(counts, errors, self.name)

        return self.fallbacks.run(
            batch.num_rows,
            count_on_gpu,
            lambda begin, end: self.cpu.count(vocabulary, batch.part(begin, end)),
            join_counted,
        )

    def decode(
        self,
        vocabulary: Vocabulary,
        ids: Int64s,
        offsets: Int64s,
        skip_special_tokens: bool,
    ) -> Decoded:
        """Decode ids int64[T], whose rows begin at offsets int64[B + 1], to bytes."""
        gpu = None
        if vocabulary.decoder == "inverse":
            gpu = self._choose_gpu(
                vocabulary, lambda num_bytes: len(ids) * BYTES_PER_ID >= num_bytes
            )
        if gpu is None:
            return self.cpu.decode(vocabulary, ids, offsets, skip_special_tokens)

        def decode_rows(decode: Callable[..., Output], begin: int, end: int) -> Output:
            places = offsets[begin : end + 1]
            part = ids[places[0] : places[-1]]
            return decode(vocabulary, part, places - places[0], skip_special_tokens)

        def decode_on_gpu(begin: int, end: int) -> Decoded:
            data, data_offsets, errors = decode_rows(gpu.decode, begin, end)
            return Decoded(data, data_offsets, errors, self.name)

        return self.fallbacks.run(
            len(offsets) - 1,
            decode_on_gpu,
            lambda begin, end: decode_rows(self.cpu.decode, begin, end),
            join_decoded,
        )

    def _choose_gpu(self, vocabulary: Vocabulary, has_bytes: Callable[[int], bool]) -> Gpu | None:
        """Return the GPU for a large batch; None for the CPU, which may count as a fallback."""
        vocabularies = self.vocabularies
        entry = vocabularies.entries.get(vocabulary.digest) or vocabularies.get_or_load(vocabulary)
        # Nothing is slower than the reference.
        if entry.cpu.engine != "reference" and not has_bytes(self.crossover_bytes):
            return None
        opened = vocabularies.opened
        if opened is None:
            if vocabularies.is_opening:
                self.fallbacks.add("not_resident", "the GPU is not open yet")
        elif entry.refusal:
            self.fallbacks.add(entry.refusal, entry.residency.fallback_reason)
        elif self.fallbacks.loss.is_lost:
            self.fallbacks.add("lost", "the GPU is lost until the process is started again")
        elif self.fallbacks.is_resting or opened.is_resting:
            self.fallbacks.add("resting", "the GPU failed three times, or hangs, and is left out")
        elif entry.is_ready and opened.gpu.is_resident(vocabulary.digest):
            entry.used = perf_counter()
            return opened.gpu
        else:
            vocabularies.start_upload(entry)
            self.fallbacks.add("not_resident", f"{vocabulary.digest} is not on the GPU now")
        return None


def _read_memory(gpu: Gpu) -> dict[str, int]:
    """Return the device's bytes by purpose; {} if reading fails, so that metrics still work."""
    try:
        return gpu.memory()
    except Exception as error:
        logger.warning("the memory of the GPU cannot be read: %r", error)
        return {}
