"""Texts in memory of another process to ids in such memory, which the host never sees.

Both are read and written by the device: memory of its own, or page-locked memory of the host. Where
an answer needs the host, as refused rows do, there is none, and the texts go the usual way.
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
    """An answer that no row may be missing from."""

    def land(self, flight: ChunkInFlight) -> None:
        """Queue the copy out of a chunk."""
        if flight.errors() is not None:
            raise NotCovered("a row is refused")
        super().land(flight)


def encode_shared(pipeline: Pipeline, vocabulary: Vocabulary, rows: SharedRows) -> Int64s:
    """The ids where they are wanted, there when this returns; int64[B + 1], where rows' begin.

    Raises:
        NotCovered: the host is needed, see the options and dtypes below, or a row is refused.
        OutOfMemory: there is no room for a row that cannot be cut.
        ValueError: there is not enough room for the ids, of which some may be there; or the memory
            was let go of.
        IndexError: the memory has not so many bytes.
    """
    check_bounds(rows.out, rows.out_begin, rows.out_bytes)
    if rows.id_bytes not in ID_BYTES or len(vocabulary) > 1 << 8 * rows.id_bytes:
        raise NotCovered(f"ids of {rows.id_bytes} bytes")
    if rows.options.spans or rows.options.max_length is not None:
        raise NotCovered("spans and truncation are reported by the host")
    # What options need of a batch is how many rows it has; its bytes are elsewhere.
    nowhere = np.zeros_like(rows.offsets)
    batch = Batch(data=np.zeros(0, np.uint8), offsets=nowhere, options=rows.options)
    with (
        rows.text.memory.in_use(),
        rows.out.in_use(),
        pipeline.resources.residents.using(vocabulary) as resident,
    ):
        options = row_options(vocabulary, batch, resident.family)
        if options.framed and rows.id_bytes != 4:
            raise NotCovered("narrow ids with begin and end tokens")
        validate = not resident.family.takes_bytes
        bits = 8 * rows.id_bytes
        work = Work(resident, rows.text, True, options, validate, bits)
        # A cut row's begin and end tokens would be the host's.
        whole = np.ones(len(rows), np.bool_) if options.framed else options.whole_rows()
        out = OutputBuffer(rows.out.address + rows.out_begin, rows.out_bytes, rows.id_bytes)

        to_device = ON_DEVICE if rows.text.memory.on_device else TO_DEVICE
        pace = to_device if rows.out.on_device else BY_BUS.of(len(rows.text))
        lock = pipeline.device_lock if pace is ON_DEVICE else NO_LOCK

        def new_answer() -> _SharedAnswer:
            return _SharedAnswer(out, len(rows))

        def chunks(size: int) -> Iterator[Chunk]:
            return chunks_of(rows.text, rows.offsets, vocabulary, size, whole, pace.ends)

        answer = pipeline.answer(work, chunks, new_answer, pace.chunk_bytes, pace.in_flight, lock)
        return answer.offsets
