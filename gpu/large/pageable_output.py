"""Ids to memory that the device does not reach, by way of leased memory.

While threads copy one chunk's ids to where they are wanted the next one's are on their way:

    chunk 0   from the device   to where it is wanted
    chunk 1                     from the device         to where it is wanted
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu.host.copy_pool import Copy, CopyPool
from gpu.large.chunk_in_flight import ChunkInFlight
from gpu.memory.pinned_pool import PinnedPool

Bytes = NDArray[np.uint8]


class PageableOutput:
    """Brings the ids of chunks, in their order."""

    def __init__(self, leases: PinnedPool, staging: CopyPool) -> None:
        self.leases, self.staging = leases, staging
        self._coming: tuple[Bytes, Bytes] | None = None
        self._going: tuple[Copy, int] | None = None

    def bring(self, flight: ChunkInFlight, target: Bytes) -> None:
        """Copy the first bytes of the ids; they are there when `finish` returns."""
        flight.copy_streams.outward.synchronize()  # Nothing is under way but the ids before these.
        self._hand_on()
        block = self.leases.take(len(target)) if len(target) else None
        if block is None:
            flight.bring_ids(target)
            return
        flight.copy_ids(int(block.ctypes.data), len(target))
        self._coming = block[: len(target)], target

    def _hand_on(self) -> None:
        """What has come goes on to where it is wanted; what went before is there."""
        self._wait()
        if self._coming is not None:
            block, target = self._coming
            self._going = self.staging.start(target, block), len(target)
            self._coming = None

    def _wait(self) -> None:
        if self._going is not None:
            copy, num_bytes = self._going
            copy.wait(num_bytes)
            self._going = None

    def finish(self) -> None:
        """The rest, once all copies from the device are done."""
        self._hand_on()
        self._wait()
