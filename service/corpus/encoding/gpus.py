"""Encodes blocks on all GPUs of a job, and on the CPU until the GPUs are open.

To import CuPy and open a GPU takes two to three seconds, in which the CPU engine encodes. Then each
block goes to the GPU with the fewest waiting bytes. The ids are the same.
"""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from gpu.errors import DeviceUnavailable
from gpu.runtime.cuda_device import CudaDevice, num_devices
from service.engines.base import Counted, Decoded, Engine, EngineStatus
from service.engines.hybrid.engine import HybridEngine
from service.engines.hybrid.opening import open_engine
from service.engines.hybrid.residency import OpenedGpu
from vocabularies.batch.batch import Batch, Encoded
from vocabularies.model.vocabulary import Vocabulary

MEMORY_SHARE = 0.5  # Of a GPU's free memory, as the service's default.


class Gpus:
    """Presents a CPU engine and several GPUs as one engine; it is thread-safe.

    Args:
        cpu: encodes until the GPUs are open.
        opening: has the engines once they are open, one per GPU, each combined with the CPU engine;
            [] if there are none.
    """

    name = "gpu"

    def __init__(self, cpu: Engine, opening: Future[list[HybridEngine]]) -> None:
        self._cpu = cpu
        self._opening = opening
        self._num_bytes: Counter[Engine] = Counter()
        self._lock = threading.Lock()

    def _engines(self) -> list[Engine]:
        """Return the engines that encode now; raise DeviceUnavailable if a GPU cannot be used."""
        return [*self._opening.result()] or [self._cpu] if self._opening.done() else [self._cpu]

    def status(self) -> EngineStatus:
        """Return the state of the first engine."""
        return self._engines()[0].status()

    def host_memory(self, num_bytes: int) -> NDArray[np.uint8]:
        """Allocate memory that all GPUs read directly; ordinary memory until they are open."""
        opening = self._opening
        if opening.done() and opening.exception() is None and (engines := opening.result()):
            return engines[0].host_memory(num_bytes)
        return np.empty(num_bytes, np.uint8)

    def encode(self, vocabulary: Vocabulary, batch: Batch) -> Encoded:
        """Encode each row on the engine with the fewest waiting bytes.

        Raises:
            DeviceUnavailable: a GPU cannot be used.
        """
        engines, size = self._engines(), batch.size
        with self._lock:
            engine = min(engines, key=self._num_bytes.__getitem__)
            self._num_bytes[engine] += size
        try:
            return engine.encode(vocabulary, batch)
        finally:
            with self._lock:
                self._num_bytes[engine] -= size

    def count(self, vocabulary: Vocabulary, batch: Batch) -> Counted:
        """Count the ids that `encode` would return for each row."""
        return self._engines()[0].count(vocabulary, batch)

    def decode(
        self,
        vocabulary: Vocabulary,
        ids: NDArray[np.int64],
        offsets: NDArray[np.int64],
        skip_special_tokens: bool,
    ) -> Decoded:
        """Decode ids int64[T], whose rows begin at offsets int64[B + 1], to bytes."""
        return self._engines()[0].decode(vocabulary, ids, offsets, skip_special_tokens)

    def close(self) -> None:
        """Wait until all GPUs are open; release all memory and threads."""
        for engine in self._opening.result():
            engine.close()


def open_gpus(cpu: Engine, vocabulary: Vocabulary, *, is_needed: bool) -> Gpus:
    """Begin to open all GPUs with a vocabulary; the CPU engine computes the rows that they cannot.

    Args:
        cpu: the CPU engine.
        vocabulary: the vocabulary of the job, which stays on all GPUs.
        is_needed: whether the job fails if CuPy or the driver can use no GPU.
    """

    def open_all() -> list[HybridEngine]:
        count = num_devices()
        if is_needed and not count:
            raise DeviceUnavailable("there is no GPU that CUDA can use")
        engines = [_open(cpu, number) for number in range(count)]
        for engine in engines:
            engine.load(vocabulary, permanent=True)
        for engine in engines:
            engine.vocabularies.wait_until_open()
            engine.settle()
        return engines

    thread = ThreadPoolExecutor(1, "gpus-opening")
    opening = thread.submit(open_all)
    thread.shutdown(wait=False)
    return Gpus(cpu, opening)


def _open(cpu: Engine, number: int) -> HybridEngine:
    def open_one() -> OpenedGpu:
        return open_engine(CudaDevice(number), number, MEMORY_SHARE)

    return HybridEngine(cpu, open_one)
