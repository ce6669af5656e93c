"""Manages the vocabularies of a hybrid engine, on the CPU and, after the self-test, on the GPU.

    on the CPU engine ──► queued ──► uploaded and compared ──► ready ◄───────┐
                                        │         │              │           │ its next large batch
                                        │         └─ differs:    └─► evicted ┤
                                        │            refused                 │
                                        ├─ not covered: refused              │
                                        └─ no memory, or failed ── REST_S ───┘

One thread uploads them, one after another. Once the service has started, `load` waits for the
upload. This module does not handle batches.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from time import monotonic

from gpu.errors import DeviceUnavailable, NotCovered
from service.engines.base import (
    AnswerIds,
    DeviceActivity,
    DeviceMemory,
    Engine,
    Holding,
    Residency,
    SelfTest,
)
from service.engines.hybrid.device_loss import DeviceLoss
from service.engines.hybrid.gpu_selftest import Gpu, compare_with_cpu
from vocabularies.batch.batch import Batch
from vocabularies.model.vocabulary import Vocabulary

logger = logging.getLogger(__name__)
REST_S = 60.0  # After failures.
PATIENCE_S = 120.0  # The longest wait for the GPU, which may have kernels to compile.


@dataclass(frozen=True, slots=True, eq=False)
class OpenedGpu:
    """An open GPU engine, and its device as `EngineStatus.devices` describes it."""

    gpu: Gpu
    device: dict[str, str | int]

    @property
    def each(self) -> Mapping[str, OpenedGpu]:
        """The GPUs of the engine, by name in metrics."""
        return {str(self.device["name"]): self}

    @property
    def unavailable(self) -> Sequence[dict[str, str | int]]:
        """The devices that could not be opened."""
        return ()

    @property
    def has_breakers(self) -> bool:
        """Return whether each GPU has its own circuit breaker."""
        return False

    @property
    def is_resting(self) -> bool:
        """Return whether all GPUs that have their own circuit breakers are currently excluded."""
        return False

    @property
    def activity(self) -> dict[str, DeviceActivity]:
        """The activity of each of several GPUs; empty with one."""
        return {}

    def self_test(self, cpu: Engine, vocabulary: Vocabulary) -> SelfTest:
        """Compare a loaded vocabulary's ids with the reference and the CPU engine."""
        return compare_with_cpu(self.gpu, cpu, vocabulary)

    def begin_encode(self, vocabulary: Vocabulary, batch: Batch, answer: AnswerIds) -> bool:
        """Return False: a thread has to wait for the ids of a GPU of this process."""
        return False

    def open_shared(self, handle: bytes, num_bytes: int, device_id: int) -> DeviceMemory:
        """Open device memory of another process; raises gpu.errors.BadHandle."""
        return self.gpu.open_shared(handle, num_bytes)


@dataclass(slots=True, eq=False)
class GpuResidency:
    """A vocabulary on the CPU engine, and its state on the GPU.

    Attributes:
        vocabulary: the vocabulary.
        cpu: the state of the vocabulary on the CPU engine.
        residency: the state on the hybrid engine, which is outdated if the GPU evicted it since.
        is_ready: whether the GPU passed the self-test, so that it may be used.
        refusal: why the GPU must never be used, as the metric names it; "" if it may.
        is_permanent: whether the GPU never evicts it.
        upload: the last upload; None before the first.
        retry_at: the monotonic time before which no upload starts.
        used: the perf_counter time of its last batch on the GPU; 0: there was none.
    """

    vocabulary: Vocabulary
    cpu: Residency
    residency: Residency
    is_ready: bool = False
    refusal: str = ""
    is_permanent: bool = False
    upload: Future[None] | None = None
    retry_at: float = float("-inf")
    used: float = 0.0


class GpuVocabularies:
    """The vocabularies of a CPU engine, of which some are also on a GPU.

    Args:
        cpu: the engine that computes until the GPU may be used.
        open_gpu: opens the GPU, or raises DeviceUnavailable; called in the background.
        on_ready: called in the background, once settled, for each vocabulary that becomes ready.
        loss: whether the GPU is lost to this process.

    Attributes:
        opened: the GPU; None until it is open.
        entries: the vocabularies by digest.
    """

    def __init__(
        self,
        cpu: Engine,
        open_gpu: Callable[[], OpenedGpu],
        on_ready: Callable[[OpenedGpu, GpuResidency], None],
        loss: DeviceLoss,
    ) -> None:
        self.cpu = cpu
        self._loss = loss
        self.opened: OpenedGpu | None = None
        self._on_ready = on_ready
        self.entries: dict[str, GpuResidency] = {}
        self._lock = threading.Lock()
        self._is_settled = False
        self._is_closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gpu-vocabularies")
        self._opening = self._thread.submit(self._open, open_gpu)

    def _open(self, open_gpu: Callable[[], OpenedGpu]) -> None:
        try:
            self.opened = open_gpu()
        except DeviceUnavailable as error:
            logger.info("no GPU: %s", error)
            raise
        except Exception as error:
            logger.exception("the GPU cannot be used: %r", error)
            raise DeviceUnavailable(f"the GPU cannot be used: {error!r}") from error
        logger.info("GPU: %s", self.opened.device)

    @property
    def is_opening(self) -> bool:
        """Return whether the GPU is still being opened."""
        return not self._opening.done()

    def wait_until_open(self) -> None:
        """Wait until the GPU is open.

        Raises:
            DeviceUnavailable: there is no GPU that can be used.
        """
        self._opening.result()

    def settle(self) -> None:
        """Wait for the GPU and all uploads; from now on `load` waits for its upload."""
        self._is_settled = True
        uploads = [entry.upload for entry in list(self.entries.values()) if entry.upload]
        if wait([self._opening, *uploads], PATIENCE_S).not_done:
            logger.warning("the GPU is not ready after %g s; the CPU answers", PATIENCE_S)
        opened = self.opened
        ready = [entry for entry in list(self.entries.values()) if entry.is_ready]
        if opened is not None and ready:
            wait([self._thread.submit(self._announce, opened, ready[0])], PATIENCE_S)

    def _announce(self, opened: OpenedGpu, entry: GpuResidency) -> None:
        """Call `on_ready`, unless all vocabularies were forgotten meanwhile."""
        if not self._is_closed:
            self._on_ready(opened, entry)

    def load(self, vocabulary: Vocabulary, permanent: bool) -> Residency:
        """Load a vocabulary on the CPU engine and the GPU; wait for the upload only once settled.

        Raises:
            VocabularyError: no encoder can compute this vocabulary.
        """
        entry = self.get_or_load(vocabulary)
        opened = self.opened
        if permanent and not entry.is_permanent:
            entry.is_permanent = True
            if entry.is_ready:
                self.start_upload(entry)
        elif opened and entry.is_ready and not opened.gpu.is_resident(vocabulary.digest):
            self.start_upload(entry)
        if not self._is_settled:
            return entry.residency
        if entry.upload is not None:
            wait([entry.upload], PATIENCE_S)
        return self.residency(entry)

    def get_or_load(self, vocabulary: Vocabulary) -> GpuResidency:
        """Return a vocabulary's entry; the first call loads it on the CPU and starts the upload.

        Raises:
            VocabularyError: no encoder can compute this vocabulary.
        """
        entry = self.entries.get(vocabulary.digest)
        if entry is not None:
            return entry
        cpu = self.cpu.load(vocabulary)
        with self._lock:
            entry = self.entries.get(vocabulary.digest)
            if entry is None:
                entry = self.entries[vocabulary.digest] = GpuResidency(vocabulary, cpu, cpu)
        self.start_upload(entry)
        return entry

    def start_upload(self, entry: GpuResidency) -> None:
        """Upload a vocabulary in the background, unless that runs, is refused, or just failed."""
        with self._lock:
            if self._is_closed or entry.refusal or monotonic() < entry.retry_at:
                return
            if self._loss.is_lost:
                return
            if entry.upload is None or entry.upload.done():
                entry.upload = self._thread.submit(self._upload, entry)

    def _upload(self, entry: GpuResidency) -> None:
        opened = self.opened
        vocabulary = entry.vocabulary
        if opened is None or not self._is_current(entry):
            return
        try:
            num_bytes = opened.gpu.load(vocabulary, entry.is_permanent)
            self_test = opened.self_test(self.cpu, vocabulary)
            if self_test.num_different:
                self.refuse(entry, self_test)
            else:
                encoder = f"cuda on {opened.device['name']}"
                entry.residency = Residency("gpu", encoder, self_test, "", num_bytes)
                entry.is_ready = True
        except NotCovered as error:
            entry.refusal = "not_covered"
            self._stay_on_cpu(entry, f"the GPU does not cover it: {error}", logging.INFO)
        except Exception as error:
            self._loss.note_error(error)
            # It is tried again: others may be evicted, and a device may recover.
            entry.retry_at = monotonic() + REST_S
            self._stay_on_cpu(entry, f"the GPU could not load it: {error!r}", logging.WARNING)
        if not self._is_current(entry):
            self._forget(vocabulary.digest)
        elif self._is_settled and entry.is_ready:
            self._on_ready(opened, entry)

    def refuse(self, entry: GpuResidency, self_test: SelfTest) -> None:
        """Stop using the GPU for a vocabulary whose ids differ, while it is loaded."""
        entry.refusal = "self_test"
        reason = f"the GPU differs on {self_test.first_difference}"
        self._stay_on_cpu(entry, reason, logging.ERROR)
        entry.residency = replace(entry.residency, self_test=self_test)
        if self.opened is not None:
            self.opened.gpu.unload(entry.vocabulary.digest)

    def _stay_on_cpu(self, entry: GpuResidency, reason: str, level: int) -> None:
        logger.log(level, "%s: %s", entry.vocabulary.digest, reason)
        entry.is_ready = False
        entry.residency = _with_reason(entry.cpu, reason)

    def _is_current(self, entry: GpuResidency) -> bool:
        return self.entries.get(entry.vocabulary.digest) is entry

    def unload(self, digest: str) -> None:
        """Unload a vocabulary; calls that are using it still finish."""
        with self._lock:
            self.entries.pop(digest, None)
        self._forget(digest)

    def _forget(self, digest: str) -> None:
        if self.opened is not None and not self._loss.is_lost:
            self.opened.gpu.unload(digest)
        if digest not in self.entries:
            self.cpu.unload(digest)

    def holdings(self) -> dict[str, Holding]:
        """Return the vocabularies on the CPU engine by digest; batches on the GPU count as uses."""
        holdings = self.cpu.holdings()
        for digest, holding in holdings.items():
            if (entry := self.entries.get(digest)) is not None:
                holdings[digest] = replace(holding, used=max(holding.used, entry.used))
        return holdings

    def residency(self, entry: GpuResidency) -> Residency:
        """Return the current state of a vocabulary."""
        opened = self.opened
        if self._loss.is_lost:
            return _with_reason(entry.cpu, "the GPU is lost until the process is started again")
        if entry.is_ready and opened is not None:
            if opened.gpu.is_resident(entry.vocabulary.digest):
                return entry.residency
            reason = "the GPU has evicted it; its next large batch loads it again"
            if opened.is_resting:
                reason = "all GPUs have failed or hang, and are not used"
            return _with_reason(entry.cpu, reason)
        if self.is_opening:
            return _with_reason(entry.cpu, "the GPU is not open yet")
        if opened is not None and entry.upload is not None and not entry.upload.done():
            return _with_reason(entry.cpu, "the GPU has yet to load it")
        return entry.residency

    def close(self) -> None:
        """Unload all vocabularies, and close the GPU and the CPU engine."""
        with self._lock:
            self._is_closed = True
            self.entries.clear()
        # What is queued ends by itself: `wait` would go on waiting for a future that is cancelled.
        self._thread.shutdown()
        if self.opened is not None and not self._loss.is_lost:
            self.opened.gpu.close()
        self.cpu.close()


def _with_reason(residency: Residency, reason: str) -> Residency:
    """Add the reason why no faster engine is used."""
    reasons = [each for each in (residency.fallback_reason, reason) if each]
    return replace(residency, fallback_reason="; ".join(reasons))
