"""Manages memory of a process that the peer of a link reads in place.

    this process: a memory file, lent in blocks (service/runtime/memory_pool.py)
         │ a message has the offset of an array; this process keeps the array
         ▼
    the peer: the same file, mapped once and read-only
         │ when the last view of the arrays is garbage, it releases the loan
         ▼
    this process: drops the array, and the pool lends its block again

The file has no name, so a killed process leaves nothing behind; the peer opens the file through
/proc. It cannot be truncated. A page uses memory once it is written. Pages of free blocks above a
limit are returned to the system, except in the front part, which a device may read directly.

    0 ─────── FRONT_BYTES ──────────────────────── file_bytes
      blocks up to LARGE_BYTES │ larger ones, and blocks that do not fit in the front
      (a device reads these)   │
"""

from __future__ import annotations

import fcntl
import logging
import math
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.multiprocess.link.frames import PlacedArray
from service.runtime.memory_pool import KEPT_BYTES, MemoryPool
from vocabularies.batch.shared_rows import SharedMemory

logger = logging.getLogger(__name__)
Bytes = NDArray[np.uint8]
FILE_BYTES = 1 << 34  # Of addresses, not of memory; many times `max_queue_bytes`.
FRONT_BYTES = 1 << 28  # Page-locked by the peer if it has a device.
LARGE_BYTES = FRONT_BYTES >> 4
MIN_SHARED_BYTES = 1 << 16  # Smaller arrays are sent over the socket with their message.
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class LinkMemory(MemoryPool):
    """A memory pool with its blocks in a memory file that the peer maps.

    Args:
        kept_bytes: see `MemoryPool`.
        file_bytes: the size of the file; blocks that do not fit are not shared.

    Attributes:
        address: the address of the first byte of the file in this process.
    """

    def __init__(self, kept_bytes: int = KEPT_BYTES, file_bytes: int = FILE_BYTES) -> None:
        super().__init__(kept_bytes, MIN_SHARED_BYTES)
        self._number = os.memfd_create("warptok", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._number, file_bytes)
        fcntl.fcntl(self._number, fcntl.F_ADD_SEALS, SEALS)
        self._all = np.frombuffer(mmap.mmap(self._number, file_bytes), np.uint8)
        self.address = int(self._all.ctypes.data)
        self._front_end = 0  # The end of the used bytes in the front part.
        self._large_end = min(FRONT_BYTES, file_bytes)  # The same behind the front part.
        self._ranges: dict[int, list[int]] = {}

    @property
    def number(self) -> int:
        """The descriptor of the file."""
        return self._number

    @property
    def path(self) -> str:
        """The path by which the peer opens the file."""
        return f"/proc/{os.getpid()}/fd/{self._number}"

    def _map(self, size: int) -> Bytes:
        """Map a returned range of the file, or the next unused one."""
        if ranges := self._ranges.get(size):
            begin = ranges.pop()
        elif size <= LARGE_BYTES and self._front_end + size <= min(FRONT_BYTES, len(self._all)):
            begin = self._front_end
            self._front_end += size
        elif self._large_end + size <= len(self._all):
            begin = self._large_end
            self._large_end += size
        else:
            return super()._map(size)
        return self._all[begin : begin + size]

    def _unmap(self, block: Bytes) -> None:
        begin = self.find_offset(block)
        if begin is None:
            super()._unmap(block)
            return
        if begin >= FRONT_BYTES:  # In the front a device would go on reading the removed pages.
            self.advise(block, mmap.MADV_REMOVE)
        with self._changing:
            self._ranges.setdefault(len(block), []).append(begin)

    def find_offset(self, array: NDArray[Any]) -> int | None:
        """Return the offset of a large array in the file; None if it is elsewhere, or small."""
        if array.nbytes < MIN_SHARED_BYTES:
            return None
        address, _ = array.__array_interface__["data"]
        offset = int(address) - self.address
        return offset if 0 <= offset < len(self._all) else None

    def place(self, array: NDArray[Any]) -> PlacedArray:
        """Find an array in the file, or copy it there; a small one is not placed."""
        array = np.ascontiguousarray(array)
        if array.nbytes < MIN_SHARED_BYTES:
            return PlacedArray(array)
        offset = self.find_offset(array)
        if offset is None:
            copy = self.take(array.nbytes)[: array.nbytes].view(array.dtype).reshape(array.shape)
            copy[...] = array
            array, offset = copy, self.find_offset(copy)
        return PlacedArray(array, offset)

    def close(self) -> None:
        """Release all free blocks; the peer keeps its mapping."""
        super().close()
        if self._number >= 0:
            os.close(self._number)
            self._number = -1


ShareHost = Callable[[int, int, int], SharedMemory | None]
"""`DeviceSharing.share_host`: shares a range of a memory file with a device."""


class PeerMemory:
    """The memory of the peer, mapped into this process.

    Attributes:
        is_used: whether an array in this memory was received.
        is_page_locked: whether `page_lock` was called, even if it failed.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._front: _PageLocked | None = None
        with _open_file(path, os.O_RDONLY) as number:
            self._all = _MappedFile(number)
        self.is_used = False
        self.is_page_locked = False

    def page_lock(self, share: ShareHost, num_bytes: int = FRONT_BYTES) -> None:
        """Page-lock the front part of the file, so that a device can read arrays in it directly.

        Args:
            share: page-locks a range of a file; returns None if it cannot.
            num_bytes: the length of the range, at most FRONT_BYTES.
        """
        self.is_page_locked = True
        try:
            with _open_file(self._path, os.O_RDWR) as number:
                memory = share(number, 0, min(num_bytes, self._all.num_bytes))
        except OSError as error:  # Its process may have ended.
            logger.warning("memory of a front end is not page-locked: %s", error)
            return
        self._front = None if memory is None else _PageLocked(memory)

    def array(self, begin: int, dtype: str, shape: tuple[int, ...], loan: Loan) -> NDArray[Any]:
        """Make a read-only array in the peer's memory; the loan lasts while a view exists.

        Raises:
            ValueError: the array would reach beyond the end of the file.
        """
        self.is_used = True
        end = begin + math.prod(shape) * np.dtype(dtype).itemsize
        front = self._front
        mapped = self._all if front is None or end > front.num_bytes else front
        if end > mapped.num_bytes:
            raise ValueError(f"an array ends at {end} of {mapped.num_bytes} bytes of shared memory")
        return np.asarray(_Borrowed(mapped, begin, dtype, shape, loan))


@contextmanager
def _open_file(path: str, mode: int) -> Iterator[int]:
    """Open a file, yield its descriptor, and close it."""
    number = os.open(path, mode | os.O_CLOEXEC)
    try:
        yield number
    finally:
        os.close(number)


class _MappedFile:
    """A file that stays mapped while this object exists."""

    def __init__(self, number: int) -> None:
        self._array = np.frombuffer(mmap.mmap(number, 0, prot=mmap.PROT_READ), np.uint8)
        self.address = int(self._array.ctypes.data)
        self.num_bytes = len(self._array)


class _PageLocked:
    """Memory that a device reads in place; its finalizer closes it."""

    def __init__(self, memory: SharedMemory) -> None:
        self._memory = memory
        self.address = memory.address
        self.num_bytes = memory.num_bytes

    def __del__(self) -> None:
        self._memory.close()


class Loan:
    """The loan of a message's arrays, all of which refer to it; its finalizer calls `release`."""

    __slots__ = ("_release",)

    def __init__(self, release: Callable[[], None]) -> None:
        self._release = release

    def __del__(self) -> None:  # It runs on any thread.
        self._release()


class _Borrowed:
    """The base of a borrowed array, which keeps its memory and its loan."""

    __slots__ = ("__array_interface__", "_loan", "_mapped")

    def __init__(
        self,
        mapped: _MappedFile | _PageLocked,
        begin: int,
        dtype: str,
        shape: tuple[int, ...],
        loan: Loan,
    ) -> None:
        is_read_only = True
        self.__array_interface__ = {
            "version": 3,
            "typestr": dtype,
            "shape": tuple(shape),
            "data": (mapped.address + begin, is_read_only),
        }
        self._mapped = mapped
        self._loan = loan
