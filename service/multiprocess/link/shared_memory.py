"""Memory of a process that the process at the other end of its link reads where it lies.

    this process: one file of memory, lent in blocks (service/runtime/memory_pool.py)
         │ a message says where in it an array begins; the array is kept
         ▼
    the other process: the same file, mapped once and read only
         │ when the last view of the arrays is garbage it says so
         ▼
    this process: lets go of the array, whose block is lent again

The file has no name, so that nothing is left of a process that was killed; the other one opens it
by way of /proc. It cannot be cut short. Pages of it exist once they are written, and are given back
when more is free than is kept; but not those of its front part, which a device may read itself.

    0 ─────── FRONT_BYTES ──────────────────────── file_bytes
      blocks up to LARGE_BYTES │ larger ones, and what finds no room in front
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

from service.runtime.memory_pool import KEPT_BYTES, MemoryPool
from vocabularies.batch.shared_rows import SharedMemory

logger = logging.getLogger(__name__)
Bytes = NDArray[np.uint8]
FILE_BYTES = 1 << 34  # Addresses and not memory; many times `max_queue_bytes`.
FRONT_BYTES = 1 << 28  # Page-locked by the other process where it has a device.
LARGE_BYTES = FRONT_BYTES >> 4
WORTH_BYTES = 1 << 16  # What is smaller goes over the socket with the rest of its message.
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class LinkMemory(MemoryPool):
    """Blocks of few sizes, in a file of memory.

    Args:
        kept_bytes: as `MemoryPool`.
        file_bytes: the size of the file; what does not fit is memory of this process alone.
    """

    def __init__(self, kept_bytes: int = KEPT_BYTES, file_bytes: int = FILE_BYTES) -> None:
        super().__init__(kept_bytes, WORTH_BYTES)
        self._number = os.memfd_create("warptok", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._number, file_bytes)
        fcntl.fcntl(self._number, fcntl.F_ADD_SEALS, SEALS)
        self._all = np.frombuffer(mmap.mmap(self._number, file_bytes), np.uint8)
        self._address = self._all.ctypes.data
        self._used, self._used_behind = 0, min(FRONT_BYTES, file_bytes)
        self._ranges: dict[int, list[int]] = {}

    @property
    def path(self) -> str:
        """Where the other process finds it."""
        return f"/proc/{os.getpid()}/fd/{self._number}"

    def _map(self, size: int) -> Bytes:
        """A range that was given back, or the next one."""
        if ranges := self._ranges.get(size):
            begin = ranges.pop()
        elif size <= LARGE_BYTES and self._used + size <= min(FRONT_BYTES, len(self._all)):
            begin, self._used = self._used, self._used + size
        elif self._used_behind + size <= len(self._all):
            begin, self._used_behind = self._used_behind, self._used_behind + size
        else:
            return super()._map(size)
        return self._all[begin : begin + size]

    def _unmap(self, block: Bytes) -> None:
        begin = self.place_of(block)
        if begin is None:
            super()._unmap(block)
            return
        if begin >= FRONT_BYTES:  # A device would go on reading the pages that were there.
            self.advise(block, mmap.MADV_REMOVE)
        with self._changing:
            self._ranges.setdefault(len(block), []).append(begin)

    def place_of(self, array: NDArray[Any]) -> int | None:
        """Where in the file a large array begins; None where it lies elsewhere, or is small."""
        if array.nbytes < WORTH_BYTES:
            return None
        place = int(array.__array_interface__["data"][0]) - self._address
        return place if 0 <= place < len(self._all) else None

    def placed(self, array: NDArray[Any]) -> NDArray[Any]:
        """A contiguous array as it goes over a link: large ones in the file, copied if need be."""
        if array.nbytes < WORTH_BYTES or self.place_of(array) is not None:
            return array
        copy = self.take(array.nbytes)[: array.nbytes].view(array.dtype).reshape(array.shape)
        copy[...] = array
        return copy

    def close(self) -> None:
        """Give back what nobody holds; the other process keeps what it has mapped."""
        super().close()
        if self._number >= 0:
            os.close(self._number)
            self._number = -1


Share = Callable[[int, int, int], SharedMemory | None]


class OtherMemory:
    """The memory of the process at the other end, mapped.

    Attributes:
        is_used: an array of it was asked for.
        is_page_locked: `page_lock` was called, whatever came of it.

    Raises:
        OSError: the file cannot be opened here.
    """

    def __init__(self, path: str) -> None:
        self._path, self._front = path, None
        with _opened(path, os.O_RDONLY) as number:
            self._all = _Mapped(number)
        self.is_used = self.is_page_locked = False

    _front: _PageLocked | None

    def page_lock(self, share: Share, num_bytes: int = FRONT_BYTES) -> None:
        """Have a device read arrays at the file's begin itself, from now on.

        Args:
            share: page-locks bytes from an offset on of a file; None where it cannot, which it
                tells. Arrays are then read as before.
            num_bytes: so many of them; at most the front part.
        """
        self.is_page_locked = True
        try:
            with _opened(self._path, os.O_RDWR) as number:
                memory = share(number, 0, min(num_bytes, self._all.num_bytes))
        except OSError as error:  # Its process may have ended.
            logger.warning("memory of a front end is not page-locked: %s", error)
            return
        self._front = None if memory is None else _PageLocked(memory)

    def array(self, begin: int, dtype: str, shape: tuple[int, ...], loan: Loan) -> NDArray[Any]:
        """An array of the other process, read only; the loan ends when no view of it is left.

        Raises:
            ValueError: it would end behind the file.
        """
        self.is_used, end = True, begin + math.prod(shape) * np.dtype(dtype).itemsize
        front = self._front
        mapped = self._all if front is None or end > front.num_bytes else front
        if end > mapped.num_bytes:
            raise ValueError(f"an array ends at {end} of {mapped.num_bytes} bytes of shared memory")
        return np.asarray(_Borrowed(mapped, begin, dtype, shape, loan))


@contextmanager
def _opened(path: str, mode: int) -> Iterator[int]:
    """A file's descriptor."""
    number = os.open(path, mode | os.O_CLOEXEC)
    try:
        yield number
    finally:
        os.close(number)


class _Mapped:
    """A file, mapped as long as anybody holds this."""

    def __init__(self, number: int) -> None:
        self._array = np.frombuffer(mmap.mmap(number, 0, prot=mmap.PROT_READ), np.uint8)
        self.address, self.num_bytes = int(self._array.ctypes.data), len(self._array)


class _PageLocked:
    """Memory that a device reads where it lies, let go of when nobody holds this any more."""

    def __init__(self, memory: SharedMemory) -> None:
        self._memory, self.address, self.num_bytes = memory, memory.address, memory.num_bytes

    def __del__(self) -> None:
        self._memory.close()


class Loan:
    """What all borrowed arrays of one message hold; calls `ended` from whatever thread."""

    __slots__ = ("_ended",)

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended

    def __del__(self) -> None:
        self._ended()


class _Borrowed:
    """What a borrowed array has as its base."""

    __slots__ = ("__array_interface__", "_loan", "_mapped")

    def __init__(
        self,
        mapped: _Mapped | _PageLocked,
        begin: int,
        dtype: str,
        shape: tuple[int, ...],
        loan: Loan,
    ) -> None:
        place = mapped.address + begin, True  # It is read only.
        self.__array_interface__ = {
            "version": 3,
            "typestr": dtype,
            "shape": tuple(shape),
            "data": place,
        }
        self._mapped, self._loan = mapped, loan
