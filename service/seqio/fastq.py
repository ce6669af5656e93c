"""FASTQ by dnaio, with blank lines at its end, which dnaio takes for a record that was cut off."""

from __future__ import annotations

from typing import BinaryIO, cast

import dnaio

LINE_ENDS = b"\r\n"
MAX_BLANK_BYTES = 1 << 20
READ_BYTES = 1 << 16
NEAR_BYTES = 64


def open_fastq(file: BinaryIO) -> dnaio.FastqReader:
    """Make dnaio's reader of a file, which may end with blank lines.

    Raises:
        dnaio.FileFormatError: the first record is none; later ones say so when they are read.
    """
    lines = _WithoutBlankEnd(file)
    lines.reader = dnaio.FastqReader(cast("BinaryIO", lines))
    return lines.reader


class _WithoutBlankEnd:
    """A file that ends with its last record.

    Line ends are held back until something follows them. At the file's end they are given out one
    by one, until one has ended a record: what is left then is blank. A record without bases ends
    with a blank line of its own, which cannot be told from its bytes alone.

    Attributes:
        reader: who reads it, and counts the records; None: it has not read one yet.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._held, self._is_at_end = file, b"", False
        self._num_before: int | None = None  # The records before the first line end of the end.
        self.reader: dnaio.FastqReader | None = None

    def read(self, size: int) -> bytes:
        """At most so many bytes; none at the end."""
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
        return part

    def _end_bytes(self, data: bytes) -> int:
        """Of the next line end at the file's end; 0 where a record has ended with the last one."""
        num_records = 0 if self.reader is None else self.reader.number_of_records
        if self._num_before is None:
            self._num_before = num_records
        elif num_records > self._num_before:
            return 0
        return data.find(b"\n") + 1 or len(data)


def _text_bytes(data: bytes) -> int:
    """How many bytes there are before the line ends at the end."""
    near = data[-NEAR_BYTES:]
    if text := near.rstrip(LINE_ENDS):
        return len(data) - len(near) + len(text)
    return len(data.rstrip(LINE_ENDS))
