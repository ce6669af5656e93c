"""Texts in memory of another process, and the place in such memory that their ids go to.

A client, the service and an engine describe by these types memory that only a device touches.
Knows no device.
"""

from __future__ import annotations

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
        on_device: whether it is the device's own, and PCIe is not in between.
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
        """Keep the memory alive while the context is entered, even if it is closed meanwhile.

        Raises:
            ValueError: it was closed before.
        """

    def close(self) -> None:
        """Release the memory, now or after the work in progress on it."""


def check_bounds(memory: SharedMemory, offset: int, num_bytes: int) -> None:
    """Refuse bytes outside of the memory.

    Raises:
        IndexError: the memory has no such bytes.
    """
    if offset < 0 or offset + num_bytes > memory.num_bytes:
        end = offset + num_bytes
        raise IndexError(f"bytes {offset} to {end} of a region of {memory.num_bytes}")


@dataclass(frozen=True, slots=True, eq=False)
class SharedText:
    """Joined texts in shared memory; a slice of it is a copy.

    Attributes:
        memory, begin, size: the bytes, by place.
    """

    memory: SharedMemory
    begin: int
    size: int

    def __post_init__(self) -> None:
        """Refuse a text that is longer than the memory (IndexError)."""
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
        """The address of the text on the device."""
        return self.memory.address + self.begin

    def part(self, begin: int, end: int) -> SharedText:
        """Take the bytes from `begin` to `end` without reading them."""
        return SharedText(self.memory, self.begin + begin, end - begin)


@dataclass(frozen=True, slots=True, eq=False)
class SharedRows:
    """Texts and the memory that their ids are written to.

    Attributes:
        text: the texts, joined.
        offsets: int64[B + 1], where each begins.
        out, out_begin, out_bytes: memory for the ids.
        id_bytes: of an id there: 4, 2 or 1.
        options: of all rows.
    """

    text: SharedText
    offsets: Int64s
    out: SharedMemory
    out_begin: int
    out_bytes: int
    id_bytes: int = 4
    options: EncodeOptions = DEFAULT_OPTIONS

    def __len__(self) -> int:
        return len(self.offsets) - 1
