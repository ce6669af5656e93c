"""Launches the kernels of block_merge.cu on a CUDA device, by CuPy.

The kernels are comparators: BlockBPE and GPUTok as their papers describe them, in our own words.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.kernels.merges_alone import MergeTable, offsets_of
from gpu.kernels.catalog import source_of
from gpu.runtime.cupy_loader import load_cupy

SOURCE = Path(__file__).with_name("block_merge.cu")
INCLUDED = "common/platform.cuh"
BLOCK_SIZES = (256, 512, 1024)
BUFFERS = {"merge_leftmost": 2, "merge_scanned": 2, "merge_every": 2, "merge_local_minima": 3}
"""The kernels, and how many buffers of ids each has in shared memory."""
EXACT = ("merge_leftmost", "merge_scanned", "merge_every")
ALIGNMENT = 256
Ids = list[int]


def shared_bytes(kernel: str, capacity: int) -> int:
    """Return the bytes of dynamic shared memory of a block for texts of at most `capacity`."""
    return 4 * capacity * BUFFERS[kernel]


def rows_of(
    ids: NDArray[np.uint32], begins: NDArray[np.uint32], counts: NDArray[np.uint32]
) -> list[Ids]:
    """Cut the ids that a launch wrote into rows."""
    return [
        ids[begin : begin + count].tolist()
        for begin, count in zip(begins[:-1].tolist(), counts.tolist(), strict=True)
    ]


@dataclass(frozen=True, slots=True)
class DeviceTexts:
    """Texts on the device, and room for their ids.

    Attributes:
        begins: uint32[B + 1] on the host.
        capacity: bytes of the longest text.
        arrays: text, begins, ids and counts on the device.
    """

    begins: NDArray[np.uint32]
    capacity: int
    arrays: tuple[Any, Any, Any, Any]


class BlockMerges:
    """Merges texts on the current CUDA device; each text is merged by one block.

    Raises:
        DeviceUnavailable: CuPy is missing.
    """

    def __init__(self, table: MergeTable) -> None:
        self._cupy: Any = load_cupy()
        code = source_of(INCLUDED) + SOURCE.read_text().replace(f'#include "{INCLUDED}"', "")
        module = self._cupy.RawModule(code=code, options=("-std=c++17",), backend="nvrtc")
        self._kernels = {name: module.get_function(name) for name in BUFFERS}
        self._allowed: dict[str, int] = {}
        self._mask = table.mask
        self._places = self._cupy.asarray(table.places)
        self._byte_ids = self._cupy.asarray(table.byte_ids)

    def put(self, texts: Sequence[bytes]) -> DeviceTexts:
        """Copy texts to the device in one piece, and allocate room for their ids."""
        cupy, begins = self._cupy, offsets_of(texts)
        data = np.frombuffer(b"".join(texts), np.uint8)
        arrays = (
            cupy.asarray(data),
            cupy.asarray(begins),
            cupy.empty(len(data), np.uint32),
            cupy.empty(len(texts), np.uint32),
        )
        return DeviceTexts(begins, max(map(len, texts)), arrays)

    def launch(self, kernel: str, texts: DeviceTexts, threads: int) -> None:
        """Merge the texts on the current stream."""
        text, begins, ids, counts = texts.arrays
        function, size = self._kernels[kernel], shared_bytes(kernel, texts.capacity)
        if self._allowed.get(kernel, 0) < size:  # Beside static shared memory.
            function.max_dynamic_shared_size_bytes = self._allowed[kernel] = size
        arguments = (text, begins, self._byte_ids, self._places, ids, counts)
        numbers = (np.uint32(self._mask), np.uint32(texts.capacity))
        function((len(counts),), (threads,), (*arguments, *numbers), shared_mem=size)

    def seconds(self, kernel: str, texts: DeviceTexts, threads: int) -> float:
        """Merge the texts and return the seconds of the kernel alone, by CUDA events."""
        event = self._cupy.cuda.Event
        begin, end = event(), event()
        begin.record()
        self.launch(kernel, texts, threads)
        end.record()
        end.synchronize()
        return float(self._cupy.cuda.get_elapsed_time(begin, end)) / 1e3

    def fetch(self, texts: DeviceTexts) -> list[Ids]:
        """Copy the ids back, as a list for each text."""
        _, _, ids, counts = texts.arrays
        return rows_of(ids.get(), texts.begins, counts.get())

    def encode(self, kernel: str, texts: Sequence[bytes], threads: int) -> list[Ids]:
        """Merge texts from host to host: copy, allocate, merge, copy back."""
        placed = self.put(texts)
        self.launch(kernel, placed, threads)
        return self.fetch(placed)

    def without_pool(self) -> Any:
        """Allocate through the driver, without a pool, during a `with` block, as GPUTok does."""
        return self._cupy.cuda.using_allocator()


def arguments_of(
    table: MergeTable, text: NDArray[np.uint8], begins: NDArray[np.uint32], *outputs: Any
) -> list[ctypes.c_void_p]:
    """Return the addresses that a kernel gets where it is compiled as C++."""
    arrays = (text, begins, table.byte_ids, table.places, *outputs)
    return [ctypes.c_void_p(array.ctypes.data) for array in arrays]
