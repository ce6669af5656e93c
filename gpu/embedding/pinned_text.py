"""Allocates page-locked memory for text and keeps it while a device may read it.

torch reuses a pinned block when no tensor holds it. It waits for the copies that began at the
block's first byte, but not for copies of a part or for kernels that read the block. So the caller
passes an event that the device reaches when it is done.
"""

from __future__ import annotations

import functools
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from gpu.host.copy_pool import CopyPool

Bytes = NDArray[np.uint8]
PIECE_BYTES = 1 << 20
"""Bytes of text that are staged before the device starts to read them."""


def allocate_pinned(num_bytes: int) -> Bytes:
    """Allocate pinned memory, uint8[num_bytes]."""
    memory: Bytes = torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True).numpy()
    return memory


def current_stream(device: torch.device) -> int:
    """Return the address of torch's current stream, without making a Stream object."""
    address: int = torch._C._cuda_getCurrentRawStream(device.index)
    return address


def record_event(device: torch.device) -> Any:
    """Record an event on torch's current stream."""
    return torch.cuda.current_stream(device).record_event()


def is_pinned(data: Bytes) -> bool:
    """Return whether the device can read an array directly."""
    return data.flags.writeable and data.flags.c_contiguous and torch.from_numpy(data).is_pinned()


@functools.cache
def copy_pool() -> CopyPool:
    """Return the process's threads that copy text into pinned memory."""
    return CopyPool()


class TextPiece(NamedTuple):
    """A piece of text in pinned memory.

    Attributes:
        address: the address of its first byte.
        begin: its first byte, counted from the begin of the text.
        end: the byte after its last one.
    """

    address: int
    begin: int
    end: int

    @property
    def num_bytes(self) -> int:
        """The length of the piece."""
        return self.end - self.begin


class _HeldMemory(NamedTuple):
    """Keeps memory until the event `done` has passed."""

    done: Any
    memory: Bytes


class TextMemory:
    """Allocates memory for text and keeps it until the device has read it."""

    def __init__(self, allocate: Callable[[int], Bytes] = allocate_pinned) -> None:
        """Use a function that allocates uint8[N] for new memory."""
        self._allocate = allocate
        self._allocated: weakref.WeakValueDictionary[int, Bytes] = weakref.WeakValueDictionary()
        self._held: deque[_HeldMemory] = deque()

    def take(self, num_bytes: int) -> Bytes:
        """Allocate uint8[num_bytes] for text."""
        self._release_passed()
        memory = self._allocate(num_bytes)
        self._allocated[id(memory)] = memory
        return memory

    def pieces(self, data: Bytes, held: list[Bytes]) -> Iterator[TextPiece]:
        """Yield the pieces of text in pinned memory, each as soon as it is there.

        Pinned text is one piece. Other text is copied into new memory by the copy pool. The memory
        is appended to `held`; the caller keeps it until the device has read all pieces.
        """
        if is_pinned(data):
            held.append(data)
            yield TextPiece(data.ctypes.data, 0, len(data))
            return
        block = self.take(len(data))
        held.append(block)
        copy = copy_pool().start(block, data)
        for begin in range(0, len(data), PIECE_BYTES):
            end = min(begin + PIECE_BYTES, len(data))
            copy.wait(end)
            yield TextPiece(block.ctypes.data + begin, begin, end)

    def keep(self, data: Bytes, done: Any) -> None:
        """Hold the memory under `data` until an event has passed, if this object allocated it."""
        self._release_passed()
        while isinstance(data.base, np.ndarray):
            data = data.base
        if self._allocated.get(id(data)) is data:
            self.hold(data, done)

    def hold(self, memory: Bytes, done: Any) -> None:
        """Hold any memory until an event has passed."""
        self._held.append(_HeldMemory(done, memory))

    def _release_passed(self) -> None:
        """Release held memory whose event has passed, the oldest first."""
        while self._held and self._held[0].done.query():
            self._held.popleft()
