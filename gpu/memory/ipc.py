"""Memory of other processes that the device reads and writes: device memory and host memory.

Device memory is opened by the handle that its owner has sent. Host memory is a range of a file,
mapped and page-locked. Only the device uses the mapping. The host reads the file instead, so that a
client that truncates its file cannot end this process with SIGBUS.

Bounds are checked here before the device gets an address. If the other process ends or frees its
memory, the mapping here stays valid until `close`.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from gpu.errors import find_lost_context
from gpu.runtime.device import Device
from vocabularies.batch.shared_rows import check_bounds

Bytes = NDArray[np.uint8]
HANDLE_BYTES = 64  # Of cudaIpcMemHandle_t.


class Region:
    """Memory that is released after `close`, once no call uses it any more; thread-safe."""

    def __init__(self) -> None:
        self._lock, self._users, self._is_open = Lock(), 0, True

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the memory open during a `with` block.

        Raises:
            ValueError: it is closed.
        """
        with self._lock:
            if not self._is_open:
                raise ValueError("the memory is closed")
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                is_last = not self._users and not self._is_open
            if is_last:
                self._release()

    def close(self) -> None:
        """Release the memory now, or when the last call that uses it has finished."""
        with self._lock:
            is_last = not self._users and self._is_open
            self._is_open = False
        if is_last:
            self._release()

    def _release(self) -> None:
        raise NotImplementedError


@contextmanager
def _unless_lost() -> Iterator[None]:
    """Ignore errors of a release if the CUDA context is lost: then nothing can be released."""
    try:
        yield
    except Exception as error:
        if not find_lost_context(error):
            raise


class SharedDeviceMemory(Region):
    """Device memory of another process, opened by its handle.

    Args:
        device: the device of the memory.
        handle: cudaIpcMemHandle_t as bytes.
        num_bytes: the number of bytes that may be accessed, as stated by the client.

    Raises:
        BadHandle: the handle is invalid, its memory was freed, or it is of another device.
        SharedTooSmall: the memory is smaller.
    """

    on_device = True

    def __init__(self, device: Device, handle: bytes, num_bytes: int) -> None:
        super().__init__()
        self.device, self.num_bytes = device, num_bytes
        self.address = device.open_shared(handle, num_bytes)

    def read(self, offset: int, out: Bytes) -> None:
        """Fill `out`, host memory, with the bytes from `offset` on."""
        check_bounds(self, offset, len(out))
        stream = self.device.stream()
        stream.copy_out(out.ctypes.data, self.address + offset, len(out))
        stream.synchronize()

    def write(self, offset: int, data: Bytes) -> None:
        """Copy host memory to the bytes from `offset` on, and wait for the copy."""
        check_bounds(self, offset, len(data))
        stream = self.device.stream()
        stream.copy_in(self.address + offset, data.ctypes.data, len(data))
        stream.synchronize()

    def _release(self) -> None:
        with _unless_lost():
            self.device.close_shared(self.address)


class SharedHostMemory(Region):
    """A range of a file in memory, page-locked for the device.

    Args:
        device: the device that reads and writes it.
        file: the descriptor of the file, which the caller closes.
        offset: the first byte of the range.
        num_bytes: the length of the range.

    Raises:
        ValueError: the file is shorter.
        OutOfMemory: it cannot be page-locked.
        OSError: this process may open no more files.
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
            self._file = os.dup(file)
            try:
                device.pin(self._begin, before + num_bytes)
            except BaseException:
                os.close(self._file)
                raise
        except BaseException:
            self._map.close()
            raise

    def read(self, offset: int, out: Bytes) -> None:
        """Fill `out` with the bytes from `offset` on, read from the file.

        Raises:
            IndexError: the file has been truncated meanwhile.
        """
        check_bounds(self, offset, len(out))
        size = os.preadv(self._file, [out.data], self._offset + offset) if len(out) else 0
        if size < len(out):
            raise IndexError(f"the file ends at byte {offset + size} of the region")

    def _release(self) -> None:
        with _unless_lost():
            self.device.unpin(self._begin)
        self._map.close()
        os.close(self._file)
