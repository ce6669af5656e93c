"""Chooses the sizes of the chunks of a call or stream, and how many are in flight."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from gpu.large.chunking import Ends


@dataclass(frozen=True, slots=True)
class ChunkSizes:
    """The sizes of chunks.

    Attributes:
        chunk_bytes: the largest size of a chunk, in bytes.
        in_flight: the largest number of chunks in flight.
        ends: the approximate bytes of the first and the last chunk.

    Raises:
        ValueError: a number is below 1.
    """

    chunk_bytes: int
    in_flight: int
    ends: Ends

    def __post_init__(self) -> None:
        if self.chunk_bytes < 1 or self.in_flight < 1:
            numbers = f"chunk_bytes is {self.chunk_bytes}, in_flight {self.in_flight}"
            raise ValueError(f"{numbers}; each must be at least 1")

    def of(self, num_bytes: int) -> ChunkSizes:
        """Return the sizes for a text; chunks of short texts are smaller, see SMALLER_CHUNKS."""
        for below, size in SMALLER_CHUNKS:
            if num_bytes < below:
                return self if size >= self.chunk_bytes else _with_chunks(self, size)
        return self


@cache
def _with_chunks(sizes: ChunkSizes, chunk_bytes: int) -> ChunkSizes:
    return replace(sizes, chunk_bytes=chunk_bytes)


SMALLER_CHUNKS = (48 << 20, 4 << 20), (192 << 20, 8 << 20), (288 << 20, 16 << 20)
"""Pairs (text, chunk): the limit of chunks for texts below a size, both in bytes."""
# PCIe is the bottleneck: kernels and copies out of small chunks overlap with the next copies in.
BY_BUS = ChunkSizes(24 << 20, 4, (4 << 20, 4 << 20))
# The same without copies out: larger chunks, also at the end, have faster kernels.
TO_DEVICE = ChunkSizes(32 << 20, 4, (4 << 20, 16 << 20))
# Kernels are the bottleneck, and are fastest on large chunks.
ON_DEVICE = ChunkSizes(256 << 20, 2, (256 << 20, 256 << 20))
