"""Page-locks memory that the caller allocates, such as shared memory, for use as pinned memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from gpu.runtime.device import Device

Bytes = NDArray[np.uint8]
Take = Callable[[int], Bytes]
"""Allocates uint8[n] for at least n bytes, from the beginning of a page on; references keep it."""


class CallerPinned:
    """A source of pinned blocks, with the methods that a Device has for them.

    Args:
        device: the device for which memory is page-locked.
        take: allocates the memory.
    """

    def __init__(self, device: Device, take: Take) -> None:
        self.device, self.take = device, take

    def allocate_pinned(self, num_bytes: int) -> Bytes:
        """Allocate host memory that the device accesses at the same address.

        Raises:
            OutOfMemory: it cannot be page-locked.
        """
        block = self.take(num_bytes)[:num_bytes]
        self.device.pin(block.ctypes.data, num_bytes)
        return block

    def free_pinned(self, memory: Bytes) -> None:
        """End the page lock of a block; the memory is freed when no reference to it is left."""
        self.device.unpin(memory.ctypes.data)
