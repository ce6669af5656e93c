"""Encodes a large batch, or counts its ids, in chunks of which several are in flight."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gpu.batch.row_options import RowOptions
from gpu.host.copy_pool import Copy
from gpu.host.split_points import find_border
from gpu.large.answer import BatchAnswer, Counts, RowsRefused
from gpu.large.chunk_in_flight import BITS_A_WORD, Work
from gpu.large.chunk_sizes import BY_BUS
from gpu.large.chunking import Chunk, chunks_of
from gpu.large.pipeline import Answer, Pipeline
from gpu.vocabulary.cache import Resident
from vocabularies.batch.batch import Batch, Encoded, RowError
from vocabularies.batch.shared_rows import SharedText
from vocabularies.model.vocabulary import Vocabulary

Bytes = NDArray[np.uint8]
A = TypeVar("A", bound=Answer)


def encode_large(
    pipeline: Pipeline,
    vocabulary: Vocabulary,
    resident: Resident,
    batch: Batch,
    options: RowOptions,
    *,
    validate: bool,
    copy: Copy | None = None,
) -> Encoded:
    """Encode each row.

    Ids have the batch's dtype if nothing is added and no row is refused; otherwise int32.

    Args:
        pipeline: the pipeline.
        vocabulary: the vocabulary.
        resident: the vocabulary on the device.
        batch: the batch.
        options: its options.
        validate: whether rows must be checked for UTF-8.
        copy: the copy that is still writing the batch's bytes; None: they are complete.
    """
    work = _work(pipeline, resident, batch, options, copy, validate=validate)

    def new_answer(dtype: type[np.integer] = np.int32) -> BatchAnswer:
        return BatchAnswer(vocabulary, batch, options, pipeline.resources.leases, dtype)

    bits = 8 * np.dtype(batch.id_dtype).itemsize
    if bits < BITS_A_WORD and not options.post_processed and options.spans is None:
        narrow = replace(work, id_bits=bits)
        with suppress(RowsRefused):
            new_narrow = partial(new_answer, batch.id_dtype)
            return _in_chunks(pipeline, vocabulary, batch, narrow, new_narrow).finish()
    return _in_chunks(pipeline, vocabulary, batch, work, new_answer).finish()


def count_large(
    pipeline: Pipeline,
    vocabulary: Vocabulary,
    resident: Resident,
    batch: Batch,
    options: RowOptions,
    *,
    validate: bool,
    copy: Copy | None = None,
) -> tuple[NDArray[np.int64], dict[int, RowError]]:
    """Count the ids of each row, int64[B]; also return the errors of the refused rows."""

    def new_answer() -> Counts:
        return Counts(vocabulary, batch, options)

    work = replace(
        _work(pipeline, resident, batch, options, copy, validate=validate), count_only=True
    )
    return _in_chunks(pipeline, vocabulary, batch, work, new_answer).finish()


def _work(
    pipeline: Pipeline,
    resident: Resident,
    batch: Batch,
    options: RowOptions,
    copy: Copy | None,
    *,
    validate: bool,
) -> Work:
    data, is_pinned = batch.data, pipeline.resources.device.is_pinned(batch.data)
    if copy is not None and not is_pinned:  # Staging reads the bytes before a chunk is launched.
        copy.wait(len(data))
    return Work(resident, data, is_pinned, options, validate, joining=copy)


def _in_chunks(
    pipeline: Pipeline,
    vocabulary: Vocabulary,
    batch: Batch,
    work: Work,
    new_answer: Callable[[], A],
) -> A:
    """Send a batch through the pipeline in chunks; return the answer with all chunks collected."""
    whole = None if work.options is None else work.options.whole_rows()

    def chunks(size: int) -> Iterator[Chunk]:
        return chunks_of(batch.data, batch.offsets, vocabulary, size, whole, find=find)

    def find(data: Bytes | SharedText, begin: int, end: int, from_end: bool) -> int | None:
        if work.joining is not None:
            work.joining.wait(len(batch.data))
        return find_border(data, begin, end, from_end)

    chunk_bytes = min(pipeline.chunk_bytes, BY_BUS.of(len(batch.data)).chunk_bytes)
    return pipeline.answer(work, chunks, new_answer, chunk_bytes)
