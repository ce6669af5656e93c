"""Opens the engine of a device, once in a process: of the CPU alone, or of a GPU beside it.

"cpu" computes on the CPU. "auto" sends batches from a measured size on to the first GPU, and works
without one. "cuda" and "cuda:1" send all batches to that GPU; the CPU computes the rows that the
kernels do not support, as in the service, and `EncodedBatch.engine` says so.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from vocabularies.batch.batch import Batch
from vocabularies.sequences.window_layout import WindowLayout
from warptok.errors import DeviceUnavailable, InvalidRequest
from warptok.results import DeviceBatch

if TYPE_CHECKING:
    from gpu.engine import GpuEngine
    from gpu.windows import DeviceWindows
    from service.engines.base import Engine, Residency
    from service.engines.cpu.engine import CpuEngine
    from service.engines.hybrid.engine import HybridEngine
    from service.engines.hybrid.residency import OpenedGpu
    from vocabularies.model.vocabulary import Vocabulary

MEMORY_SHARE = 0.5
"""The share of a GPU's free memory that an engine may use, as the service's default."""
CUDA = re.compile(r"cuda(?::(\d{1,3}))?")
OPENING = threading.Lock()


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """The engine of a device.

    Attributes:
        device: "cpu", "cuda:0", "cuda:1", ...
        engine: computes the ids.
        gpu: the same engine, where it has a GPU; None: it has none.
        cpu: the same engine, where it is the CPU alone.
        is_required: whether vocabularies that the GPU does not support are refused.
    """

    device: str
    engine: Engine
    gpu: HybridEngine | None = None
    cpu: CpuEngine | None = None
    is_required: bool = False

    def load(self, vocabulary: Vocabulary) -> Residency:
        """Load a vocabulary, and compare it with its reference.

        Raises:
            VocabularyError: no encoder can compute it.
            DeviceUnavailable: the GPU was named, and its kernels do not compute it.
        """
        residency = self.engine.load(vocabulary)
        if self.is_required and residency.engine != "gpu":
            reason = residency.fallback_reason or "the GPU is not ready"
            raise DeviceUnavailable(f'{reason}; device="auto" or "cpu" computes it on the CPU')
        return residency

    def gpu_engine(self) -> GpuEngine:
        """Return the engine of the GPU alone, which writes to its memory.

        Raises:
            DeviceUnavailable: there is no GPU.
        """
        opened = None if self.gpu is None else self.gpu.vocabularies.opened
        if opened is None:
            message = 'this needs a GPU; load the tokenizer with device="cuda", or use encode_batch'
            raise DeviceUnavailable(message)
        return cast("GpuEngine", opened.gpu)

    def describe(self, vocabulary: Vocabulary) -> str:
        """Describe the engine that computes the ids of a loaded vocabulary, as text for people."""
        residency = self.engine.residency(vocabulary.digest)
        if residency is None:
            return f"on {self.device}"
        if self.gpu is None or residency.engine != "gpu":
            return f"on cpu ({residency.encoder})"
        name = residency.encoder.removeprefix("cuda on ")
        if self.is_required:
            return f"on {self.device} ({name})"
        size = self.gpu.crossover_bytes
        return f"on {self.device} ({name}) from {size} bytes on, below on cpu"


def open_place(device: str, num_threads: int = 0) -> Place:
    """Open the engine of a device; slow at the first call for a GPU, whose kernels are compiled.

    Args:
        device: as for `warptok.load`.
        num_threads: the most threads that encode where there is no GPU; 0: one a usable core.

    Raises:
        InvalidRequest: there is no such word.
        DeviceUnavailable: the GPU cannot be used; the message says why.
    """
    match = CUDA.fullmatch(device) if isinstance(device, str) else None
    if device not in ("auto", "cpu") and match is None:
        message = f'device is {device!r}; it is "auto", "cpu", "cuda" or "cuda:1"'
        raise InvalidRequest(message, where="device")
    with OPENING:  # A thread that waits finds what the other one has opened.
        if match is not None:
            return _open_cuda(int(match[1] or 0))
        return _open_any(num_threads) if device == "auto" else open_cpu(num_threads)


@cache
def open_cpu(num_threads: int) -> Place:
    """Open the engine of the CPU; of 0 threads it has one a usable core."""
    from service.engines.cpu.engine import CpuEngine

    engine = CpuEngine(num_threads=num_threads)
    return Place("cpu", engine, cpu=engine)


@cache
def _open_any(num_threads: int) -> Place:
    from gpu.runtime.cuda_device import num_devices

    if not num_devices():
        return open_cpu(num_threads)
    gpu = _open_hybrid(0, None)
    gpu.settle()
    return Place("cuda:0", gpu, gpu)


@cache
def _open_cuda(number: int) -> Place:
    from gpu.errors import DeviceUnavailable as NoDevice

    gpu = _open_hybrid(number, 0)
    try:
        gpu.vocabularies.wait_until_open()
    except NoDevice as error:
        raise DeviceUnavailable(str(error)) from error
    gpu.settle()
    return Place(f"cuda:{number}", gpu, gpu, is_required=True)


def _open_hybrid(number: int, crossover_bytes: int | None) -> HybridEngine:
    """Open a GPU beside the CPU; None: measure the size from which on batches go to the GPU."""
    from service.engines.hybrid.engine import HybridEngine

    return HybridEngine(open_cpu(0).engine, lambda: _open_gpu(number), crossover_bytes)


def _open_gpu(number: int) -> OpenedGpu:
    from gpu.runtime.cuda_device import CudaDevice
    from service.engines.hybrid.opening import open_engine

    return open_engine(CudaDevice(number), number, MEMORY_SHARE)


def encode_to_device(
    engine: GpuEngine, vocabulary: Vocabulary, batch: Batch, id_dtype: type[np.integer[Any]]
) -> DeviceBatch:
    """Encode a batch into the memory of a GPU.

    Raises:
        DeviceUnavailable: the kernels do not compute the vocabulary or a text, or the memory of
            the GPU is too small.
        InvalidRequest: a text is refused.
    """
    from gpu.errors import NotCovered, OutOfMemory
    from gpu.streaming import encode_stream
    from gpu.windows import DeviceArray

    try:
        room = DeviceArray.empty(engine.device, (len(batch.data),), np.dtype(id_dtype))
        offsets = encode_stream(engine, vocabulary, batch.data, batch.offsets, room)
    except (NotCovered, OutOfMemory) as error:
        raise DeviceUnavailable(str(error)) from error
    except ValueError as error:
        raise InvalidRequest(str(error), where="texts") from error
    ids = DeviceArray(room.address, (int(offsets[-1]),), room.dtype, room.owner)
    return DeviceBatch(ids=ids, offsets=offsets, digest=vocabulary.digest)


def windows_to_device(
    engine: GpuEngine,
    vocabulary: Vocabulary,
    batch: Batch,
    layout: WindowLayout,
    channel: NDArray[np.float32] | None,
) -> DeviceWindows:
    """Cut the windows of a batch in the memory of a GPU; see `gpu.windows.encode_windows`.

    Raises:
        DeviceUnavailable: the kernels do not cut these windows, or the memory of the GPU is too
            small.
    """
    from gpu.errors import NotCovered, OutOfMemory
    from gpu.windows import encode_windows

    try:
        return encode_windows(
            engine,
            vocabulary,
            batch,
            window=layout.window,
            stride=layout.stride,
            pad_id=layout.pad_id,
            prefix=layout.prefix,
            channel=channel,
        )
    except (NotCovered, OutOfMemory) as error:
        raise DeviceUnavailable(str(error)) from error
