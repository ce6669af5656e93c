"""Encodes texts in memory of another process into memory of that process.

The device reads and writes both directly: device memory, or page-locked host memory. If the host
would have to change the answer, for instance to remove refused rows, NotCovered is raised, and the
caller encodes in another way.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from gpu.batch.row_options import row_options
from gpu.errors import NotCovered
from gpu.large.chunk_in_flight import ChunkInFlight, Work
from gpu.large.chunk_sizes import BY_BUS, ON_DEVICE, TO_DEVICE
from gpu.large.chunking import Chunk, chunks_of
from gpu.large.pipeline import NO_LOCK, Pipeline
from gpu.large.stream_answer import StreamAnswer
from gpu.memory.output_buffer import OutputBuffer
from vocabularies.batch.batch import Batch
from vocabularies.batch.shared_rows import SharedRows, check_bounds
from vocabularies.model.vocabulary import Vocabulary

Int64s = NDArray[np.int64]
ID_BYTES = (4, 2, 1)


class _SharedAnswer(StreamAnswer):
    """A stream answer that raises NotCovered for a refused row."""

    def collect(self, flight: ChunkInFlight) -> None:
        """Collect a chunk as StreamAnswer does.

        Raises:
            NotCovered: a row is refused.
        """
        if flight.errors() is not None:
            raise NotCovered("a row is refused")
        super().collect(flight)


def encode_shared(pipeline: Pipeline, vocabulary: Vocabulary, rows: SharedRows) -> Int64s:
    """Encode rows into their shared memory, and wait; return the offsets int64[B + 1].

    Raises:
        NotCovered: an option or dtype needs the host, or a row is refused.
        OutOfMemory: a row that must not be split does not fit into memory.
        ValueError: the memory for ids is too small (some may have been written), or is closed.
        IndexError: a memory region has fewer bytes than the rows require.
    """
    check_bounds(rows.out, rows.out_begin, rows.out_bytes)
    if rows.id_bytes not in ID_BYTES or len(vocabulary) > 1 << 8 * rows.id_bytes:
        raise NotCovered(f"ids of {rows.id_bytes} bytes")
    if rows.options.spans or rows.options.max_length is not None:
        raise NotCovered("spans and truncation are reported by the host")
    # An empty batch with as many rows, because options only depend on their number.
    nowhere = np.zeros_like(rows.offsets)
    batch = Batch(data=np.zeros(0, np.uint8), offsets=nowhere, options=rows.options)
    with (
        rows.text.memory.in_use(),
        rows.out.in_use(),
        pipeline.resources.residents.using(vocabulary) as resident,
    ):
        options = row_options(vocabulary, batch, resident.family)
        if options.post_processed and rows.id_bytes != 4:
            raise NotCovered("narrow ids with begin and end tokens")
        validate = not resident.family.takes_bytes
        bits = 8 * rows.id_bytes
        work = Work(resident, rows.text, True, options, validate, bits)
        # The host would have to add the begin and end tokens of a row that is split.
        whole = np.ones(len(rows), np.bool_) if options.post_processed else options.whole_rows()
        out = OutputBuffer(rows.out.address + rows.out_begin, rows.out_bytes, rows.id_bytes)

        to_device = ON_DEVICE if rows.text.memory.on_device else TO_DEVICE
        sizes = to_device if rows.out.on_device else BY_BUS.of(len(rows.text))
        lock = pipeline.device_lock if sizes is ON_DEVICE else NO_LOCK

        def new_answer() -> _SharedAnswer:
            return _SharedAnswer(out, len(rows))

        def chunks(size: int) -> Iterator[Chunk]:
            return chunks_of(rows.text, rows.offsets, vocabulary, size, whole, sizes.ends)

        answer = pipeline.answer(work, chunks, new_answer, sizes.chunk_bytes, sizes.in_flight, lock)
        return answer.offsets
