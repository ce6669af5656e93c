"""Lends memory for large arrays, and reuses it when nothing refers to it any more.

    take ──► block ──► arrays, views of them, an answer that is sent
      ▲                          │ the last reference goes, in any thread
      └──────── free ◄───────────┘
                  └─ above kept_bytes ──► returned to the system by a thread of the pool

A fresh block costs a page fault for each of its pages. Unmapping a block in the finalizer would
hold Python's lock for milliseconds and block all other requests.
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
"""Allocates a uint8 array of at least the given number of bytes, without clearing it."""
SMALLEST_BYTES = 1 << 20
KEPT_BYTES = 256 << 20
_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int


class MemoryPool:
    """A pool of blocks, with four block sizes per power of two.

    Args:
        kept_bytes: the most bytes of free blocks; blocks above that are returned to the system.
        smallest: the smallest size in bytes that the pool lends; malloc serves smaller ones.

    Attributes:
        free_bytes: the size of all blocks that are not lent.
        mapped_bytes: the size of all blocks.
        num_mapped: the number of blocks that the pool has ever mapped.
    """

    def __init__(self, kept_bytes: int = KEPT_BYTES, smallest: int = SMALLEST_BYTES) -> None:
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
        """Lend at least uint8[num_bytes], not cleared, until nothing refers to the memory."""
        if num_bytes < self._smallest:
            return np.empty(num_bytes, np.uint8)
        # A multiple of the page size, as a block has at least sixteen pages.
        step = 1 << (num_bytes - 1).bit_length() - 3
        size = -(-num_bytes // step) * step
        with self._changing:
            self._collect()
            if self._thread is None:
                self._thread = Thread(target=self._run, name="large-memory", daemon=True)
                self._thread.start()
            if blocks := self._free.get(size):
                # The lowest address, so that few blocks are used, and of a file those at its start.
                block = heappop(blocks)[1]
                self.free_bytes -= size
            else:
                block = self._map(size)
                self.num_mapped += 1
                self.mapped_bytes += size
        return np.asarray(_Lent(block, self._take_back))

    def _take_back(self, block: Bytes) -> None:
        # A finalizer may run while its thread holds any lock, so this must take none.
        self._returned.append(block)
        if self.mapped_bytes > self.kept_bytes:
            self._calls.put(True)

    def _collect(self) -> None:
        """Move the blocks that finalizers have returned since the last call to the free blocks."""
        while self._returned:
            block = self._returned.popleft()
            address = int(block.__array_interface__["data"][0])
            heappush(self._free.setdefault(len(block), []), (address, block))
            self.free_bytes += len(block)

    def _run(self) -> None:
        """Run the thread that returns free blocks to the system when a finalizer requests it."""
        while self._calls.get():
            self._give_back()
        self._give_back()

    def _give_back(self) -> None:
        while (block := self._pop_surplus()) is not None:
            self._unmap(block)

    def _map(self, size: int) -> Bytes:
        """Map uint8[size] of memory from the system."""
        # No huge pages: clearing one takes milliseconds at its first access.
        mapped = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        return np.frombuffer(mapped, np.uint8)

    def _unmap(self, block: Bytes) -> None:
        # This frees the pages without Python's lock; unmapping the rest is quick.
        self.advise(block, mmap.MADV_DONTNEED)

    @staticmethod
    def advise(block: Bytes, advice: int) -> None:
        """Call madvise on a block, without holding Python's lock."""
        _libc.madvise(block.ctypes.data, len(block), advice)

    def _pop_surplus(self) -> Bytes | None:
        with self._changing:
            self._collect()
            if self.free_bytes <= self.kept_bytes:
                return None
            _, block = self._free[max(size for size, blocks in self._free.items() if blocks)].pop()
            self.free_bytes -= len(block)
            self.mapped_bytes -= len(block)
            return block

    def close(self) -> None:
        """Return all free blocks to the system, and keep no free blocks from now on."""
        with self._changing:
            self.kept_bytes, thread, self._thread = 0, self._thread, None
        if thread is not None:
            self._calls.put(False)
            thread.join()


class _Lent:
    """The base of lent arrays; its finalizer returns the block to the pool."""

    __slots__ = ("__array_interface__", "_block", "_take_back")

    def __init__(self, block: Bytes, take_back: Callable[[Bytes], None]) -> None:
        self.__array_interface__ = block.__array_interface__
        self._block = block
        self._take_back = take_back

    def __del__(self) -> None:
        self._take_back(self._block)


class GrowableArray:
    """An array that grows at its end.

    Args:
        dtype: the type of its elements.
        take: allocates memory.
        shape: the shape of one element.
    """

    def __init__(self, dtype: np.dtype[Any], take: Take, shape: tuple[int, ...] = ()) -> None:
        self._take = take
        self._array = np.empty((0, *shape), dtype)
        self.size = 0

    @property
    def array(self) -> NDArray[Any]:
        """Return a view of all elements added so far."""
        return self._array[: self.size]

    def extend(self, num: int, expected: int) -> NDArray[Any]:
        """Add `num` elements and return a view of them, which the caller must write.

        Args:
            num: the number of elements to add.
            expected: the expected final number of elements; a wrong estimate only causes copies.
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
