"""Manages memory that a process and all its GPU workers map.

    texts   in blocks that every worker page-locks ──► its device reads them in place
    ids     in blocks that a worker has requested ───► front ends read them in place, too

Workers also map regions of front ends and clients (regions.py). Arrays that are in neither are
copied to a block for texts.
"""

from __future__ import annotations

from itertools import count
from threading import RLock
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gpu.errors import OutOfMemory
from gpu.host.copy_pool import CopyPool
from gpu.memory.pinned_pool import PinnedPool
from service.multiprocess.link.frames import Place, PlacedArray
from service.multiprocess.link.shared_memory import MIN_SHARED_BYTES, LinkMemory

Bytes = NDArray[np.uint8]
OWN_MEMORY = 0  # The number of this process's memory; regions have other numbers.
TEXT_BYTES = 1 << 30  # The most page-locked bytes of texts.


class MappedRegion(Protocol):
    """A region of host memory that workers also map: its number, and its place in this process."""

    number: int
    address: int
    num_bytes: int


class MappingWorker(Protocol):
    """A worker, which applies changes of memory before its next call."""

    def pin(self, offset: int, num_bytes: int) -> None:
        """Page-lock a block."""

    def unpin(self, offset: int, block: Bytes) -> None:
        """End the page lock of a block, which is not reused until then."""

    def close_region(self, number: int) -> None:
        """Close a region."""


class WorkerMemory:
    """The memory of a process that its GPU workers map; it is thread-safe.

    Args:
        file: the memory.
        text_bytes: the most bytes of blocks for texts.

    Attributes:
        copies: threads that copy large arrays.
        texts: lends the blocks for texts.
    """

    def __init__(self, file: LinkMemory, text_bytes: int = TEXT_BYTES) -> None:
        self.file = file
        self.copies = CopyPool()
        self.texts = PinnedPool(self, text_bytes)
        self._numbers = count(OWN_MEMORY + 1)
        self._lock = RLock()  # The finalizer of a region may run while it is held.
        self._blocks: dict[int, Bytes] = {}  # Of texts, by their offsets.
        self._workers: list[MappingWorker] = []
        self._regions: list[MappedRegion] = []

    def host_memory(self, num_bytes: int) -> Bytes | None:
        """Lend uint8[num_bytes] for texts; None if none is free."""
        block = self.texts.take(num_bytes)
        return None if block is None else block[:num_bytes]

    def allocate_pinned(self, num_bytes: int) -> Bytes:
        """Allocate a block for texts, which workers page-lock before their next calls.

        Raises:
            OutOfMemory: the file has no free space.
        """
        block = self.file.take(num_bytes)[:num_bytes]
        offset = self.file.find_offset(block)
        if offset is None:
            raise OutOfMemory(f"no {num_bytes} bytes of shared memory are free")
        with self._lock:
            self._blocks[offset] = block
            for worker in self._workers:
                worker.pin(offset, num_bytes)
        return block

    def free_pinned(self, memory: Bytes) -> None:
        """Free a block once no worker has it page-locked any more."""
        offset = self.file.find_offset(memory)
        assert offset is not None
        with self._lock:
            block = self._blocks.pop(offset)
            for worker in self._workers:
                worker.unpin(offset, block)

    def add_worker(self, worker: MappingWorker) -> None:
        """Let a worker page-lock the blocks of texts from now on."""
        with self._lock:
            self._workers.append(worker)
            for offset, block in self._blocks.items():
                worker.pin(offset, len(block))

    def remove_worker(self, worker: MappingWorker) -> None:
        """Remove a worker that has ended."""
        with self._lock:
            if worker in self._workers:
                self._workers.remove(worker)

    def new_region_number(self) -> int:
        """Return a number for a region; numbers are never reused."""
        return next(self._numbers)

    def add_region(self, region: MappedRegion) -> None:
        """Add a region of host memory, so that arrays in it are found."""
        with self._lock:
            self._regions = [*self._regions, region]

    def list_regions(self) -> list[MappedRegion]:
        """List the regions of host memory."""
        return self._regions

    def remove_region(self, region_number: int) -> None:
        """Let all workers close a region that is not used any more."""
        with self._lock:
            self._regions = [each for each in self._regions if each.number != region_number]
            for worker in self._workers:
                worker.close_region(region_number)

    def find(self, array: NDArray[Any]) -> PlacedArray | None:
        """Find a contiguous array in memory that workers map; small ones are sent.

        Returns:
            None if the array is large and elsewhere.
        """
        if array.nbytes < MIN_SHARED_BYTES:
            return PlacedArray(array)
        place = self._find(array)
        return None if place is None else PlacedArray(array, place)

    def place(self, array: NDArray[Any]) -> PlacedArray:
        """Find an array in memory that workers map, or copy it there; small ones are sent."""
        array = np.ascontiguousarray(array)
        if (found := self.find(array)) is not None:
            return found
        block = self.texts.take(array.nbytes)
        if block is None:
            return PlacedArray(array)
        data = block[: array.nbytes]
        self.copies.share(data, array.reshape(-1).view(np.uint8))
        return PlacedArray(data.view(array.dtype).reshape(array.shape), self._find(data))

    def _find(self, array: NDArray[Any]) -> Place | None:
        offset = self.file.find_offset(array)
        if offset is not None:
            return OWN_MEMORY, offset
        address = int(array.__array_interface__["data"][0])
        for region in self._regions:
            if region.address <= address <= region.address + region.num_bytes - array.nbytes:
                return region.number, address - region.address
        return None

    def close(self) -> None:
        """Free the blocks that are not lent, and end the threads."""
        self.texts.close()
        self.copies.close()
