"""Pinned host memory for answers, lent until nobody holds it any more.

A lent block is the base of an ordinary array. When the last view of it is garbage, whoever held it,
the block goes back and is lent again: answers need neither a second copy nor, in the steady state,
an allocation. Knows neither batches nor kernels.
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
    """A device, or what gives pinned memory as one does; see gpu.runtime.device.Device."""

    def allocate_pinned(self, num_bytes: int) -> Bytes:
        """Host memory that the device reaches; raises OutOfMemory."""

    def free_pinned(self, memory: Bytes) -> None:
        """Give it back."""


class PinnedPool:
    """Pinned blocks of one device, in powers of two, together within a cap.

    Args:
        source: of the blocks.
        cap_bytes: of all blocks, lent or not.

    Attributes:
        used_bytes, num_allocations: of blocks that are there now; ever made.
    """

    def __init__(self, source: Pinned, cap_bytes: int) -> None:
        self.source, self.cap_bytes = source, cap_bytes
        self.used_bytes = self.num_allocations = 0
        self._free: dict[int, list[Bytes]] = {}  # By size, that asked for last at the end.
        self._returned: deque[Bytes] = deque()
        self._changing = Lock()
        self._has_failed = False

    def take(self, num_bytes: int) -> Bytes | None:
        """uint8[num_bytes] or somewhat more of pinned memory; None where the cap leaves no room.

        It belongs to whoever holds it or a view of it.
        """
        size = max(SMALLEST, 1 << max(0, num_bytes - 1).bit_length())
        with self._changing:
            self._collect()
            blocks = self._free[size] = self._free.pop(size, [])
            block = blocks.pop() if blocks else self._make(size)
        return None if block is None else np.asarray(_Lease(block, self._returned))

    def _collect(self) -> None:
        """Blocks that came back since the last time; they come at any moment, so without a lock."""
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
                _log.warning("some answers lie in ordinary memory and take longer: %s", str(error))
            self._has_failed = True
            return None
        self.used_bytes += size
        self.num_allocations += 1
        return block

    def _drop(self, size: int) -> None:
        """Give blocks back that nobody holds until so many bytes fit, of forgotten sizes first."""
        for blocks in self._free.values():
            while blocks and self.used_bytes + size > self.cap_bytes:
                block = blocks.pop()
                self.used_bytes -= len(block)
                self.source.free_pinned(block)

    def close(self) -> None:
        """Give all blocks back that nobody holds; the others stay their holders'."""
        with self._changing:
            self._collect()
            self.cap_bytes = 0
            self._drop(0)


class _Lease:
    """What an answer's arrays have as their base; its end gives the block back."""

    __slots__ = ("__array_interface__", "_block", "_returned")

    def __init__(self, block: Bytes, returned: deque[Bytes]) -> None:
        self.__array_interface__ = block.__array_interface__
        self._block, self._returned = block, returned

    def __del__(self) -> None:
        # A finalizer may run while this very thread holds a lock: appending needs none.
        self._returned.append(self._block)
