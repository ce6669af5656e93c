"""Reads texts from an Arrow stream that may be malicious.

Record batches are read one by one. The size in a message is checked before memory is allocated for
it, and offsets are checked before they are used. This module does not depend on HTTP.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from service.core.errors import BadBody, InvalidRequest, TooLarge, UnsupportedFormat
from vocabularies.batch.batch import Batch

try:
    import pyarrow as pa
except ModuleNotFoundError:  # The routes call `check_installed` first.
    pa = None

MEDIA_TYPE = "application/vnd.apache.arrow.stream"
COLUMN = "text"
RECORD_BATCH = "record batch"
CONTINUATION = b"\xff\xff\xff\xff"
HEADER = 2  # Field numbers of Message and RecordBatch in Arrow's Message.fbs.
COMPRESSION = 3


class TextBatch(NamedTuple):
    """Texts that were read from a body.

    Attributes:
        texts: the texts.
        metadata: further data for the answer: bool[B], true for null texts, or the names of the
            records.
    """

    texts: Batch
    metadata: Any


def check_sizes(texts: Batch, max_bytes: int, where: str, first: int = 0) -> None:
    """Check the size of each text.

    Args:
        texts: the texts.
        max_bytes: the maximum size of one text, `max_text_bytes`.
        where: the place of a text in the request, for the refusal.
        first: the number of the first text.

    Raises:
        TooLarge: a text has more than `max_bytes` bytes.
    """
    if len(texts.data) <= max_bytes:
        return
    sizes = np.diff(texts.offsets)
    row = int(np.argmax(sizes > max_bytes))
    if sizes[row] > max_bytes:
        message = f"the text has {sizes[row]} bytes; max_text_bytes is {max_bytes}"
        raise TooLarge(message, f"{where} {first + row}")


class TextReader:
    """Reads the column `text` of a stream, one record batch after another.

    Args:
        read: returns exactly a number of bytes, fewer at the end; may block and may raise.
        max_bytes: the maximum size of a text; None: no limit.
    """

    def __init__(self, read: Callable[[int], Any], max_bytes: int | None = None) -> None:
        self._max_bytes = max_bytes
        self._file = _File(read)
        self._messages = pa.ipc.MessageReader.open_stream(pa.PythonFile(self._file, "r"))
        self._schema: pa.Schema | None = None
        self._number = 0

    def next_batch(self) -> TextBatch | None:
        """Read the texts of the next record batch, and bool[B] for the null ones; None at the end.

        Raises:
            BadBody: the bytes are not an Arrow stream, or go on behind its end.
            UnsupportedFormat: the batch is compressed or dictionary-encoded.
            InvalidRequest: there is no column `text`, or it has another type.
            TooLarge: a text has more than `max_bytes` bytes.
        """
        where = f"record batch {self._number}"
        try:
            if self._schema is None:
                self._schema = self._read_schema()
            message = self._next_message()
            if message is None:
                self._check_end()
                return None
            self._number += 1
            if message.type != RECORD_BATCH:
                raise UnsupportedFormat(f"a {message.type} message is not supported", where)
            if _is_compressed(message.metadata.to_pybytes()):
                advice = (
                    "send it uncompressed, and compress the whole body with Content-Encoding "
                    "instead"
                )
                raise UnsupportedFormat(
                    f"a compressed record batch is not supported; {advice}", where
                )
            column = pa.ipc.read_record_batch(message, self._schema).column(COLUMN)
            column.validate(full=True)
        except (pa.ArrowException, struct.error, OSError, UnicodeDecodeError) as error:
            raise BadBody(f"the body is not an Arrow stream: {error}", where) from error
        batch = _texts(column)
        if self._max_bytes is not None:
            check_sizes(batch.texts, self._max_bytes, f"{where}, text")
        return batch

    def _next_message(self) -> pa.Message | None:
        try:
            return self._messages.read_next_message()
        except StopIteration:
            return None
        finally:
            self._file.raise_failure()

    def _check_end(self) -> None:
        """Raise BadBody if a mark has ended the stream before the body, such as one of two streams.

        The read also finds that a compressed body is incomplete.
        """
        rest = self._file.read(1)
        self._file.raise_failure()
        if len(rest):
            raise BadBody("the body goes on behind the end of the Arrow stream", "body")

    def _read_schema(self) -> pa.Schema:
        message = self._next_message()
        if message is None:
            raise BadBody("the body is empty; an Arrow stream begins with its schema", "body")
        if message.type != "schema":  # Arrow would interpret it as a schema, and crash.
            raise BadBody(f"the first message is a {message.type}, not a schema", "message 0")
        schema = pa.ipc.read_schema(message)
        num_columns = schema.names.count(COLUMN)
        if num_columns > 1:
            raise InvalidRequest(f"there are {num_columns} columns {COLUMN}", "schema")
        if not num_columns:
            names = ", ".join(schema.names) or "none"
            raise InvalidRequest(f"there is no column {COLUMN}; the columns are: {names}", "schema")
        kind = schema.field(COLUMN).type
        if not _is_text(kind):
            raise InvalidRequest(f"the column {COLUMN} is {kind}, not string or binary", "schema")
        return schema


class _File:
    """A file object with the methods that Arrow calls, from which Arrow reads the body.

    Python's garbage collector cannot see references inside Arrow's objects, so a reference cycle
    through one is never freed. Therefore this object does not refer to a TextReader, and passes no
    exception to Arrow, which would store it.
    """

    closed = False

    def __init__(self, read: Callable[[int], Any]) -> None:
        self._read = read
        self._has_begun = False
        self._failure: BaseException | None = None

    def read(self, num_bytes: int) -> Any:
        """Read bytes; after an exception pretend to Arrow that the stream has ended."""
        try:
            return self._checked_read(num_bytes)
        except BaseException as error:
            self._failure = error
            return b""

    def raise_failure(self) -> None:
        """Raise the exception of the last read, if any."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _checked_read(self, num_bytes: int) -> Any:
        """Read bytes; raise BadBody if the body does not begin like an Arrow stream.

        Arrow would interpret the first bytes of another body as a huge length.
        """
        data = self._read(num_bytes)
        if not self._has_begun and len(data) and bytes(data[:4]) != CONTINUATION[: len(data)]:
            raise BadBody(
                "the body is not an Arrow stream: it does not begin with FF FF FF FF", "body"
            )
        self._has_begun = True
        return data

    def close(self) -> None:
        """Do nothing, as no file is open."""

    def readable(self) -> bool:
        """Return True."""
        return True


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
    )


def _is_compressed(metadata: bytes) -> bool:
    """Return whether a record batch is compressed, so that its size in memory is unknown.

    The function reads two fields of the message's flatbuffer. A table begins with the distance back
    to its vtable, which contains the offset of each field, or 0.
    """
    message = struct.unpack_from("<I", metadata)[0]
    header = _field(metadata, message, HEADER)
    if header is None:
        raise struct.error("a message has no header")
    batch = header + struct.unpack_from("<I", metadata, header)[0]
    return _field(metadata, batch, COMPRESSION) is not None


def _field(data: bytes, table: int, number: int) -> int | None:
    """Return the position of a table's field in a flatbuffer; None if the table lacks the field."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    size = struct.unpack_from("<H", data, vtable)[0]
    place = 4 + 2 * number
    offset = struct.unpack_from("<H", data, vtable + place)[0] if place < size else 0
    return table + offset if offset else None


def _texts(column: pa.Array) -> TextBatch:
    nulls = np.zeros(len(column), np.bool_)
    if column.null_count:
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        column = column.fill_null("" if "string" in str(column.type) else b"")
    is_large = "large" in str(column.type)
    _, offset_buffer, data = column.buffers()
    if not len(column):
        empty = Batch(data=np.zeros(0, np.uint8), offsets=np.zeros(1, np.int64))
        return TextBatch(empty, nulls)
    dtype = np.int64 if is_large else np.int32
    end = column.offset + len(column) + 1
    offsets = np.frombuffer(offset_buffer, dtype, end)[column.offset :].astype(np.int64)
    bytes_ = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    texts = Batch(data=bytes_[offsets[0] : offsets[-1]], offsets=offsets - offsets[0])
    return TextBatch(texts, nulls)
