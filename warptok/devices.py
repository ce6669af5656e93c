"""Opens one engine for each device in a process: for the CPU alone, or for a GPU with the CPU.

"cpu" computes on the CPU. "auto" sends batches above a measured size to the first GPU, and uses the
CPU alone if there is no GPU. "cuda" and "cuda:1" send all batches to that GPU; as in the service,
the CPU computes rows that the kernels do not support, and `EncodedBatch.engine` reports it.
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
"""The share of a GPU's free memory that an engine may use, equal to the service's default."""
CUDA = re.compile(r"cuda(?::(\d{1,3}))?")
OPENING = threading.Lock()


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """The engine of a device.

    Attributes:
        device: "cpu", "cuda:0", "cuda:1", ...
        engine: the engine that computes the ids.
        gpu: the same engine if it has a GPU; else None.
        cpu: the same engine if it has the CPU alone; else None.
        is_required: whether a vocabulary that the GPU does not support is refused.
    """

    device: str
    engine: Engine
    gpu: HybridEngine | None = None
    cpu: CpuEngine | None = None
    is_required: bool = False

    def load(self, vocabulary: Vocabulary) -> Residency:
        """Load a vocabulary into the engine, and compare its ids with the reference's.

        Raises:
            VocabularyError: no encoder can compute the vocabulary.
            DeviceUnavailable: the device names a GPU, and its kernels cannot compute the
                vocabulary.
        """
        residency = self.engine.load(vocabulary)
        if self.is_required and residency.engine != "gpu":
            reason = residency.fallback_reason or "the GPU is not ready"
            raise DeviceUnavailable(f'{reason}; device="auto" or "cpu" computes it on the CPU')
        return residency

    def gpu_engine(self) -> GpuEngine:
        """Return the part of the engine that encodes into the GPU's memory.

        Raises:
            DeviceUnavailable: there is no GPU.
        """
        opened = None if self.gpu is None else self.gpu.vocabularies.opened
        if opened is None:
            message = (
                'this call needs a GPU; load the tokenizer with device="cuda", or use encode_batch'
            )
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
    """Open the engine of a device; the first call for a GPU is slow, as it compiles kernels.

    Args:
        device: as for `warptok.load`.
        num_threads: the most threads that encode if there is no GPU; 0: one per usable core.

    Raises:
        InvalidRequest: `device` is not a known word.
        DeviceUnavailable: the GPU cannot be used; the message says why.
    """
    match = CUDA.fullmatch(device) if isinstance(device, str) else None
    if device not in ("auto", "cpu") and match is None:
        message = (
            f'device is {device!r}; it must be "auto", "cpu", "cuda" or a number such as "cuda:1"'
        )
        raise InvalidRequest(message, where="device")
    with OPENING:  # A thread that waits finds what the other one has opened.
        if match is not None:
            return _open_cuda(int(match[1] or 0))
        return _open_any(num_threads) if device == "auto" else open_cpu(num_threads)


@cache
def open_cpu(num_threads: int) -> Place:
    """Open the engine of the CPU with some threads; 0: one thread per usable core."""
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
    """Open an engine of a GPU and the CPU; with None it measures the smallest batch for the GPU."""
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
        DeviceUnavailable: the kernels cannot compute the vocabulary or a text, or the GPU's memory
            is too small.
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
    """Compute the windows of a batch in the memory of a GPU; see `gpu.windows.encode_windows`.

    Raises:
        DeviceUnavailable: the kernels cannot compute these windows, or the GPU's memory is too
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
