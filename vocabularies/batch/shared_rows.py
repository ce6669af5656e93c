"""Texts in memory of another process, and where in such memory their ids are wanted.

What a client, the service and an engine say to each other of memory that only a device touches;
knows no device.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vocabularies.batch.batch import DEFAULT_OPTIONS, EncodeOptions

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]


class SharedMemory(Protocol):
    """Memory of another process.

    Attributes:
        address: where kernels and copies find it.
        num_bytes: how many of it may be touched.
        on_device: whether it is the device's own, and no bus is in between.
    """

    address: int
    num_bytes: int
    on_device: bool

    def read(self, offset: int, out: Bytes) -> None:
        """Copy the bytes from `offset` on to memory of this process, as many as it has room for.

        Raises:
            IndexError: so many are not there.
        """

    def in_use(self) -> AbstractContextManager[None]:
        """While this is entered the memory stays, whoever closes it; ValueError: it was closed."""

    def close(self) -> None:
        """Let go of it, now or behind what is at work on it."""


def check_bounds(memory: SharedMemory, offset: int, num_bytes: int) -> None:
    """Raises IndexError where bytes are asked for that the memory has not."""
    if offset < 0 or offset + num_bytes > memory.num_bytes:
        end = offset + num_bytes
        raise IndexError(f"bytes {offset} to {end} of a region of {memory.num_bytes}")


@dataclass(frozen=True, slots=True, eq=False)
class SharedText:
    """Joined texts in shared memory: what reads a slice of it gets a copy of that slice.

    Attributes:
        memory, begin, size: the bytes.
    """

    memory: SharedMemory
    begin: int
    size: int

    def __post_init__(self) -> None:
        """Raises IndexError where the memory has not so much."""
        check_bounds(self.memory, self.begin, self.size)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, part: slice) -> Bytes:
        first, end, _ = part.indices(self.size)
        out = np.empty(max(0, end - first), np.uint8)
        self.memory.read(self.begin + first, out)
        return out

    @property
    def address(self) -> int:
        """Where the device finds it."""
        return self.memory.address + self.begin

    def part(self, begin: int, end: int) -> SharedText:
        """The bytes from `begin` to `end`, which nobody reads yet."""
        return SharedText(self.memory, self.begin + begin, end - begin)


def _to_nobody() -> None:
    pass


@dataclass(frozen=True, slots=True, eq=False)
class SharedRows:
    """Texts and where their ids go.

    Attributes:
        text: the texts, joined.
        offsets: int64[B + 1], where each begins.
        out, out_begin, out_bytes: memory for the ids.
        id_bytes: of an id there: 4, 2 or 1.
        options: of all rows.
        soon: told that all ids are on their way and there within a millisecond, on any thread;
            perhaps never, or more than once.
    """

    text: SharedText
    offsets: Int64s
    out: SharedMemory
    out_begin: int
    out_bytes: int
    id_bytes: int = 4
    options: EncodeOptions = DEFAULT_OPTIONS
    soon: Callable[[], object] = _to_nobody

    def __len__(self) -> int:
        return len(self.offsets) - 1
