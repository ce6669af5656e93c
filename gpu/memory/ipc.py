"""Memory of other processes that the device reads and writes: its own, and the host's.

Device memory is opened by the handle that its owner sent. Host memory is a part of a file, mapped
and page-locked: only the device goes through the mapping, and what we must see ourselves is read
from the file, so that a client that cuts its file short cannot end this process with SIGBUS.

Bounds are checked here before the device sees an address. A process that ends or frees its memory
while we hold it leaves ours mapped until `close`.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from gpu.runtime.device import Device
from vocabularies.batch.shared_rows import check_bounds

Bytes = NDArray[np.uint8]
HANDLE_BYTES = 64  # Of cudaIpcMemHandle_t.


class _Held:
    """Memory that is let go of when nobody is at work on it any more; for several threads."""

    def __init__(self) -> None:
        self._lock, self._users, self._is_wanted = Lock(), 0, True

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """For a `with` block, in which the memory stays.

        Raises:
            ValueError: it was let go of.
        """
        with self._lock:
            if not self._is_wanted:
                raise ValueError("the memory was let go of")
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                is_last = not self._users and not self._is_wanted
            if is_last:
                self._release()

    def close(self) -> None:
        """Let go of it, now or behind what is at work on it."""
        with self._lock:
            is_last = not self._users and self._is_wanted
            self._is_wanted = False
        if is_last:
            self._release()

    def _release(self) -> None:
        raise NotImplementedError


class SharedDeviceMemory(_Held):
    """The memory behind one handle.

    Args:
        device: where it lies.
        handle: cudaIpcMemHandle_t as bytes.
        num_bytes: how many of it may be touched, as the client says: a handle does not tell.

    Raises:
        BadHandle: it is none, or the memory is gone, or of another device.
    """

    on_device = True

    def __init__(self, device: Device, handle: bytes, num_bytes: int) -> None:
        super().__init__()
        self.device, self.num_bytes = device, num_bytes
        self.address = device.open_shared(handle)

    def read(self, offset: int, out: Bytes) -> None:
        """Copy the bytes from `offset` on to host memory, as many as there is room for."""
        check_bounds(self, offset, len(out))
        stream = self.device.stream()
        stream.copy_out(out.ctypes.data, self.address + offset, len(out))
        stream.synchronize()

    def write(self, offset: int, data: Bytes) -> None:
        """Copy host memory there; it is there when this returns."""
        check_bounds(self, offset, len(data))
        stream = self.device.stream()
        stream.copy_in(self.address + offset, data.ctypes.data, len(data))
        stream.synchronize()

    def _release(self) -> None:
        self.device.close_shared(self.address)


class SharedHostMemory(_Held):
    """A part of a file of memory, page-locked for the device.

    Args:
        device: that reads and writes it.
        file: its descriptor, which stays the caller's.
        offset, num_bytes: the part.

    Raises:
        ValueError: the file is shorter.
        OutOfMemory: it cannot be page-locked.
    """

    on_device = False

    def __init__(self, device: Device, file: int, offset: int, num_bytes: int) -> None:
        super().__init__()
        self.device, self.num_bytes, self._offset = device, num_bytes, offset
        before = offset % mmap.ALLOCATIONGRANULARITY
        self._map = mmap.mmap(file, before + num_bytes, offset=offset - before)
        self._begin = np.frombuffer(self._map, np.uint8).ctypes.data
        self.address = self._begin + before
        try:
            device.pin(self._begin, before + num_bytes)
        except BaseException:
            self._map.close()
            raise
        self._file = os.dup(file)

    def read(self, offset: int, out: Bytes) -> None:
        """Copy the bytes from `offset` on to other memory, as many as there is room for.

        Raises:
            IndexError: the file was cut short meanwhile.
        """
        check_bounds(self, offset, len(out))
        size = os.preadv(self._file, [out.data], self._offset + offset) if len(out) else 0
        if size < len(out):
            raise IndexError(f"the file ends at byte {offset + size} of the region")

    def _release(self) -> None:
        self.device.unpin(self._begin)
        self._map.close()
        os.close(self._file)
