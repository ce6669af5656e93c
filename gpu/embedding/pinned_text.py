"""Page-locked memory for joined strings: what the device still reads is not used for others.

torch gives such memory out again when nothing holds it. It waits for copies that began at its first
byte, not for those of a part: whoever copies says when the device is done.
"""

from __future__ import annotations

import functools
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gpu.host.copy_pool import CopyPool

__all__ = [
    "TextMemory",
    "current_stream",
    "is_pinned",
    "page_locked",
    "record_event",
    "staging",
]

Bytes = NDArray[np.uint8]
PIECE_BYTES = 1 << 20  # Of text, that is staged before the device reads it.


def page_locked(num_bytes: int) -> Bytes:
    """uint8[N]."""
    memory: Bytes = torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True).numpy()
    return memory


def current_stream(device: torch.device) -> int:
    """The address of torch's current stream; an object for it takes longer than a launch."""
    address: int = torch._C._cuda_getCurrentRawStream(device.index)
    return address


def record_event(device: torch.device) -> Any:
    """An event of torch's current stream."""
    return torch.cuda.current_stream(device).record_event()


def is_pinned(data: Bytes) -> bool:
    """Whether the device can read rows where they lie."""
    return data.flags.writeable and data.flags.c_contiguous and torch.from_numpy(data).is_pinned()


@functools.cache
def staging() -> CopyPool:
    """The threads that copy into it, of the whole process."""
    return CopyPool()


class TextMemory:
    """Gives memory and keeps it until the device has read it."""

    def __init__(self, allocate: Callable[[int], Bytes] = page_locked) -> None:
        self._allocate = allocate
        self._given: weakref.WeakValueDictionary[int, Bytes] = weakref.WeakValueDictionary()
        self._kept: deque[tuple[Any, Bytes]] = deque()

    def take(self, num_bytes: int) -> Bytes:
        """uint8[N] for the strings of a call."""
        self._forget()
        memory = self._allocate(num_bytes)
        self._given[id(memory)] = memory
        return memory

    def pieces(self, data: Bytes, held: list[Bytes]) -> Iterator[tuple[int, int, int]]:
        """Address, begin and end of pieces that lie in pinned memory, as soon as they do.

        What must stay until the device has read them is added to `held`.
        """
        if is_pinned(data):
            held.append(data)
            yield data.ctypes.data, 0, len(data)
            return
        block = self.take(len(data))
        held.append(block)
        copy, place = staging().start(block, data), block.ctypes.data
        for begin in range(0, len(data), PIECE_BYTES):
            copy.wait(end := min(begin + PIECE_BYTES, len(data)))
            yield place + begin, begin, end

    def keep(self, data: Bytes, done: Any) -> None:
        """Keep the memory that rows lie in, if it was given here, until an event has passed."""
        self._forget()
        while isinstance(data.base, np.ndarray):
            data = data.base
        if self._given.get(id(data)) is data:
            self._kept.append((done, data))

    def hold(self, memory: Bytes, done: Any) -> None:
        """Keep any memory until an event has passed: its owner does not know that it is read."""
        self._kept.append((done, memory))

    def _forget(self) -> None:
        while self._kept and self._kept[0][0].query():
            self._kept.popleft()
