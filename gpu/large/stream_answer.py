"""The answer to a stream: ids in memory of the caller's, as its chunks land."""

from __future__ import annotations

import numpy as np

from gpu.large.chunk_in_flight import ChunkInFlight
from gpu.large.pageable_output import PageableOutput
from gpu.memory.output_buffer import OutputBuffer


class StreamAnswer:
    """The answer to a stream in the making.

    Attributes:
        way: to an `out` in ordinary memory.
        offsets: int64[B + 1], where each row's ids begin.
    """

    def __init__(self, out: OutputBuffer, num_rows: int, way: PageableOutput | None = None) -> None:
        self.way = way
        self.out, self.offsets = out, np.zeros(num_rows + 1, np.int64)
        self.num_ids = self.num_bytes = 0
        self.has_landed = False

    def land(self, flight: ChunkInFlight) -> None:
        """Queue the copy out of a chunk."""
        row = flight.first_refused()
        if row is not None:  # It is too short for a circle, or has a word that is no k-mer.
            raise ValueError(f"row {row} is refused; `encode` says why")
        self.has_landed, chunk, num_bytes = True, flight.chunk, flight.num_bytes
        self.out.check_room(self.num_bytes + num_bytes)
        if self.way is None:
            flight.copy_ids(self.out.address + self.num_bytes, num_bytes)
        else:
            self.way.bring(flight, self.out.part(self.num_bytes, num_bytes))
        if chunk.begins_row:
            rows = slice(chunk.first_row, chunk.first_row + chunk.num_rows)
            np.add(flight.offsets[:-1], self.num_ids, out=self.offsets[rows])
        self.num_ids += flight.num_ids
        self.num_bytes += num_bytes
        self.offsets[chunk.first_row + chunk.num_rows] = self.num_ids
