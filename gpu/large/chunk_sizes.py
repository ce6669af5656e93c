"""The sizes of the chunks of a call or stream, and how many are in flight."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from gpu.large.chunking import Ends


@dataclass(frozen=True, slots=True)
class ChunkSizes:
    """How a stream's bytes go through the device.

    Attributes:
        chunk_bytes: of a chunk, at most.
        in_flight: chunks at most.
        ends: of the first chunk and the last.

    Raises:
        ValueError: a number is below 1.
    """

    chunk_bytes: int
    in_flight: int
    ends: Ends

    def __post_init__(self) -> None:
        if self.chunk_bytes < 1 or self.in_flight < 1:
            numbers = f"chunk_bytes is {self.chunk_bytes}, in_flight {self.in_flight}"
            raise ValueError(f"{numbers}; the least is 1")

    def of(self, num_bytes: int) -> ChunkSizes:
        """That of so much text: of SMALLER_CHUNKS where there would be few."""
        for below, size in SMALLER_CHUNKS:
            if num_bytes < below:
                return self if size >= self.chunk_bytes else _with_chunks(self, size)
        return self


@cache
def _with_chunks(pace: ChunkSizes, chunk_bytes: int) -> ChunkSizes:
    return replace(pace, chunk_bytes=chunk_bytes)


SMALLER_CHUNKS = (48 << 20, 4 << 20), (192 << 20, 8 << 20), (288 << 20, 16 << 20)
"""Below so much text chunks have so many bytes at most."""
# PCIe is slowest: kernels and copies out of small chunks hide behind the next copies in.
BY_BUS = ChunkSizes(24 << 20, 4, (4 << 20, 4 << 20))
# The same without copies out: the kernels of larger chunks are faster, those of the last ones, too.
TO_DEVICE = ChunkSizes(32 << 20, 4, (4 << 20, 16 << 20))
# The kernels are slowest, and work best on much text.
ON_DEVICE = ChunkSizes(256 << 20, 2, (256 << 20, 256 << 20))
