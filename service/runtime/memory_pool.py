"""Memory of large arrays, lent until nobody holds it any more, and then lent again.

    take ──► block ──► arrays, views of them, an answer that is sent
      ▲                          │ the last of them is garbage, in whatever thread
      └──────── free ◄───────────┘
                  └─ more than is kept ──► given back to the system by a thread of its own

A fresh block of 100 MB costs a page fault for every page of it, and its end took Python's lock for
as long as the system takes to unmap it: 8 to 38 ms, in which no other request got on. Knows no text
and no engine.
"""

from __future__ import annotations

import ctypes
import mmap
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Take = Callable[[int], Bytes]
"""Gives uint8 of so many bytes or more, not cleared."""
SMALLEST = 1 << 20
KEPT_BYTES = 256 << 20
_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int


class MemoryPool:
    """Blocks of four sizes between a power of two and the next.

    Args:
        kept_bytes: of blocks that nobody holds; what is more is given back to the system.
        smallest: smaller arrays are malloc's.

    Attributes:
        free_bytes, mapped_bytes: of blocks that nobody holds; of all that there are.
        num_mapped: blocks that were ever asked of the system.
    """

    def __init__(self, kept_bytes: int = KEPT_BYTES, smallest: int = SMALLEST) -> None:
        self.kept_bytes = kept_bytes
        self._smallest = smallest
        self.free_bytes = 0
        self.mapped_bytes = 0
        self.num_mapped = 0
        self._free: dict[int, list[tuple[int, Bytes]]] = {}  # Heaps: the lowest address first.
        self._returned: deque[Bytes] = deque()
        self._calls: SimpleQueue[bool] = SimpleQueue()
        self._changing = Lock()
        self._thread: Thread | None = None

    def take(self, num_bytes: int) -> Bytes:
        """uint8[num_bytes] or more, not cleared; it belongs to whoever holds it or a view of it."""
        if num_bytes < self._smallest:
            return np.empty(num_bytes, np.uint8)
        step = 1 << (num_bytes - 1).bit_length() - 3  # Pages: a block has sixteen at least.
        size = -(-num_bytes // step) * step
        with self._changing:
            self._collect()
            if self._thread is None:
                self._thread = Thread(target=self._run, name="large-memory", daemon=True)
                self._thread.start()
            if blocks := self._free.get(size):
                # The first, so that few are in use, and of a file those at its begin.
                block = heappop(blocks)[1]
                self.free_bytes -= size
            else:
                block = self._map(size)
                self.num_mapped += 1
                self.mapped_bytes += size
        return np.asarray(_Lent(block, self._take_back))

    def _take_back(self, block: Bytes) -> None:
        # A finalizer may run while this very thread holds a lock: nothing here needs one.
        self._returned.append(block)
        if self.mapped_bytes > self.kept_bytes:
            self._calls.put(True)

    def _collect(self) -> None:
        """Blocks that came back since the last time; they come at any moment, so without a lock."""
        while self._returned:
            block = self._returned.popleft()
            address = int(block.__array_interface__["data"][0])
            heappush(self._free.setdefault(len(block), []), (address, block))
            self.free_bytes += len(block)

    def _run(self) -> None:
        """Whenever a block has come back and more is there than is kept: give away what is."""
        while self._calls.get():
            self._give_back()
        self._give_back()

    def _give_back(self) -> None:
        while (block := self._too_much()) is not None:
            self._unmap(block)

    def _map(self, size: int) -> Bytes:
        """uint8[size] of memory from the system."""
        # No huge pages: clearing one at its first touch held whoever received into it for 5 ms.
        mapped = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        return np.frombuffer(mapped, np.uint8)

    def _unmap(self, block: Bytes) -> None:
        # What is left for the end of the mapping costs next to nothing.
        self.advise(block, mmap.MADV_DONTNEED)

    @staticmethod
    def advise(block: Bytes, advice: int) -> None:
        """Tell the system of a block's use, without Python's lock."""
        _libc.madvise(block.ctypes.data, len(block), advice)

    def _too_much(self) -> Bytes | None:
        with self._changing:
            self._collect()
            if self.free_bytes <= self.kept_bytes:
                return None
            _, block = self._free[max(size for size, blocks in self._free.items() if blocks)].pop()
            self.free_bytes -= len(block)
            self.mapped_bytes -= len(block)
            return block

    def close(self) -> None:
        """Give back what nobody holds, and keep nothing from now on."""
        with self._changing:
            self.kept_bytes, thread, self._thread = 0, self._thread, None
        if thread is not None:
            self._calls.put(False)
            thread.join()


class _Lent:
    """What lent arrays have as their base; its end gives the block back."""

    __slots__ = ("__array_interface__", "_block", "_take_back")

    def __init__(self, block: Bytes, take_back: Callable[[Bytes], None]) -> None:
        self.__array_interface__ = block.__array_interface__
        self._block = block
        self._take_back = take_back

    def __del__(self) -> None:
        self._take_back(self._block)


class GrowableArray:
    """An array that is written from its begin to an end that is not known yet.

    Args:
        dtype: of its elements.
        take: gives memory.
        shape: of an element.
    """

    def __init__(self, dtype: np.dtype[Any], take: Take, shape: tuple[int, ...] = ()) -> None:
        self._take = take
        self._array = np.empty((0, *shape), dtype)
        self.size = 0

    @property
    def array(self) -> NDArray[Any]:
        """What has been written (a view)."""
        return self._array[: self.size]

    def extend(self, num: int, expected: int) -> NDArray[Any]:
        """Room for `num` more elements, to be written by the caller.

        Args:
            num: of them.
            expected: how many there may be in the end; wrong costs copies, nothing else.
        """
        begin, self.size = self.size, self.size + num
        if self.size > len(self._array):
            shape, dtype = self._array.shape[1:], self._array.dtype
            width = dtype.itemsize * int(np.prod(shape))
            memory = self._take(max(self.size, expected) * width)
            larger = memory[: len(memory) // width * width].view(dtype).reshape(-1, *shape)
            larger[:begin] = self._array[:begin]
            self._array = larger
        return self._array[begin : self.size]
