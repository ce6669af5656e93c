"""Named texts out of files: text, lines, FASTA and FASTQ, gzip or not, in bounded memory.

Knows nothing about vocabularies or engines; the command line reads its inputs here, and whoever
wants the sequences of a file in batches. gzip takes in block gzip (.bgz), whose blocks are its
members.
"""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from io import BufferedReader
from typing import Any, BinaryIO, Literal, NamedTuple, cast

import dnaio
import xopen

from vocabularies.batch import Batch

__all__ = [
    "BadRecords",
    "Reading",
    "Record",
    "batches",
    "read_batches",
    "read_records",
    "sequence_batches",
    "standard_input",
]

Reading = Literal["auto", "whole", "lines", "sequences"]
DAMAGED: tuple[type[Exception], ...] = (EOFError, gzip.BadGzipFile, zlib.error)
try:  # What xopen unpacks with, where it is installed.
    from isal import isal_zlib
except ImportError:
    pass
else:
    DAMAGED += (cast("type[Exception]", isal_zlib.error),)
WRONG: tuple[type[Exception], ...] = (dnaio.FileFormatError, ValueError, *DAMAGED)

GZIP_MAGIC = b"\x1f\x8b"
FORMATS = {b">": "fasta", b"@": "fastq"}
FOUND = ("auto", "sequences")  # Readings that look at the first byte.
BATCH_BYTES = 4 * 1024 * 1024
BATCH_RECORDS = 65536
TEXT_HINT = "read so because of its first byte; as text with --whole or --lines"
STDIN = "-"


class BadRecords(ValueError):
    """A file is not the FASTA, FASTQ or gzip that it begins as."""


class Record(NamedTuple):
    """One text to encode.

    Attributes:
        name: a record's identifier, a file's path, or path and line; "" for a lone unnamed text.
        data: the text's bytes, which need not be UTF-8.
    """

    name: str
    data: bytes


def read_records(paths: Sequence[str], reading: Reading) -> Iterator[Record]:
    """Every text of some files, in order; "-" is stdin.

    Args:
        paths: files; none means stdin.
        reading: "auto": FASTA where the first byte is ">", FASTQ where it is "@", else the file is
            one text; "whole": always one text; "lines": each line is one, without its line end;
            "sequences": as "auto", and "lines" where that finds no records; none of these may
            begin with ">".

    Raises:
        OSError: a file cannot be read.
        ValueError: stdin is named twice, or closed.
        BadRecords: a file's content is not what it begins as; the message has the file, the record
            and, where it is known, the line.
    """
    for file, name, format in _opened(paths, reading):
        with _explained(name, format):
            if format is not None:
                for record in _sequences(file, format):
                    yield Record(record.id, record.sequence.encode())
            else:
                yield from _texts(file, name, reading)


def read_batches(
    paths: Sequence[str],
    reading: Reading = "auto",
    *,
    max_bytes: int = BATCH_BYTES,
    max_records: int = BATCH_RECORDS,
) -> Iterator[tuple[list[str], Batch]]:
    """The texts of some files in order, many at a time, with their names.

    Args:
        paths: files, as for `read_records`; a batch has texts of one of them.
        reading: as for `read_records`.
        max_bytes: of a batch's texts; a longer one is a batch of its own.
        max_records: texts of a batch.

    Raises:
        OSError, ValueError, BadRecords: as `read_records`; the batches before it are given out.

    Memory is bounded by about three batches, or three of the longest text where that is more.
    """
    for file, name, format in _opened(paths, reading):
        with _explained(name, format):
            if format is not None:
                yield from sequence_batches(file, format, max_bytes, max_records)
            else:
                for records in batches(_texts(file, name, reading), max_bytes, max_records):
                    yield [r.name for r in records], Batch.from_bytes([r.data for r in records])


def _opened(
    paths: Sequence[str], reading: Reading
) -> Iterator[tuple[BufferedReader, str, str | None]]:
    """Each file, unpacked; its name for people; "fasta", "fastq" or None."""
    if list(paths).count(STDIN) > 1:
        raise ValueError("stdin can be read only once")
    for path in paths or (STDIN,):
        with ExitStack() as stack:
            if path == STDIN:
                file = standard_input()
            else:
                file = stack.enter_context(open(path, "rb"))
            # A path that is no UTF-8 still gets a name that can be printed.
            name = "" if path == STDIN and len(paths) <= 1 else path
            shown = os.fsencode(name).decode(errors="replace")
            with _explained(shown, None):
                if file.peek(2)[:2] == GZIP_MAGIC:
                    unpacked = stack.enter_context(xopen.xopen(file, "rb", threads=0))
                    file = BufferedReader(cast("Any", unpacked))
                format = FORMATS.get(file.peek(1)[:1]) if reading in FOUND else None
            yield file, shown, format


def standard_input() -> BufferedReader:
    """The bytes of stdin.

    Raises:
        ValueError: it is closed, which is not the same as empty.
    """
    if sys.stdin is None:
        raise ValueError("stdin is closed")
    return cast("BufferedReader", sys.stdin.buffer)


@contextmanager
def _explained(name: str, format: str | None) -> Iterator[None]:
    """Errors of a file's content as BadRecords that name it.

    Raises:
        BadRecords: the body found something else than the file begins as.
    """
    try:
        yield
    except WRONG as error:
        # Damaged gzip is damaged however it is read.
        is_damaged = isinstance(error, DAMAGED)
        hint = f" ({TEXT_HINT})" if format is not None and not is_damaged else ""
        raise BadRecords(f"{name or 'stdin'}: {error}{hint}") from error


def _texts(file: BufferedReader, name: str, reading: Reading) -> Iterator[Record]:
    if reading in ("auto", "whole"):
        yield Record(name, file.read())
        return
    for number, line in enumerate(file, 1):
        if reading == "sequences" and line.lstrip().startswith(b">"):
            raise ValueError(
                f"line {number} begins with '>', but FASTA does so with its first byte"
            )
        yield Record(f"{name or STDIN}:{number}", line.removesuffix(b"\n").removesuffix(b"\r"))


def _sequences(file: BinaryIO, format: str) -> Iterator[dnaio.SequenceRecord]:
    number = 1
    try:
        # dnaio's reader closes the file when it is collected; done here, it comes at a known time.
        with dnaio.open(file, fileformat=format) as records, closing(file):
            for record in records:
                number += 1
                yield record
    except dnaio.FileFormatError as error:
        raise ValueError(f"{error} (record {number})") from error
    except UnicodeDecodeError as error:  # FASTA is decoded ahead of its records.
        raise ValueError(f"{error} (in record {number} or behind it)") from error


def sequence_batches(
    file: BinaryIO, format: str, max_bytes: int, max_records: int
) -> Iterator[tuple[list[str], Batch]]:
    """The sequences of one FASTA or FASTQ file, many at a time, with their names.

    Raises:
        ValueError: the file is not what `format` says; the message has the record.
    """
    # Records are let go at once: kept, they cost the garbage collector more than the parsing.
    names: list[str] = []
    rows: list[str] = []
    num_bytes = 0
    for record in _sequences(file, format):
        row = record.sequence
        if rows and (num_bytes + len(row) > max_bytes or len(rows) >= max_records):
            yield names, Batch(rows)
            names, rows, num_bytes = [], [], 0
        names.append(record.id)
        rows.append(row)
        num_bytes += len(row)
    if rows:
        yield names, Batch(rows)


def batches(records: Iterable[Record], max_bytes: int, max_records: int) -> Iterator[list[Record]]:
    """Neighbouring records together, up to a size; a longer record is a batch of its own."""
    batch: list[Record] = []
    num_bytes = 0
    for record in records:
        if batch and (num_bytes + len(record.data) > max_bytes or len(batch) >= max_records):
            yield batch
            batch, num_bytes = [], 0
        batch.append(record)
        num_bytes += len(record.data)
    if batch:
        yield batch
