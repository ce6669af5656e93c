"""Texts in memory of another process, and the memory there that their ids are written to.

The service passes them to an engine, whose device reads and writes the memory. Knows no device.
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
        address: its first byte, as kernels and copies address it.
        num_bytes: its size.
        on_device: whether it is memory of the device, not of the host behind PCIe.
    """

    address: int
    num_bytes: int
    on_device: bool

    def read(self, offset: int, out: Bytes) -> None:
        """Copy bytes from `offset` on to `out`, uint8[N] of this process, until it is full.

        Raises:
            IndexError: the memory ends before `out` is full.
        """

    def in_use(self) -> AbstractContextManager[None]:
        """Keep the memory alive while the context is entered, even if it is closed meanwhile.

        Raises:
            ValueError: the memory was closed before.
        """

    def close(self) -> None:
        """Release the memory, at once or when no context of `in_use` is entered any more."""


def check_bounds(memory: SharedMemory, offset: int, num_bytes: int) -> None:
    """Check that the bytes from `offset` on, `num_bytes` of them, lie in the memory.

    Raises:
        IndexError: some of them do not.
    """
    if offset < 0 or offset + num_bytes > memory.num_bytes:
        end = offset + num_bytes
        raise IndexError(f"bytes {offset} to {end} of a region of {memory.num_bytes}")


@dataclass(frozen=True, slots=True, eq=False)
class SharedText:
    """Joined texts in shared memory; slicing copies bytes to this process.

    Attributes:
        memory: the memory that holds the texts.
        begin: the first byte of the texts in it.
        size: their number of bytes.
    """

    memory: SharedMemory
    begin: int
    size: int

    def __post_init__(self) -> None:
        """Check that the text lies in the memory (IndexError)."""
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
        """Return the bytes from `begin` to `end` as a text of its own, without reading them."""
        return SharedText(self.memory, self.begin + begin, end - begin)


@dataclass(frozen=True, slots=True, eq=False)
class SharedRows:
    """Texts and the memory that their ids are written to.

    Attributes:
        text: the texts, joined.
        offsets: int64[B + 1], where each begins.
        out: the memory that the ids are written to.
        out_begin, out_bytes: the first byte for ids there, and how many there are.
        id_bytes: the size of an id there: 4, 2 or 1.
        options: the options of all rows.
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
