"""The GPU and the CPU engine side by side: small batches to one, large ones to the other.

    batch ──► below the crossover ───────────────────────────────────► CPU engine
          └─► from there on ──► is the vocabulary on the GPU? ── no ──► CPU engine; it is brought
                                  │ yes
                                  ├─ out of memory ──► halves, down to a row, which the CPU gets
                                  ├─ any other failure ──► CPU engine; after three a minute's rest
                                  └─ the answer

Whatever the GPU was meant for and did not do is counted by reason. Knows no HTTP; of CUDA only what
can go wrong.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gpu.engine import GpuEngine
from gpu.kernels.catalog import modules_of
from gpu.kernels.families import TEXT
from gpu.runtime.cuda_device import CudaDevice
from service.engines.base import (
    Counted,
    Decoded,
    DeviceMemory,
    Engine,
    EngineStatus,
    Holding,
    Residency,
)
from service.engines.concatenate import join_counted, join_decoded, join_encoded
from service.engines.hybrid.crossover import Differs, log_crossover, measure_crossover
from service.engines.hybrid.fallbacks import Fallbacks, encode_shared, share_host
from service.engines.hybrid.residency import GpuResidency, GpuVocabularies, OpenedGpu
from service.engines.hybrid.selftest import Gpu
from service.engines.hybrid.telemetry import GpuTelemetry
from service.runtime.memory_pool import Take
from vocabularies.batch.batch import Batch, Encoded
from vocabularies.batch.shared_rows import SharedMemory, SharedRows
from vocabularies.model.vocabulary import Vocabulary

logger = logging.getLogger(__name__)

DEFAULT_CROSSOVER_BYTES = 32 * 1024  # Until it is measured.
BYTES_AN_ID = 4
VOCABULARIES_SHARE = 1 / 4  # Of the memory that we may use; batches have the rest.
Answer = TypeVar("Answer")
Int64s = NDArray[np.int64]


def open_cuda(memory_share: float, take: Take | None = None) -> OpenedGpu:
    """The first CUDA device with so much of its free memory; compiles kernels if need be.

    Args:
        memory_share: of its free memory.
        take: gives memory for ids, which is page-locked; None: the device does.

    Raises:
        DeviceUnavailable: there is none, or CuPy is not installed.
    """
    device = CudaDevice()
    device.prepare(modules_of(TEXT.kernels))  # While vocabularies are read.
    info = device.info
    budget = int(info.free_bytes * memory_share)
    vocabulary_bytes = int(budget * VOCABULARIES_SHARE)
    described: dict[str, str | int] = {
        "name": info.name,
        "driver": info.driver,
        "total_bytes": info.total_bytes,
        "budget_bytes": budget,
        "vocabulary_budget_bytes": vocabulary_bytes,
    }
    gpu = GpuEngine(device, budget - vocabulary_bytes, vocabulary_bytes, take=take)
    return OpenedGpu(gpu, described)


class HybridEngine:
    """Computes ids on the GPU or the CPU; see `service.engines.base.Engine` and the picture above.

    Args:
        cpu: the engine of small batches, and of everything that the GPU cannot do.
        open_gpu: gives the GPU, or raises DeviceUnavailable; called in the background.
        crossover_bytes: batches from this size on are for the GPU; None: `settle` measures it.

    Until `settle` is called, `load` does not wait for the GPU, so that a service answers soon.
    """

    name = "gpu"

    def __init__(
        self, cpu: Engine, open_gpu: Callable[[], OpenedGpu], crossover_bytes: int | None = None
    ) -> None:
        self.cpu = cpu
        self.fallbacks = Fallbacks()
        self._telemetry = GpuTelemetry()
        self._is_measured = crossover_bytes is not None
        self.crossover_bytes = crossover_bytes or 0
        if not self._is_measured:
            self.crossover_bytes = DEFAULT_CROSSOVER_BYTES
        self.vocabularies = GpuVocabularies(cpu, open_gpu, self._measure)

    def load(self, vocabulary: Vocabulary, pinned: bool = False) -> Residency:
        """Make a vocabulary ready and compare it with its witness; a second call changes nothing.

        Args:
            vocabulary: the vocabulary.
            pinned: it never leaves the GPU to make room for another one.

        Raises:
            VocabularyError: nothing here can compute this vocabulary.
        """
        return self.vocabularies.load(vocabulary, pinned)

    def unload(self, digest: str) -> None:
        """Forget a vocabulary; calls that are running finish on it."""
        self.vocabularies.unload(digest)

    def residency(self, digest: str) -> Residency | None:
        """How a vocabulary is held; None when it is not loaded."""
        held = self.vocabularies.find(digest)
        return None if held is None else self.vocabularies.residency(held)

    def holdings(self) -> dict[str, Holding]:
        """What is loaded into this process, by digest."""
        return self.vocabularies.holdings()

    def settle(self) -> None:
        """Wait for the GPU and what is on its way there, then measure the crossover."""
        self.vocabularies.settle()

    def _measure(self, opened: OpenedGpu, held: GpuResidency) -> None:
        """Measure the crossover on the first vocabulary that the GPU answers for."""
        if self._is_measured:
            return
        self._is_measured, vocabulary = True, held.vocabulary
        try:
            self.crossover_bytes = measure_crossover(
                lambda batch: self.cpu.encode(vocabulary, batch),
                lambda batch: opened.gpu.encode(vocabulary, batch),
            )
        except Differs as error:
            test = replace(held.residency.self_test, num_different=1, first_difference=str(error))
            self.vocabularies.refuse(held, test)
            self._is_measured = False
        except Exception as error:
            logger.exception("the crossover could not be measured: %r", error)
        log_crossover(self.crossover_bytes)

    def status(self) -> EngineStatus:
        """What there is and what happened so far."""
        opened, fallbacks = self.vocabularies.opened, self.fallbacks.counts()
        if opened is None:
            return EngineStatus((self.cpu.name,), fallbacks=fallbacks)
        name = str(opened.device["name"])
        return EngineStatus(
            (self.name, self.cpu.name),
            (opened.device,),
            self.crossover_bytes,
            fallbacks,
            self._telemetry.stages(opened.gpu),
            {name: self._telemetry.memory(opened.gpu)},
            {name: opened.gpu.page_locked_bytes},
        )

    def close(self) -> None:
        """Give everything back."""
        self.vocabularies.close()

    def host_memory(self, num_bytes: int) -> NDArray[np.uint8]:
        """Pinned memory, of which the device reads itself, where the GPU has some left."""
        opened = self.vocabularies.opened
        if opened is not None and num_bytes >= self.crossover_bytes:
            if (memory := opened.gpu.host_memory(num_bytes)) is not None:
                return memory
        return self.cpu.host_memory(num_bytes)

    def open_shared(self, handle: bytes, num_bytes: int) -> DeviceMemory | None:
        """Device memory of another process; None while the GPU is not open.

        Raises:
            ValueError: the device cannot open it.
        """
        opened = self.vocabularies.opened
        return None if opened is None else opened.gpu.open_shared(handle, num_bytes)

    def share_host(self, file: int, offset: int, num_bytes: int) -> SharedMemory | None:
        """A part of a file of memory, page-locked; None where it cannot be, which is counted.

        Raises:
            ValueError: the file is shorter.
        """
        if (opened := self.vocabularies.opened) is None:
            return None
        return share_host(opened.gpu, self.fallbacks, file, offset, num_bytes)

    def encode_shared(self, vocabulary: Vocabulary, rows: SharedRows) -> Int64s | None:
        """The ids where they are wanted; None where the host is needed, which is counted."""
        gpu = self._gpu_for(vocabulary, lambda num_bytes: len(rows.text) >= num_bytes)
        return None if gpu is None else encode_shared(gpu, self.fallbacks, vocabulary, rows)

    def encode(self, vocabulary: Vocabulary, batch: Batch) -> Encoded:
        """The ids of each row, see Engine.encode; loads the vocabulary if need be."""
        batch.check_id_dtype(len(vocabulary.tokens))
        gpu = self._gpu_for(vocabulary, batch.has_bytes)
        if gpu is None:
            return self.cpu.encode(vocabulary, batch)
        return self.fallbacks.ask(
            batch.num_rows,
            lambda begin, end: gpu.encode(vocabulary, batch.part(begin, end)),
            lambda begin, end: self.cpu.encode(vocabulary, batch.part(begin, end)),
            join_encoded,
        )

    def count(self, vocabulary: Vocabulary, batch: Batch) -> Counted:
        """How many ids `encode` would give each row."""
        gpu = self._gpu_for(vocabulary, batch.has_bytes)
        if gpu is None:
            return self.cpu.count(vocabulary, batch)
        return self.fallbacks.ask(
            batch.num_rows,
            lambda begin, end: Counted(*gpu.count(vocabulary, batch.part(begin, end)), self.name),
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
        """The bytes of ids int64[T] in rows offsets int64[B + 1]."""
        gpu = self._gpu_for(vocabulary, lambda num_bytes: len(ids) * BYTES_AN_ID >= num_bytes)
        if gpu is None:
            return self.cpu.decode(vocabulary, ids, offsets, skip_special_tokens)

        def decode_rows(decode: Callable[..., Answer], begin: int, end: int) -> Answer:
            places = offsets[begin : end + 1]
            part = ids[places[0] : places[-1]]
            return decode(vocabulary, part, places - places[0], skip_special_tokens)

        return self.fallbacks.ask(
            len(offsets) - 1,
            lambda begin, end: Decoded(*decode_rows(gpu.decode, begin, end), self.name),
            lambda begin, end: decode_rows(self.cpu.decode, begin, end),
            join_decoded,
        )

    def _gpu_for(self, vocabulary: Vocabulary, has_bytes: Callable[[int], bool]) -> Gpu | None:
        """The GPU for a batch that is meant for it, unless something is in the way: counted."""
        held = self.vocabularies.hold(vocabulary)
        # Nothing is slower than the reference.
        if held.cpu.engine != "reference" and not has_bytes(self.crossover_bytes):
            return None
        opened = self.vocabularies.opened
        if opened is None:
            if self.vocabularies.is_opening:
                self.fallbacks.add("not_resident", "the GPU is not open yet")
        elif held.refused:
            self.fallbacks.add(held.refused, held.residency.fallback_reason)
        elif self.fallbacks.is_resting:
            self.fallbacks.add("resting", "the GPU failed three times and is left alone a while")
        elif held.is_ready and opened.gpu.is_resident(vocabulary.digest):
            held.used = perf_counter()
            return opened.gpu
        else:
            self.vocabularies.bring(held)
            self.fallbacks.add("not_resident", f"{vocabulary.digest} is not on the GPU now")
        return None
