"""Which vocabularies the GPU may answer for: brought there in the background, compared, held.

    on the CPU engine ──► waiting ──► on the GPU and compared ──► ready ◄──┐
                                        │         │                        │ its next large batch
                                        │         └─ differs: refused      │
                                        ├─ not covered: refused            │
                                        └─ no memory, failed: after a rest ┴── made room for another

One thread brings them, one after another; whoever loads one after the start waits for it. Knows no
batches.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from time import monotonic

from gpu.errors import DeviceUnavailable, NotCovered
from service.engines.base import Engine, Holding, Residency, SelfTest
from service.engines.hybrid.fallbacks import REST_S
from service.engines.hybrid.selftest import Gpu, compare_with_cpu
from vocabularies.model.vocabulary import Vocabulary

logger = logging.getLogger(__name__)
PATIENCE_S = 120.0  # The longest that anybody waits for the GPU, which may have kernels to compile.


@dataclass(frozen=True, slots=True, eq=False)
class OpenedGpu:
    """A GPU engine that can be asked, and what `EngineStatus.devices` says of its device."""

    gpu: Gpu
    device: dict[str, str | int]


@dataclass(slots=True, eq=False)
class GpuResidency:
    """A vocabulary that the CPU engine holds, and how far the GPU is with it.

    Attributes:
        cpu: how the CPU engine holds it.
        residency: how it is held, unless it has left the GPU since.
        is_ready: the GPU was compared and may answer while the vocabulary is there.
        refused: why the GPU never answers, in the metric's word; "" where it may.
        is_pinned: it does not make room for another one.
        bringing: the last time it was brought to the GPU; None before the first.
        retry_at: monotonic time before which that is not tried again.
        used: perf_counter time at which the GPU was last asked; 0 before.
    """

    vocabulary: Vocabulary
    cpu: Residency
    residency: Residency
    is_ready: bool = False
    refused: str = ""
    is_pinned: bool = False
    bringing: Future[None] | None = None
    retry_at: float = float("-inf")
    used: float = 0.0


class GpuVocabularies:
    """The vocabularies of a CPU engine, and those of them that a GPU has.

    Args:
        cpu: the engine that answers until the GPU may.
        open_gpu: gives the GPU, or raises DeviceUnavailable; called in the background.
        on_ready: called in the background once settled, whenever the GPU may answer for one more.

    Attributes:
        opened: the GPU, once it is there.
    """

    def __init__(
        self,
        cpu: Engine,
        open_gpu: Callable[[], OpenedGpu],
        on_ready: Callable[[OpenedGpu, GpuResidency], None],
    ) -> None:
        self.cpu, self.opened = cpu, None
        self._on_ready = on_ready
        self._held: dict[str, GpuResidency] = {}
        self._lock = threading.Lock()
        self._is_settled = self._is_closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gpu-vocabularies")
        self._opening = self._thread.submit(self._open, open_gpu)

    opened: OpenedGpu | None

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
        """Whether it is not known yet if there is a GPU."""
        return not self._opening.done()

    def wait_until_open(self) -> None:
        """Wait until the GPU can be asked.

        Raises:
            DeviceUnavailable: there is none.
        """
        self._opening.result()

    def settle(self) -> None:
        """Wait for the GPU and what is on its way there; from now on `load` waits, too."""
        self._is_settled = True
        bringing = [held.bringing for held in list(self._held.values()) if held.bringing]
        if wait([self._opening, *bringing], PATIENCE_S).not_done:
            logger.warning("the GPU is not ready after %g s; the CPU answers", PATIENCE_S)
        opened = self.opened
        ready = [held for held in list(self._held.values()) if held.is_ready]
        if opened is not None and ready:
            wait([self._thread.submit(self._on_ready, opened, ready[0])], PATIENCE_S)

    def load(self, vocabulary: Vocabulary, pinned: bool) -> Residency:
        """Hold a vocabulary on the CPU engine and on the GPU; before `settle`, only on its way.

        Raises:
            VocabularyError: nothing here can compute this vocabulary.
        """
        held, opened = self.hold(vocabulary), self.opened
        if pinned and not held.is_pinned:
            held.is_pinned = True
            if held.is_ready:
                self.bring(held)
        elif opened and held.is_ready and not opened.gpu.is_resident(vocabulary.digest):
            self.bring(held)
        if not self._is_settled:
            return held.residency
        if held.bringing is not None:
            wait([held.bringing], PATIENCE_S)
        return self.residency(held)

    def hold(self, vocabulary: Vocabulary) -> GpuResidency:
        """A vocabulary on the CPU engine, loaded there if need be; the GPU gets it later.

        Raises:
            VocabularyError: nothing here can compute this vocabulary.
        """
        held = self._held.get(vocabulary.digest)
        if held is not None:
            return held
        cpu = self.cpu.load(vocabulary)
        with self._lock:
            held = self._held.get(vocabulary.digest)
            if held is None:
                held = self._held[vocabulary.digest] = GpuResidency(vocabulary, cpu, cpu)
        self.bring(held)
        return held

    def bring(self, held: GpuResidency) -> None:
        """Have it brought to the GPU, unless it is on its way, refused, or failed a moment ago."""
        with self._lock:
            if self._is_closed or held.refused or monotonic() < held.retry_at:
                return
            if held.bringing is None or held.bringing.done():
                held.bringing = self._thread.submit(self._bring, held)

    def _bring(self, held: GpuResidency) -> None:
        opened, vocabulary = self.opened, held.vocabulary
        if opened is None or not self._is_current(held):
            return
        try:
            num_bytes = opened.gpu.load(vocabulary, held.is_pinned)
            self_test = compare_with_cpu(opened.gpu, self.cpu, vocabulary)
            if self_test.num_different:
                self.refuse(held, self_test)
            else:
                encoder = f"cuda on {opened.device['name']}"
                held.residency = Residency("gpu", encoder, self_test, "", num_bytes)
                held.is_ready = True
        except NotCovered as error:
            held.refused = "not_covered"
            self._stay_on_cpu(held, f"the GPU does not cover it: {error}", logging.INFO)
        except Exception as error:
            # Not for ever: others may make room, and a device may come back.
            held.retry_at = monotonic() + REST_S
            self._stay_on_cpu(held, f"the GPU could not load it: {error!r}", logging.WARNING)
        if not self._is_current(held):
            self._forget(vocabulary.digest)
        elif self._is_settled and held.is_ready:
            self._on_ready(opened, held)

    def refuse(self, held: GpuResidency, self_test: SelfTest) -> None:
        """The GPU differed: it never answers for this vocabulary while that is held."""
        held.refused = "self_test"
        reason = f"the GPU differs on {self_test.first_difference}"
        self._stay_on_cpu(held, reason, logging.ERROR)
        held.residency = replace(held.residency, self_test=self_test)
        if self.opened is not None:
            self.opened.gpu.unload(held.vocabulary.digest)

    def _stay_on_cpu(self, held: GpuResidency, reason: str, level: int) -> None:
        logger.log(level, "%s: %s", held.vocabulary.digest, reason)
        held.is_ready, held.residency = False, _with_reason(held.cpu, reason)

    def _is_current(self, held: GpuResidency) -> bool:
        return self._held.get(held.vocabulary.digest) is held

    def unload(self, digest: str) -> None:
        """Forget a vocabulary; calls that are running finish on it."""
        with self._lock:
            self._held.pop(digest, None)
        self._forget(digest)

    def _forget(self, digest: str) -> None:
        if self.opened is not None:
            self.opened.gpu.unload(digest)
        if digest not in self._held:
            self.cpu.unload(digest)

    def find(self, digest: str) -> GpuResidency | None:
        """What is held under a digest; None when it is not loaded."""
        return self._held.get(digest)

    def holdings(self) -> dict[str, Holding]:
        """What the CPU engine holds, by digest; a call of either engine is a use."""
        return {
            digest: replace(holding, used=max(holding.used, held.used)) if held else holding
            for digest, holding in self.cpu.holdings().items()
            for held in [self._held.get(digest)]
        }

    def residency(self, held: GpuResidency) -> Residency:
        """How a vocabulary is held at this moment."""
        opened = self.opened
        if held.is_ready and opened is not None:
            if opened.gpu.is_resident(held.vocabulary.digest):
                return held.residency
            reason = "it made room on the GPU; its next large batch brings it back"
            return _with_reason(held.cpu, reason)
        if self.is_opening:
            return _with_reason(held.cpu, "the GPU is not open yet")
        if opened is not None and held.bringing is not None and not held.bringing.done():
            return _with_reason(held.cpu, "the GPU has yet to load it")
        return held.residency

    def close(self) -> None:
        """Forget all of them and give the GPU back."""
        with self._lock:
            self._is_closed = True
            self._held.clear()
        self._thread.shutdown(cancel_futures=True)
        if self.opened is not None:
            self.opened.gpu.close()
        self.cpu.close()


def _with_reason(residency: Residency, reason: str) -> Residency:
    """What answers, and why nothing faster does."""
    reasons = [each for each in (residency.fallback_reason, reason) if each]
    return replace(residency, fallback_reason="; ".join(reasons))
