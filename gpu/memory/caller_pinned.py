"""Pinned memory that lies where the caller wants it: memory of the caller's, page-locked."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from gpu.runtime.device import Device

Bytes = NDArray[np.uint8]
Take = Callable[[int], Bytes]
"""Gives uint8 of so many bytes or more that begin with a page and belong to whoever holds them."""


class CallerPinned:
    """Gives pinned blocks as a device does.

    Args:
        device: that reaches them.
        take: gives the memory.
    """

    def __init__(self, device: Device, take: Take) -> None:
        self.device, self.take = device, take

    def allocate_pinned(self, num_bytes: int) -> Bytes:
        """Host memory that the device reaches under the same address.

        Raises:
            OutOfMemory: it cannot be page-locked.
        """
        block = self.take(num_bytes)[:num_bytes]
        self.device.pin(block.ctypes.data, num_bytes)
        return block

    def free_pinned(self, memory: Bytes) -> None:
        """Let a block be ordinary memory again; it goes back when nobody holds it any more."""
        self.device.unpin(memory.ctypes.data)
