"""Reads the texts of a column of Parquet or Arrow; a place is the number of a row.

Only this column is read. Several threads read small row groups; a large row group of Parquet is
read in order, in pieces. A null is rejected.

The digest of a file needs all of its bytes. Each block is digested by the task that reads the
documents in it, or next to it, so that a file is read from the disk once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from io import BufferedReader
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from service.corpus.documents import Documents, Reject
from service.corpus.inputs import (
    DIGEST_BYTES,
    PACKED_BYTES,
    DigestedFile,
    Input,
    detect_compression,
    naming_errors,
    open_input,
    unpack,
)
from service.corpus.job import Job

TASK_BYTES = 8 << 20
LARGE_BYTES = 64 << 20  # A larger group of rows is read in pieces.
MAX_PIECE_ROWS = 1 << 16
ARROW_FILE = b"ARROW1"
LoadDocuments = Callable[[], Documents]


class _Share(NamedTuple):
    """The bytes of a file that a task counts as read, and the block of them that it digests.

    Attributes:
        file: the file.
        num_bytes: the number of bytes.
        block: the number of the block; None: no block.
    """

    file: Input
    num_bytes: int
    block: int | None

    def digests(self) -> dict[int, bytes]:
        """Return the digest of the block by its number."""
        if self.block is None:
            return {}
        with naming_errors(self.file), open_input(self.file) as opened:
            opened.seek(self.block * DIGEST_BYTES)
            return {self.block: hashlib.sha256(opened.read(DIGEST_BYTES)).digest()}


class _Shares:
    """Divides the bytes of a file among tasks, in order.

    Args:
        file: the file.
        job: the job; it may have no digests, and that of a URL is its tag.
    """

    def __init__(self, file: Input, job: Job) -> None:
        self._file = file
        self._is_digested = job.is_digested and file.is_local
        self._offset = self._num_blocks = 0

    def take(self, offset: int) -> list[_Share]:
        """Return the bytes up to an offset as one share or more, with at most one block each."""
        end = min(max(offset, self._offset), self._file.size)
        is_end = end == self._file.size
        shares = []
        if self._is_digested:
            num_blocks = -(-end // DIGEST_BYTES) if is_end else end // DIGEST_BYTES
            for block in range(self._num_blocks, num_blocks):
                block_end = min((block + 1) * DIGEST_BYTES, end)
                shares.append(_Share(self._file, max(0, block_end - self._offset), block))
                self._offset = max(self._offset, block_end)
            self._num_blocks = num_blocks
        if self._offset < end or not shares:
            shares.append(_Share(self._file, end - self._offset, None))
        self._offset = end
        return shares


def read_parquet(file: Input, start: int, job: Job) -> Iterator[LoadDocuments]:
    """Yield functions that load the documents of a Parquet file from a row on.

    Raises:
        UnreadableInput: the file cannot be read, or has no column of texts with this name.
    """
    with naming_errors(file), open_input(file) as opened:
        parquet = pq.ParquetFile(opened, pre_buffer=False, buffer_size=PACKED_BYTES)
        metadata = parquet.metadata
        column = _find_column(parquet.schema_arrow, job.key)
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        chunks = [_find_chunk(group, column) for group in groups]
        sizes = [chunk.total_uncompressed_size for chunk in chunks]
        shares = _Shares(file, job)
        first_row, number = 0, 0
        while number < len(sizes):
            last, size = number + 1, sizes[number]
            while last < len(sizes) and size + sizes[last] <= TASK_BYTES:
                size += sizes[last]
                last += 1
            num_rows = sum(group.num_rows for group in groups[number:last])
            if first_row + num_rows > start:
                *others, own = shares.take(_chunk_end(chunks[last - 1]))
                yield from _digest_tasks(others, max(first_row, start))
                if size <= LARGE_BYTES:
                    numbers = range(number, last)
                    yield partial(_load_groups, own, metadata, numbers, first_row, start, job)
                else:
                    yield from _read_pieces(parquet, number, first_row, start, size, job, own)
            first_row += num_rows
            number = last
    yield from _digest_tasks(shares.take(file.size), first_row)


def _find_chunk(group: Any, column: str) -> Any:
    """Return the metadata of a column in a row group."""
    chunks = (group.column(i) for i in range(group.num_columns))
    return next(chunk for chunk in chunks if chunk.path_in_schema == column)


def _chunk_end(chunk: Any) -> int:
    """Return the offset in the file behind a column of a row group."""
    begin: int = chunk.dictionary_page_offset or chunk.data_page_offset
    return begin + int(chunk.total_compressed_size)


def _find_column(schema: Any, key: str) -> str:
    """Check that exactly one column has the name, and that it contains texts or only nulls.

    Raises:
        ValueError: there is no such column, or several.
    """
    if key not in schema.names:
        raise ValueError(f"there is no column {key!r}; the columns are {', '.join(schema.names)}")
    if schema.names.count(key) > 1:
        raise ValueError(f"{schema.names.count(key)} columns are named {key!r}")
    kind = schema.field(key).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not _is_text(kind) and not pa.types.is_null(kind):
        raise ValueError(f"the column {key!r} is {kind}, not text")
    return key


def _is_text(kind: Any) -> bool:
    kinds = pa.types
    return bool(
        kinds.is_string(kind)
        or kinds.is_large_string(kind)
        or kinds.is_string_view(kind)
        or kinds.is_binary(kind)
        or kinds.is_large_binary(kind)
    )


def _load_groups(
    share: _Share, metadata: Any, groups: range, first_row: int, start: int, job: Job
) -> Documents:
    with naming_errors(share.file), open_input(share.file) as opened:
        parquet = pq.ParquetFile(opened, metadata=metadata, pre_buffer=False)
        table = parquet.read_row_groups([*groups], columns=[job.key], use_threads=False)
        return _make_documents(table.column(0), first_row, start, job, share)


def _read_pieces(
    parquet: Any, number: int, first_row: int, start: int, size: int, job: Job, share: _Share
) -> Iterator[LoadDocuments]:
    num_rows = parquet.metadata.row_group(number).num_rows
    piece_rows = max(1, min(MAX_PIECE_ROWS, num_rows * TASK_BYTES // size))
    batches = parquet.iter_batches(
        piece_rows, row_groups=[number], columns=[job.key], use_threads=False
    )
    for batch in batches:
        if first_row + len(batch) > start:
            yield partial(_make_documents, batch.column(0), first_row, start, job, share)
            share = _Share(share.file, 0, None)
        first_row += len(batch)


def read_arrow(file: Input, start: int, job: Job) -> Iterator[LoadDocuments]:
    """Yield functions that load the documents of an Arrow file or stream from a row on.

    Raises:
        UnreadableInput: the file cannot be read, or has no column of texts with this name.
    """
    first_row = 0
    shares = _Shares(file, job)
    with naming_errors(file), open_input(file) as opened:
        begin = opened.read(len(ARROW_FILE))
        opened.seek(0)
        options = None
        if begin == ARROW_FILE:
            schema = pa.ipc.open_file(opened).schema
            options = _only(schema, job.key)
            reader = pa.ipc.open_file(opened, options=options)
            batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
        else:
            if not detect_compression(begin):
                options = _only(pa.ipc.open_stream(opened).schema, job.key)
                opened.seek(0)
            unpacked = unpack(BufferedReader(DigestedFile(opened, False), PACKED_BYTES), file.path)
            batches = pa.ipc.open_stream(unpacked, options=options)
            _find_column(batches.schema, job.key)
        for batch in batches:
            for piece in _cut(batch.column(job.key)):
                if first_row + len(piece) > start:
                    *others, own = shares.take(opened.tell())
                    yield from _digest_tasks(others, max(first_row, start))
                    yield partial(_make_documents, piece, first_row, start, job, own)
                first_row += len(piece)
    yield from _digest_tasks(shares.take(file.size), first_row)


def _only(schema: Any, key: str) -> Any:
    """Make the options that read only one column."""
    _find_column(schema, key)
    return pa.ipc.IpcReadOptions(included_fields=[schema.get_field_index(key)], use_threads=False)


def _cut(array: Any) -> Iterator[Any]:
    """Cut an array into pieces of about TASK_BYTES."""
    piece_rows = max(1, len(array) * TASK_BYTES // max(TASK_BYTES, array.nbytes))
    for begin in range(0, len(array), piece_rows):
        yield array.slice(begin, piece_rows)


def _make_documents(column: Any, first_row: int, start: int, job: Job, share: _Share) -> Documents:
    """Make documents from the texts from row `start` on; the array begins at row `first_row`."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    arrays = [chunk.cast(pa.large_binary()) for chunk in chunks]
    array = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)  # Copies even a single one.
    array = array.slice(max(0, start - first_row))
    end = first_row + len(column)
    places = np.arange(end - len(array), end)
    rejects = []
    is_kept = np.ones(len(array), np.bool_)
    if array.null_count:
        is_kept = array.is_valid().to_numpy(zero_copy_only=False)
        rejects += [Reject(place, "not_text", "null") for place in places[~is_kept].tolist()]
    offsets = _offsets(array)
    is_long = np.diff(offsets) > job.max_document_bytes
    if is_long.any():
        message = f"more than {job.max_document_bytes} bytes"
        rejects += [Reject(place, "too_long", message) for place in places[is_long].tolist()]
        is_kept = is_kept & ~is_long
    if not is_kept.all():
        array = array.filter(pa.array(is_kept))
        places = places[is_kept]
        offsets = _offsets(array)
    data = array.buffers()[2]
    texts = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return Documents(
        texts[offsets[0] : offsets[-1]],
        offsets - offsets[0],
        places,
        end,
        share.num_bytes,
        sorted(rejects),
        share.digests(),
    )


def _offsets(array: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the offset of each text in the array's data buffer."""
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(1, np.int64)
    return np.frombuffer(buffer, np.int64)[array.offset : array.offset + len(array) + 1]


def _digest_tasks(shares: list[_Share], end: int) -> Iterator[LoadDocuments]:
    """Yield functions that digest a share each, and return no documents before row `end`."""
    for share in shares:
        yield partial(_digest, share, end)


def _digest(share: _Share, end: int) -> Documents:
    none = np.zeros(0, np.int64)
    return Documents(
        np.zeros(0, np.uint8),
        np.zeros(1, np.int64),
        none,
        end,
        share.num_bytes,
        [],
        share.digests(),
    )
