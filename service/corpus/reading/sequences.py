"""Reads the records of FASTA and FASTQ; a place is the number of a record."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import partial
from io import BufferedReader
from typing import Any, BinaryIO

import numpy as np

from service.corpus.documents import Documents, Reject
from service.corpus.inputs import (
    PACKED_BYTES,
    DigestedFile,
    Input,
    naming_errors,
    open_input,
    unpack,
)
from service.corpus.job import Job
from service.seqio.reader import sequence_batches
from vocabularies.batch.batch import Batch

BATCH_BYTES = 4 << 20
BATCH_RECORDS = 1 << 16
LoadDocuments = Callable[[], Documents]


class _KeptOpen(io.RawIOBase):
    """Wraps a stream that stays open after the parser closes the wrapper, to digest its end."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__()
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return int(self._stream.readinto(buffer))  # type: ignore[attr-defined]


def read_sequences(file: Input, start: int, job: Job) -> Iterator[LoadDocuments]:
    """Yield functions that load the sequences of a file from a record on.

    Raises:
        UnreadableInput: the file is damaged, or not in its format.
    """
    with naming_errors(file), DigestedFile(open_input(file), job.is_digested) as packed:
        stream = _KeptOpen(unpack(BufferedReader(packed, PACKED_BYTES), file.path))
        unpacked = BufferedReader(stream, PACKED_BYTES)
        first, num_packed = 0, 0
        for named in sequence_batches(unpacked, file.format, BATCH_BYTES, BATCH_RECORDS):
            texts = named.texts
            if first + len(texts) > start:
                num_bytes = packed.num_bytes - num_packed
                yield partial(_make_documents, texts, first, start, num_bytes, job)
                num_packed = packed.num_bytes
            first += len(texts)
        end = packed.num_bytes
        digests = packed.take_digests(is_end=True)
        size = end - num_packed
        none = np.zeros(0, np.int64)
        yield lambda: Documents(
            np.zeros(0, np.uint8), np.zeros(1, np.int64), none, first, size, digests=digests
        )


def _make_documents(texts: Batch, first: int, start: int, num_bytes: int, job: Job) -> Documents:
    """Make documents from sequences, without those before record `start`; `first` is the first."""
    skipped = max(0, start - first)
    if skipped:
        texts = texts.part(skipped, len(texts))
    places = np.arange(first + skipped, first + skipped + len(texts))
    end = first + skipped + len(texts)
    rejects = []
    is_long = np.diff(texts.offsets) > job.max_document_bytes
    if is_long.any():
        message = f"more than {job.max_document_bytes} bytes"
        rejects = [Reject(place, "too_long", message) for place in places[is_long].tolist()]
        kept = np.flatnonzero(~is_long)
        texts = texts.select(kept.tolist(), texts.options)  # type: ignore[arg-type]
        places = places[kept]
    return Documents(texts.data, texts.offsets, places, end, num_bytes, rejects)
