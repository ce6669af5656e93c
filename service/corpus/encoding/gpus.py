"""Opens all GPUs for a job; the GPU with the fewest waiting bytes encodes each block."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from gpu.runtime.cuda_device import CudaDevice
from service.engines.base import Counted, Decoded, Engine, EngineStatus
from service.engines.hybrid.engine import HybridEngine
from service.engines.hybrid.opening import open_engine
from service.engines.hybrid.residency import OpenedGpu
from vocabularies.batch.batch import Batch, Encoded
from vocabularies.model.vocabulary import Vocabulary

MEMORY_SHARE = 0.5  # Of a GPU's free memory, as the service's default.


class Gpus:
    """Presents several engines as one engine; it is thread-safe.

    Args:
        engines: one engine per GPU, each combined with the CPU engine.
    """

    name = "gpu"

    def __init__(self, engines: list[HybridEngine]) -> None:
        self.engines = engines
        self._num_bytes = [0] * len(engines)
        self._lock = threading.Lock()

    def status(self) -> EngineStatus:
        """Return the state of the first engine."""
        return self.engines[0].status()

    def host_memory(self, num_bytes: int) -> NDArray[np.uint8]:
        """Allocate memory from which the first engine reads fastest."""
        return self.engines[0].host_memory(num_bytes)

    def encode(self, vocabulary: Vocabulary, batch: Batch) -> Encoded:
        """Encode each row on the GPU with the fewest waiting bytes."""
        size = batch.size
        with self._lock:
            number = min(range(len(self.engines)), key=self._num_bytes.__getitem__)
            self._num_bytes[number] += size
        try:
            return self.engines[number].encode(vocabulary, batch)
        finally:
            with self._lock:
                self._num_bytes[number] -= size

    def count(self, vocabulary: Vocabulary, batch: Batch) -> Counted:
        """Count the ids that `encode` would return for each row."""
        return self.engines[0].count(vocabulary, batch)

    def decode(
        self,
        vocabulary: Vocabulary,
        ids: NDArray[np.int64],
        offsets: NDArray[np.int64],
        skip_special_tokens: bool,
    ) -> Decoded:
        """Decode ids int64[T], whose rows begin at offsets int64[B + 1], to bytes."""
        return self.engines[0].decode(vocabulary, ids, offsets, skip_special_tokens)

    def close(self) -> None:
        """Release all memory and threads."""
        for engine in self.engines:
            engine.close()


def open_gpus(cpu: Engine, count: int, vocabulary: Vocabulary) -> Gpus:
    """Open GPUs with a vocabulary; the CPU engine computes the rows that they do not support.

    Args:
        cpu: the CPU engine.
        count: the number of GPUs.
        vocabulary: the vocabulary of the job, which is loaded on all GPUs before this returns.

    Raises:
        DeviceUnavailable: a GPU cannot be used.
        VocabularyError: no encoder can compute the vocabulary.
    """
    engines = [_open(cpu, number) for number in range(count)]
    for engine in engines:
        engine.load(vocabulary, permanent=True)
        engine.vocabularies.wait_until_open()
        engine.settle()
    return Gpus(engines)


def _open(cpu: Engine, number: int) -> HybridEngine:
    def open_one() -> OpenedGpu:
        return open_engine(CudaDevice(number), number, MEMORY_SHARE)

    return HybridEngine(cpu, open_one)
