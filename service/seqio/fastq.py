"""Reads FASTQ with dnaio, and line by line from the first multi-line record, which dnaio refuses.

Blank lines at the end of a file are skipped; dnaio alone would refuse them. From the first record
that dnaio refuses, the file is read line by line: a sequence ends at a line that begins with "+",
and its qualities end when they are as long as the sequence, because a line of qualities may begin
with "@".
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any, BinaryIO

from service.core.extras import check_installed
from service.seqio.sequence_checks import BadRecord

try:
    import dnaio

    FastqError = dnaio.FileFormatError
except ModuleNotFoundError:  # `read_fastq` says so.

    class FastqError(Exception):  # type: ignore[no-redef]
        """Replaces dnaio's error class if dnaio is not installed."""


LINE_ENDS = b"\r\n"
MAX_BLANK_BYTES = 1 << 20
READ_BYTES = 1 << 16
NEAR_BYTES = 64  # A search from the end looks at so many bytes first.
BUFFER_BYTES = 1 << 17  # What dnaio reads at a time; it doubles this for a longer record.
QUOTE = re.compile(r"\. The incomplete final record was.*| \('.*", re.DOTALL)
"""The end of a message of dnaio that repeats a record or its names; refusals never quote input."""
LINES = 4  # Of a record that dnaio reads.


class RecordTooLong(ValueError):
    """A multi-line record has more bytes than the reader may store."""

    def __init__(self, num_bytes: int) -> None:
        super().__init__(f"a record has at least {num_bytes} bytes")
        self.num_bytes = num_bytes


def read_fastq(file: BinaryIO, max_bytes: int | None = None) -> Iterator[tuple[str, str]]:
    """Read the name and the sequence of each record; the file may end with blank lines.

    A name ends at the first white space. The file is closed at its end.

    Args:
        file: the decompressed file.
        max_bytes: the most bytes of a multi-line sequence; None: no limit.

    Raises:
        NotInstalled: dnaio is not installed.
        BadRecord: a record is damaged.
        RecordTooLong: a multi-line sequence has more than `max_bytes`.
    """
    check_installed("FASTQ files", "dna")
    unread = _UnreadLines(file)
    number = 1
    try:
        # Close the file here; dnaio's reader closes it only when it is garbage-collected.
        with closing(file):
            try:
                buffer: Any = unread
                with dnaio.FastqReader(buffer, buffer_size=BUFFER_BYTES) as reader:
                    unread.reader = reader
                    for record in reader:
                        number += 1
                        yield record.id, record.sequence
            except FastqError as error:
                num_read = number - 1
                lines = _Lines(file, unread.take(num_read), LINES * num_read, max_bytes)
                for name, sequence in _read_by_lines(lines, error):
                    number += 1
                    yield name, sequence
    except FastqError as error:
        behind = " or behind it" if error.line is None else ""
        raise BadRecord(QUOTE.sub("", str(error)), number, behind) from error


def _read_by_lines(lines: _Lines, error: FastqError) -> Iterator[tuple[str, str]]:
    """Read records of any number of lines.

    Raises:
        FastqError: a record is damaged; for the first record, `error` is raised instead.
        RecordTooLong: a sequence is too long.
    """
    if error.line is None:  # Bytes that are not ASCII.
        raise error
    try:
        first = lines.read_record()
    except FastqError:
        raise error from None
    if first is None:
        raise error
    yield first
    while (record := lines.read_record()) is not None:
        yield record


class _Lines:
    """Reads a file line by line.

    Args:
        file: the file.
        begin: bytes that have already been read from the file.
        number: the number of lines before `begin`.
        max_bytes: the most bytes of a sequence; None: no limit.
    """

    def __init__(self, file: BinaryIO, begin: bytes, number: int, max_bytes: int | None) -> None:
        self._file = file
        self._begin = io.BytesIO(begin)
        self._number = number
        self._max_bytes = max_bytes

    def read_record(self) -> tuple[str, str] | None:
        """Read the name and the sequence of the next record; None if only blank lines follow.

        Raises:
            FastqError: the record is damaged.
            RecordTooLong: its sequence is too long.
        """
        header = self._next_line()
        if not header.startswith(b"@"):
            if header.strip(LINE_ENDS) or self._has_text():
                raise self._error("Line expected to start with '@'")
            return None
        title = header.rstrip(LINE_ENDS)[1:]
        sequence = self._read_sequence(title)
        self._skip_qualities(len(sequence))
        words = _decode(title).split(maxsplit=1)
        return words[0] if words else "", _decode(sequence)

    def _read_sequence(self, title: bytes) -> bytes:
        """Read a sequence and the "+" line after it, which may repeat the title."""
        parts: list[bytes] = []
        num_bytes = 0
        while not (line := self._next_line()).startswith(b"+"):
            if not line or line.startswith(b"@"):
                raise self._error("Line expected to start with '+'")
            parts.append(line.rstrip(LINE_ENDS))
            num_bytes += len(parts[-1])
            if self._max_bytes is not None and num_bytes > self._max_bytes:
                raise RecordTooLong(num_bytes)
        if line.rstrip(LINE_ENDS)[1:] not in (b"", title):
            raise self._error("Sequence descriptions don't match")
        return b"".join(parts)

    def _skip_qualities(self, num_bases: int) -> None:
        """Read the qualities of a sequence, which take at least one line."""
        num_qualities = 0
        while line := self._next_line():
            num_qualities += len(line.rstrip(LINE_ENDS))
            if num_qualities >= num_bases:
                break
        if num_qualities < num_bases:
            raise self._error("Premature end of file: qualities are missing")
        if num_qualities > num_bases:
            raise self._error("Length of sequence and qualities differ")

    def _has_text(self) -> bool:
        """Read blank lines, at most MAX_BLANK_BYTES; return whether other bytes follow."""
        num_bytes = 0
        while line := self._next_line():
            num_bytes += len(line)
            if line.strip(LINE_ENDS) or num_bytes > MAX_BLANK_BYTES:
                return True
        return False

    def _next_line(self) -> bytes:
        self._number += 1
        line = self._begin.readline()
        return line if line.endswith(b"\n") else line + self._file.readline()

    def _error(self, message: str) -> FastqError:
        return FastqError(message, self._number - 1)


def _decode(line: bytes) -> str:
    """Decode a line of ASCII.

    Raises:
        FastqError: the line is not ASCII.
    """
    try:
        return line.decode("ascii")
    except UnicodeDecodeError:
        raise FastqError("Non-ASCII characters found in record.", None) from None


class _UnreadLines:
    """Reads a file without the blank lines after the last record.

    Line ends are stored until other bytes follow. At the end of the file they are returned one by
    one until one of them completes a record; the remaining ones are blank lines. Only dnaio's
    record count shows which these are, because a record without bases itself ends with a blank
    line.

    The object also stores the bytes that dnaio has read but not parsed yet. Their number follows
    from the free bytes of dnaio's buffer, which are the size that it requests.

    Attributes:
        reader: the dnaio reader that reads this object and counts the records; None at first.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._held = b""  # Bytes that were read and not yet returned.
        self._is_at_end = False
        self._num_before: int | None = None  # The records before the line ends at the end.
        self.reader: dnaio.FastqReader | None = None
        self._capacity = BUFFER_BYTES  # Of dnaio's buffer, which holds the next two.
        self._before = b""
        self._part = b""  # What the last call returned.
        self._num_parsed = 0  # The records before them.

    def read(self, size: int) -> bytes:
        """Read at most `size` bytes; b"" at the end."""
        self._forget_parsed(size)
        data = self._held
        while not (num_bytes := _text_bytes(data)) and not self._is_at_end:
            if len(data) > MAX_BLANK_BYTES:
                num_bytes = len(data)
                break
            more = self._file.read(max(size, READ_BYTES))
            self._is_at_end = not more
            data += more
        if not num_bytes:
            num_bytes = self._end_bytes(data)
        part = data[: min(num_bytes, size)]
        self._held = data[len(part) :]
        self._part = part
        return part

    def take(self, num_records: int) -> bytes:
        """Return the bytes that were read, without the first `num_records` records of the file."""
        data = self._before + self._part
        begin = 0
        for _ in range(LINES * (num_records - self._num_parsed)):
            begin = data.index(b"\n", begin) + 1
        return data[begin:] + self._held

    def _forget_parsed(self, size: int) -> None:
        """Drop the bytes that dnaio must have parsed if its buffer has room for `size` bytes."""
        num_parsed = self._num_records()
        in_buffer = len(self._before) + len(self._part)
        if in_buffer == self._capacity and num_parsed == self._num_parsed:
            self._capacity *= 2
        num_bytes = self._capacity - size
        if num_bytes > len(self._part):
            self._part = self._before + self._part
        self._before = self._part[len(self._part) - num_bytes :]
        self._part = b""
        self._num_parsed = num_parsed

    def _num_records(self) -> int:
        return 0 if self.reader is None else self.reader.number_of_records

    def _end_bytes(self, data: bytes) -> int:
        """Return the number of bytes of the next line end; 0 if the last one completed a record."""
        num_records = self._num_records()
        if self._num_before is None:
            self._num_before = num_records
        elif num_records > self._num_before:
            return 0
        return data.find(b"\n") + 1 or len(data)


def _text_bytes(data: bytes) -> int:
    """Return the number of bytes before the trailing line ends."""
    near = data[-NEAR_BYTES:]
    if text := near.rstrip(LINE_ENDS):
        return len(data) - len(near) + len(text)
    return len(data.rstrip(LINE_ENDS))
