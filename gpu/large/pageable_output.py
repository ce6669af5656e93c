"""Ids to memory that the device does not reach, by way of leased memory.

While threads copy one chunk's ids to where they are wanted the next one's are on their way:

    chunk 0   from the device   to where it is wanted
    chunk 1                     from the device         to where it is wanted
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
class _Coming:
    """Ids that come from the device into pinned memory, and where they are wanted."""

    block: Bytes
    target: Bytes


@dataclass(frozen=True, slots=True, eq=False)
class _Going:
    """A copy of so many bytes of ids from pinned memory to where they are wanted."""

    copy: Copy
    num_bytes: int


class PageableOutput:
    """Brings the ids of chunks, in their order."""

    def __init__(self, leases: PinnedPool, staging: CopyPool) -> None:
        self.leases, self.staging = leases, staging
        self._coming: _Coming | None = None
        self._going: _Going | None = None

    def bring(self, flight: ChunkInFlight, target: Bytes) -> None:
        """Copy the first bytes of the ids; they are there when `finish` returns."""
        flight.copy_streams.outward.synchronize()  # Nothing is under way but the ids before these.
        self._hand_on()
        block = self.leases.take(len(target)) if len(target) else None
        if block is None:
            flight.bring_ids(target)
            return
        flight.copy_ids(int(block.ctypes.data), len(target))
        self._coming = _Coming(block[: len(target)], target)

    def _hand_on(self) -> None:
        """What has come goes on to where it is wanted; what went before is there."""
        self._wait()
        if self._coming is not None:
            target = self._coming.target
            copy = self.staging.start(target, self._coming.block)
            self._going = _Going(copy, len(target))
            self._coming = None

    def _wait(self) -> None:
        if self._going is not None:
            self._going.copy.wait(self._going.num_bytes)
            self._going = None

    def finish(self) -> None:
        """The rest, once all copies from the device are done."""
        self._hand_on()
        self._wait()
