"""Pinned host memory for answers, leased until the last reference to it is gone.

A leased block is the base of an ordinary array. When its last view is garbage-collected, the block
returns to the pool and is leased again. So answers need no second copy and, in the steady state, no
allocation. This module does not depend on batches or kernels.
"""

from __future__ import annotations

import logging
from collections import deque
from threading import Lock
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gpu.errors import OutOfMemory

_log = logging.getLogger(__name__)
Bytes = NDArray[np.uint8]
SMALLEST = 1 << 16


class Pinned(Protocol):
    """A source of pinned memory, such as a device; see gpu.runtime.device.Device."""

    def allocate_pinned(self, num_bytes: int) -> Bytes:
        """Allocate host memory that the device can access; raises OutOfMemory."""

    def free_pinned(self, memory: Bytes) -> None:
        """Free it."""


class PinnedPool:
    """A pool of pinned blocks of one device; sizes are powers of two, and their total is limited.

    Args:
        source: allocates the blocks.
        cap_bytes: the largest total size of all blocks, leased or free, in bytes.

    Attributes:
        used_bytes: the bytes of all blocks now.
        num_allocations: the number of blocks ever allocated.
    """

    def __init__(self, source: Pinned, cap_bytes: int) -> None:
        self.source, self.cap_bytes = source, cap_bytes
        self.used_bytes = self.num_allocations = 0
        self._free: dict[int, list[Bytes]] = {}  # By size, the most recently used size last.
        self._returned: deque[Bytes] = deque()
        self._changing = Lock()
        self._has_failed = False

    def take(self, num_bytes: int) -> Bytes | None:
        """Lease pinned memory of at least `num_bytes`, uint8[n]; None if it would exceed the limit.

        The lease ends with the last reference to the array or to a view of it.
        """
        size = max(SMALLEST, 1 << max(0, num_bytes - 1).bit_length())
        with self._changing:
            self._collect()
            blocks = self._free[size] = self._free.pop(size, [])
            block = blocks.pop() if blocks else self._make(size)
        return None if block is None else np.asarray(_Lease(block, self._returned))

    def _collect(self) -> None:
        """Put returned blocks back; finalizers append them at any moment, without the lock."""
        while self._returned:
            block = self._returned.popleft()
            self._free.setdefault(len(block), []).append(block)

    def _make(self, size: int) -> Bytes | None:
        self._drop(size)
        if self.used_bytes + size > self.cap_bytes:
            return None
        try:
            block = self.source.allocate_pinned(size)
        except OutOfMemory as error:
            if not self._has_failed:
                _log.warning("some answers are in pageable memory and take longer: %s", str(error))
            self._has_failed = True
            return None
        self.used_bytes += size
        self.num_allocations += 1
        return block

    def _drop(self, size: int) -> None:
        """Free unused blocks, least recently used sizes first, until `size` more bytes fit."""
        for blocks in self._free.values():
            while blocks and self.used_bytes + size > self.cap_bytes:
                block = blocks.pop()
                self.used_bytes -= len(block)
                self.source.free_pinned(block)

    def close(self) -> None:
        """Free all unused blocks; leased blocks stay valid as long as they are referenced."""
        with self._changing:
            self._collect()
            self.cap_bytes = 0
            self._drop(0)


class _Lease:
    """The base of a leased array; its finalizer returns the block to the pool."""

    __slots__ = ("__array_interface__", "_block", "_returned")

    def __init__(self, block: Bytes, returned: deque[Bytes]) -> None:
        self.__array_interface__ = block.__array_interface__
        self._block, self._returned = block, returned

    def __del__(self) -> None:
        # A finalizer may run while this very thread holds a lock: appending needs none.
        self._returned.append(self._block)
