"""Device memory of another process, by the handle that it sent: read, written, let go of.

Bounds are checked here before the device sees an address. A process that ends or frees its memory
while we hold it leaves ours mapped until `close`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu.device import Device

__all__ = ["HANDLE_BYTES", "SharedDeviceMemory"]

Bytes = NDArray[np.uint8]
HANDLE_BYTES = 64  # Of cudaIpcMemHandle_t.


class SharedDeviceMemory:
    """The memory behind one handle.

    Args:
        device: where it lies.
        handle: cudaIpcMemHandle_t as bytes.
        num_bytes: how many of it may be touched, as the client says: a handle does not tell.

    Raises:
        BadHandle: it is none, or the memory is gone, or of another device.
    """

    def __init__(self, device: Device, handle: bytes, num_bytes: int) -> None:
        self.device, self.num_bytes = device, num_bytes
        self._address = device.open_shared(handle)

    def read(self, offset: int, out: Bytes) -> None:
        """Copy the bytes from `offset` on to host memory, as many as there is room for."""
        self._check(offset, len(out))
        stream = self.device.stream()
        stream.copy_out(out.ctypes.data, self._address + offset, len(out))
        stream.synchronize()

    def write(self, offset: int, data: Bytes) -> None:
        """Copy host memory there; it is there when this returns."""
        self._check(offset, len(data))
        stream = self.device.stream()
        stream.copy_in(self._address + offset, data.ctypes.data, len(data))
        stream.synchronize()

    def _check(self, offset: int, num_bytes: int) -> None:
        if offset < 0 or offset + num_bytes > self.num_bytes:
            end = offset + num_bytes
            raise IndexError(f"bytes {offset} to {end} of a region of {self.num_bytes}")

    def close(self) -> None:
        """Let go of it."""
        self.device.close_shared(self._address)
