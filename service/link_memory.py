"""Memory of a process that the process at the other end of its link reads where it lies.

    this process: one file of memory, lent in blocks (large_memory.py)
         │ a message says where in it an array begins; the array is kept
         ▼
    the other process: the same file, mapped once and read only
         │ when the last view of the arrays is garbage it says so
         ▼
    this process: lets go of the array, whose block is lent again

The file has no name, so that nothing is left of a process that was killed; the other one opens it
by way of /proc. It cannot be cut short. Pages of it exist once they are written, and are given back
when more is free than is kept.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.large_memory import KEPT_BYTES, LargeMemory

__all__ = ["LinkMemory", "OtherMemory"]

Bytes = NDArray[np.uint8]
FILE_BYTES = 1 << 34  # Addresses and not memory; many times `max_queue_bytes`.
WORTH_BYTES = 1 << 16  # What is smaller goes over the socket with the rest of its message.
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class LinkMemory(LargeMemory):
    """Blocks in powers of two, in a file of memory.

    Args:
        kept_bytes: as `LargeMemory`.
        file_bytes: the size of the file; what does not fit is memory of this process alone.
    """

    def __init__(self, kept_bytes: int = KEPT_BYTES, file_bytes: int = FILE_BYTES) -> None:
        super().__init__(kept_bytes, WORTH_BYTES)
        self._number = os.memfd_create("warptok", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._number, file_bytes)
        fcntl.fcntl(self._number, fcntl.F_ADD_SEALS, SEALS)
        self._all = np.frombuffer(mmap.mmap(self._number, file_bytes), np.uint8)
        self._address, self._used = self._all.ctypes.data, 0
        self._ranges: dict[int, list[int]] = {}

    @property
    def path(self) -> str:
        """Where the other process finds it."""
        return f"/proc/{os.getpid()}/fd/{self._number}"

    def _map(self, size: int) -> Bytes:
        """A range that was given back, or the next one."""
        ranges = self._ranges.get(size)
        begin = ranges.pop() if ranges else self._used
        if begin == self._used:
            if begin + size > len(self._all):
                return super()._map(size)
            self._used += size
        return self._all[begin : begin + size]

    def _unmap(self, block: Bytes) -> None:
        begin = self.place_of(block)
        if begin is None:
            super()._unmap(block)
            return
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


class OtherMemory:
    """The memory of the process at the other end, mapped.

    Raises:
        OSError: the file cannot be opened here.
    """

    def __init__(self, path: str) -> None:
        number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            mapped = mmap.mmap(number, 0, prot=mmap.PROT_READ)
        finally:
            os.close(number)
        self._all = np.frombuffer(mapped, np.uint8)

    def array(self, begin: int, dtype: str, shape: tuple[int, ...], loan: Loan) -> NDArray[Any]:
        """An array of the other process, read only; the loan ends when no view of it is left."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return np.asarray(_Borrowed(self._all[begin : begin + size].view(dtype), loan)).reshape(
            shape
        )


class Loan:
    """What all borrowed arrays of one message hold; calls `ended` from whatever thread."""

    __slots__ = ("_ended",)

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended

    def __del__(self) -> None:
        self._ended()


class _Borrowed:
    """What a borrowed array has as its base."""

    __slots__ = ("__array_interface__", "_array", "_loan")

    def __init__(self, array: NDArray[Any], loan: Loan) -> None:
        self.__array_interface__ = array.__array_interface__
        self._array, self._loan = array, loan
