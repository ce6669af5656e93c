"""Copies ids to pageable memory, through leased pinned memory.

While threads copy the ids of one chunk to their target, the device copies those of the next one:

    chunk 0   device to pinned   pinned to target
    chunk 1                      device to pinned   pinned to target
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu.host.copy_pool import Copy, CopyPool
from gpu.large.chunk_in_flight import ChunkInFlight
from gpu.memory.pinned_pool import PinnedPool

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class _FromDevice:
    """A copy of ids from the device into a pinned block, and their target."""

    block: Bytes
    target: Bytes


@dataclass(frozen=True, slots=True, eq=False)
class _ToTarget:
    """A copy of ids by threads from pinned memory to their target."""

    copy: Copy
    num_bytes: int


class PageableOutput:
    """Copies the ids of chunks to pageable memory, in the order of chunks."""

    def __init__(self, leases: PinnedPool, staging: CopyPool) -> None:
        self.leases, self.staging = leases, staging
        self._from_device: _FromDevice | None = None
        self._to_target: _ToTarget | None = None

    def bring(self, flight: ChunkInFlight, target: Bytes) -> None:
        """Start to copy the first bytes of a chunk's ids to `target`; `finish` waits for them."""
        flight.copy_streams.outward.synchronize()  # It only has the copy of the chunk before.
        self._start_next()
        block = self.leases.take(len(target)) if len(target) else None
        if block is None:
            flight.bring_ids(target)
            return
        flight.copy_ids(int(block.ctypes.data), len(target))
        self._from_device = _FromDevice(block[: len(target)], target)

    def _start_next(self) -> None:
        """Wait for the copy to a target, and start that of the ids that the device has copied."""
        self._wait()
        if self._from_device is not None:
            target = self._from_device.target
            copy = self.staging.start(target, self._from_device.block)
            self._to_target = _ToTarget(copy, len(target))
            self._from_device = None

    def _wait(self) -> None:
        if self._to_target is not None:
            self._to_target.copy.wait(self._to_target.num_bytes)
            self._to_target = None

    def finish(self) -> None:
        """Complete all copies to targets; those from the device must be done."""
        self._start_next()
        self._wait()
