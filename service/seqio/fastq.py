"""Reads FASTQ by dnaio, also with blank lines at its end, which dnaio alone would refuse."""

from __future__ import annotations

from typing import BinaryIO, cast

from service.core.extras import check_installed

try:
    import dnaio

    FastqError = dnaio.FileFormatError
except ModuleNotFoundError:  # `open_fastq` says so.

    class FastqError(Exception):  # type: ignore[no-redef]
        """Stands for dnaio's error where dnaio is not installed."""


LINE_ENDS = b"\r\n"
MAX_BLANK_BYTES = 1 << 20
READ_BYTES = 1 << 16
NEAR_BYTES = 64  # A search from the end looks at so many bytes first.


def open_fastq(file: BinaryIO) -> dnaio.FastqReader:
    """Make dnaio's reader of a file that may end with blank lines.

    Raises:
        NotInstalled: dnaio is not installed.
        FastqError: the first record is damaged; a later one raises when it is read.
    """
    check_installed("FASTQ files", "dna")
    lines = _WithoutBlankEnd(file)
    lines.reader = dnaio.FastqReader(cast("BinaryIO", lines))
    return lines.reader


class _WithoutBlankEnd:
    """Reads a file without the blank lines behind its last record.

    Line ends are held back until other bytes follow. At the end of the file they are returned one
    by one until one of them ends a record; the remaining ones are blank lines. Only the reader can
    tell, because a record without bases ends with a blank line of its own.

    Attributes:
        reader: the reader that dnaio made of this object, which counts the records; None at first.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._held = b""  # Bytes that were read and not yet returned.
        self._is_at_end = False
        self._num_before: int | None = None  # The records before the line ends at the end.
        self.reader: dnaio.FastqReader | None = None

    def read(self, size: int) -> bytes:
        """Read at most `size` bytes; none at the end."""
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
        """Count the bytes of the next line end; 0 if the last one has ended a record."""
        num_records = 0 if self.reader is None else self.reader.number_of_records
        if self._num_before is None:
            self._num_before = num_records
        elif num_records > self._num_before:
            return 0
        return data.find(b"\n") + 1 or len(data)


def _text_bytes(data: bytes) -> int:
    """Count the bytes before the line ends with which the data end."""
    near = data[-NEAR_BYTES:]
    if text := near.rstrip(LINE_ENDS):
        return len(data) - len(near) + len(text)
    return len(data.rstrip(LINE_ENDS))
