"""Reads the texts of a column of Parquet or Arrow; a place is the number of a row.

Only this column is read. Several threads read small row groups; a large row group of Parquet is
read in order, in pieces. A null is rejected.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from io import BufferedReader
from typing import Any

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
        sizes = [_group_bytes(group, column) for group in groups]
        first_row, number = 0, 0
        while number < len(sizes):
            last, size = number + 1, sizes[number]
            while last < len(sizes) and size + sizes[last] <= TASK_BYTES:
                size += sizes[last]
                last += 1
            num_rows = sum(group.num_rows for group in groups[number:last])
            if first_row + num_rows > start:
                if size <= LARGE_BYTES:
                    numbers = range(number, last)
                    yield partial(_load_groups, file, metadata, numbers, first_row, start, job)
                else:
                    yield from _read_pieces(parquet, number, first_row, start, size, job)
            first_row += num_rows
            number = last
    yield from _digests(file, first_row, job)


def _group_bytes(group: Any, column: str) -> int:
    """Return the decompressed size of a column in a row group, in bytes."""
    columns = (group.column(i) for i in range(group.num_columns))
    return sum(c.total_uncompressed_size for c in columns if c.path_in_schema == column)


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
    file: Input, metadata: Any, groups: range, first_row: int, start: int, job: Job
) -> Documents:
    with naming_errors(file), open_input(file) as opened:
        parquet = pq.ParquetFile(opened, metadata=metadata, pre_buffer=False)
        table = parquet.read_row_groups([*groups], columns=[job.key], use_threads=False)
        return _make_documents(table.column(0), first_row, start, job)


def _read_pieces(
    parquet: Any, number: int, first_row: int, start: int, size: int, job: Job
) -> Iterator[LoadDocuments]:
    num_rows = parquet.metadata.row_group(number).num_rows
    piece_rows = max(1, min(MAX_PIECE_ROWS, num_rows * TASK_BYTES // size))
    batches = parquet.iter_batches(
        piece_rows, row_groups=[number], columns=[job.key], use_threads=False
    )
    for batch in batches:
        if first_row + len(batch) > start:
            yield partial(_make_documents, batch.column(0), first_row, start, job)
        first_row += len(batch)


def read_arrow(file: Input, start: int, job: Job) -> Iterator[LoadDocuments]:
    """Yield functions that load the documents of an Arrow file or stream from a row on.

    Raises:
        UnreadableInput: the file cannot be read, or has no column of texts with this name.
    """
    first_row = 0
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
                    yield partial(_make_documents, piece, first_row, start, job)
                first_row += len(piece)
    yield from _digests(file, first_row, job)


def _only(schema: Any, key: str) -> Any:
    """Make the options that read only one column."""
    _find_column(schema, key)
    return pa.ipc.IpcReadOptions(included_fields=[schema.get_field_index(key)], use_threads=False)


def _cut(array: Any) -> Iterator[Any]:
    """Cut an array into pieces of about TASK_BYTES."""
    piece_rows = max(1, len(array) * TASK_BYTES // max(TASK_BYTES, array.nbytes))
    for begin in range(0, len(array), piece_rows):
        yield array.slice(begin, piece_rows)


def _make_documents(column: Any, first_row: int, start: int, job: Job) -> Documents:
    """Make documents from the texts from row `start` on; the array begins at row `first_row`."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    array = pa.concat_arrays([chunk.cast(pa.large_binary()) for chunk in chunks])
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
        texts[offsets[0] : offsets[-1]], offsets - offsets[0], places, end, 0, sorted(rejects)
    )


def _offsets(array: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the offset of each text in the array's data buffer."""
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(1, np.int64)
    return np.frombuffer(buffer, np.int64)[array.offset : array.offset + len(array) + 1]


def _digests(file: Input, end: int, job: Job) -> Iterator[LoadDocuments]:
    """Yield functions that read a local file for its digest, and return no documents."""
    for number in range(-(-file.size // DIGEST_BYTES)):
        yield partial(_digest, file, number, end, job.is_digested and file.is_local)


def _digest(file: Input, number: int, end: int, is_digested: bool) -> Documents:
    digests = {}
    size = min(DIGEST_BYTES, file.size - number * DIGEST_BYTES)
    if is_digested:
        with naming_errors(file), open_input(file) as opened:
            opened.seek(number * DIGEST_BYTES)
            digests[number] = hashlib.sha256(opened.read(size)).digest()
    none = np.zeros(0, np.int64)
    return Documents(np.zeros(0, np.uint8), np.zeros(1, np.int64), none, end, size, digests=digests)
