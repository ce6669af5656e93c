"""Texts in memory of another process, and the memory of that process for their ids.

The service passes these objects to an engine, whose device reads and writes the memory. This module
does not depend on a device.
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
        address: the address of its first byte for kernels and copies.
        num_bytes: its size.
        on_device: whether it is device memory; otherwise it is host memory, which the device reads
            over PCIe.
    """

    address: int
    num_bytes: int
    on_device: bool

    def read(self, offset: int, out: Bytes) -> None:
        """Copy N bytes that begin at `offset` to `out`, uint8[N] in this process.

        Raises:
            IndexError: fewer than N bytes follow `offset`.
        """

    def in_use(self) -> AbstractContextManager[None]:
        """Keep the memory allocated inside the context, even if `close` is called meanwhile.

        Raises:
            ValueError: `close` was called before.
        """

    def close(self) -> None:
        """Release the memory, at once or when the last context of `in_use` ends."""


def check_bounds(memory: SharedMemory, offset: int, num_bytes: int) -> None:
    """Check that the `num_bytes` bytes from `offset` on are inside the memory.

    Raises:
        IndexError: some bytes are outside of the memory.
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
        out_begin, out_bytes: the first byte of `out` for ids, and the number of bytes for them.
        id_bytes: the number of bytes of an id in `out`: 4, 2 or 1.
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
