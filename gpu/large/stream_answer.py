"""Collects the answer to a stream: ids in the caller's memory."""

from __future__ import annotations

import numpy as np

from gpu.large.chunk_in_flight import ChunkInFlight
from gpu.large.pageable_output import PageableOutput
from gpu.memory.output_buffer import OutputBuffer


class StreamAnswer:
    """Collects the answer to a stream from its chunks, as they finish.

    Attributes:
        pageable: copies ids to an `out` in pageable memory; None: the device writes to `out`.
        offsets: int64[B + 1], where each row's ids begin.
    """

    def __init__(
        self, out: OutputBuffer, num_rows: int, pageable: PageableOutput | None = None
    ) -> None:
        self.pageable = pageable
        self.out, self.offsets = out, np.zeros(num_rows + 1, np.int64)
        self.num_ids = self.num_bytes = 0
        self.has_collected = False

    def collect(self, flight: ChunkInFlight) -> None:
        """Collect a chunk: queue the copy of its ids, and note its offsets.

        Raises:
            ValueError: a row is refused, or `out` is too short.
        """
        row = flight.first_refused()
        # The row is too short to be circular, or has a word that is not a k-mer.
        if row is not None:
            raise ValueError(f"row {row} is refused; `encode` says why")
        self.has_collected, chunk, num_bytes = True, flight.chunk, flight.num_bytes
        self.out.check_room(self.num_bytes + num_bytes)
        if self.pageable is None:
            flight.copy_ids(self.out.address + self.num_bytes, num_bytes)
        else:
            self.pageable.bring(flight, self.out.part(self.num_bytes, num_bytes))
        if chunk.begins_row:
            rows = slice(chunk.first_row, chunk.first_row + chunk.num_rows)
            np.add(flight.offsets[:-1], self.num_ids, out=self.offsets[rows])
        self.num_ids += flight.num_ids
        self.num_bytes += num_bytes
        self.offsets[chunk.first_row + chunk.num_rows] = self.num_ids
