"""Manages shared memory of clients and front ends, which each GPU worker opens itself.

This process stores what a worker needs to open a region: the file, or the handle of the device
memory. So a worker opens a region when it first needs it, and again after a restart. Texts and ids
never pass through this process.
"""

from __future__ import annotations

import mmap
import os
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gpu.memory.ipc import Region
from service.multiprocess.gpu_workers.worker_memory import WorkerMemory
from vocabularies.batch.shared_rows import check_bounds

Bytes = NDArray[np.uint8]


class HostRegion(Region):
    """A range of a memory file: a `SharedMemory` that all GPUs access.

    Args:
        memory: the memory of all workers.
        file: the descriptor of the file, which the caller closes.
        offset: the first byte of the range.
        num_bytes: the length of the range.

    Attributes:
        number: the number of the region in messages to workers.
        file: a duplicate of the file descriptor.
        address: the first byte in this process, for reading what front ends have written. Regions
            of clients are read through the file instead, because a client may truncate it.

    Raises:
        ValueError: the range reaches beyond the end of the file.
    """

    on_device = False

    def __init__(self, memory: WorkerMemory, file: int, offset: int, num_bytes: int) -> None:
        super().__init__()
        self.number = memory.new_region_number()
        self.offset = offset
        self.num_bytes = num_bytes
        self._memory = memory
        before = offset % mmap.ALLOCATIONGRANULARITY
        mapped = mmap.mmap(file, before + num_bytes, prot=mmap.PROT_READ, offset=offset - before)
        self._mapped = np.frombuffer(mapped, np.uint8)
        self.address = int(self._mapped.ctypes.data) + before
        self.file = os.dup(file)
        memory.add_region(self)

    def read(self, offset: int, out: Bytes) -> None:
        """Fill `out` with the bytes from `offset` on, read from the file.

        Raises:
            IndexError: the file was truncated in the meantime.
        """
        check_bounds(self, offset, len(out))
        size = os.preadv(self.file, [out.data], self.offset + offset) if len(out) else 0
        if size < len(out):
            raise IndexError(f"the file ends at byte {offset + size} of the region")

    def _release(self) -> None:
        self._memory.remove_region(self.number)
        os.close(self.file)


class RegionOwner(Protocol):
    """The GPU that has a region."""

    @property
    def device(self) -> object:
        """The object that represents the owner of the regions' device memory."""

    def read_region(self, region: DeviceRegion, offset: int, out: Bytes) -> None:
        """Copy bytes of a region to `out`."""

    def write_region(self, region: DeviceRegion, offset: int, data: Bytes) -> None:
        """Copy bytes to a region, and wait for the copy."""


class DeviceRegion(Region):
    """Memory of a device behind one handle: a `DeviceMemory`, copied by the device's worker.

    Args:
        gpu: the GPU that has the memory.
        memory: the memory of all workers.
        handle: cudaIpcMemHandle_t as bytes.
        num_bytes: the number of bytes that may be accessed.

    Attributes:
        number: the number of the region in messages to workers.
    """

    on_device = True
    address = 0  # Only the worker has one.

    def __init__(
        self, gpu: RegionOwner, memory: WorkerMemory, handle: bytes, num_bytes: int
    ) -> None:
        super().__init__()
        self.device = gpu.device
        self.number = memory.new_region_number()
        self.handle = handle
        self.num_bytes = num_bytes
        self._gpu = gpu
        self._memory = memory

    def read(self, offset: int, out: Bytes) -> None:
        """Fill `out`, host memory, with the bytes from `offset` on."""
        check_bounds(self, offset, len(out))
        self._gpu.read_region(self, offset, out)

    def write(self, offset: int, data: Bytes) -> None:
        """Copy host memory to the bytes from `offset` on, and wait for the copy."""
        check_bounds(self, offset, len(data))
        self._gpu.write_region(self, offset, data)

    def _release(self) -> None:
        self._memory.remove_region(self.number)
