"""Reads named texts from files of text, lines, FASTA or FASTQ, plain or gzip.

Memory is bounded, unless a single text is long. Block gzip (.bgz) is read as gzip with many
members. White space inside a record is never part of its sequence.
"""

from __future__ import annotations

import gzip
import logging
import os
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from io import BufferedReader
from typing import BinaryIO, Literal, NamedTuple, cast, get_args

from isal import isal_zlib

from service.seqio.bgzf import UnpackedGzip
from service.seqio.fasta import Name, fasta_pieces
from service.seqio.fastq import read_fastq
from service.seqio.format_detection import FORMATS, check_no_header, check_text, detect_format
from service.seqio.sequence_checks import BadRecord, check_bases, is_plain
from vocabularies.batch.batch import Batch

logger = logging.getLogger(__name__)
Reading = Literal["auto", "text", "whole", "lines", "sequences"]
GZIP_ERRORS: tuple[type[Exception], ...] = (
    EOFError,
    gzip.BadGzipFile,
    zlib.error,
    cast("type[Exception]", isal_zlib.error),
)
CONTENT_ERRORS: tuple[type[Exception], ...] = (ValueError, *GZIP_ERRORS)

GZIP_MAGIC = b"\x1f\x8b"
DETECTING = ("auto", "sequences")  # The readings that detect the format.
BATCH_BYTES = 4 * 1024 * 1024
RECORDS_PER_CHECK = 256  # Few enough that their bases stay in the processor's cache.
UNPACKED_BYTES = 128 * 1024
BATCH_RECORDS = 65536
TEXT_HINT = "this format follows from its first byte; --whole or --lines reads the file as text"
STDIN = "-"


class BadRecords(ValueError):
    """A file begins like FASTA, FASTQ or gzip, but is damaged or has another format."""


class NamedBatch(NamedTuple):
    """A batch of texts from one file, and the name of each text."""

    names: list[str]
    texts: Batch


class Record(NamedTuple):
    """One text to encode.

    Attributes:
        name: the identifier of a record, the path of a file, or path and line; "" for a single
            unnamed text.
        data: the bytes of the text, which need not be UTF-8.
    """

    name: str
    data: bytes


def read_records(paths: Sequence[str], reading: Reading) -> Iterator[Record]:
    """Yield every text of some files, in order; "-" is stdin.

    Args:
        paths: the paths of the files.
        reading: how to read a file. "auto": as FASTA if the first byte is ">", as FASTQ if it is
            "@", else as one text; an empty file has no text, and an archive, or content that only
            later looks like FASTA or FASTQ, is refused. "text": as one text, with a warning if
            "auto" would read it differently; archives are refused. "whole": always as one text.
            "lines": one text per line, without the line end. "sequences": FASTA and FASTQ as with
            "auto", and other files by lines, none of which may begin with ">".

    Raises:
        OSError: a file cannot be read.
        TypeError: `paths` is a single path instead of a list.
        ValueError: stdin is named twice or is closed, or `reading` is unknown.
        BadRecords: a file begins like FASTA, FASTQ or gzip, but is damaged or has another format;
            the message names the file, the record and, if known, the line.
    """
    for file in _open_all(paths, reading):
        with _naming_errors(file.name, file.format):
            if file.format is not None:
                for batch in sequence_batches(file.stream, file.format, BATCH_BYTES, BATCH_RECORDS):
                    for row, name in enumerate(batch.names):
                        yield Record(name, batch.texts.row_bytes(row))
            else:
                yield from _texts(file, reading)


def read_batches(
    paths: Sequence[str],
    reading: Reading = "auto",
    *,
    max_bytes: int = BATCH_BYTES,
    max_records: int = BATCH_RECORDS,
) -> Iterator[NamedBatch]:
    """Yield the texts of some files in order, in batches with the names of the texts.

    Args:
        paths: files, as for `read_records`; all texts of a batch come from one file.
        reading: as for `read_records`.
        max_bytes: the most bytes of a batch; a longer text is a batch of its own.
        max_records: the most texts of a batch.

    Raises:
        OSError, TypeError, ValueError, BadRecords: as `read_records`; the batches before the
            damaged place are yielded first.
        ValueError: max_bytes or max_records is below 1.

    The memory in use is at most about three batches, or three times the longest text.
    """
    if max_bytes < 1 or max_records < 1:
        raise ValueError(f"max_bytes is {max_bytes}, max_records {max_records}; the least is 1")
    for file in _open_all(paths, reading):
        with _naming_errors(file.name, file.format):
            if file.format is not None:
                yield from sequence_batches(file.stream, file.format, max_bytes, max_records)
            else:
                for records in batches(_texts(file, reading), max_bytes, max_records):
                    names = [record.name for record in records]
                    yield NamedBatch(names, Batch.from_bytes([record.data for record in records]))


class _OpenFile(NamedTuple):
    """A file that is being read.

    Attributes:
        stream: the decompressed content.
        name: the printable name of the file; "" if stdin is the only file.
        format: "fasta" or "fastq"; None: text.
    """

    stream: BufferedReader
    name: str
    format: str | None


def _open_all(paths: Sequence[str], reading: Reading) -> Iterator[_OpenFile]:
    """Open the files one after another; each is closed before the next one is opened."""
    if isinstance(paths, str | bytes):
        raise TypeError(f"paths is a {type(paths).__name__}, not several paths")
    if reading not in get_args(Reading):
        raise ValueError(f"reading is {reading!r}, none of {', '.join(get_args(Reading))}")
    if list(paths).count(STDIN) > 1:
        raise ValueError("stdin can be read only once")
    for path in paths:
        with nullcontext(standard_input()) if path == STDIN else open(path, "rb") as stream:
            name = "" if path == STDIN and len(paths) == 1 else path
            # A path that is not UTF-8 still needs a printable name.
            name = os.fsencode(name).decode(errors="replace")
            with _naming_errors(name, None):
                if stream.peek(2)[:2] == GZIP_MAGIC:
                    unpacked = UnpackedGzip(stream, name or "stdin")
                    stream = BufferedReader(unpacked, UNPACKED_BYTES)
                format = detect_format(stream.peek(1)) if reading in DETECTING else None
                if reading == "text":
                    check_text(stream.peek(1))
                    _warn_of_format(stream.peek(1)[:1], name)
            yield _OpenFile(stream, name, format)


def _warn_of_format(first: bytes, name: str) -> None:
    if other := FORMATS.get(first):
        message = "%s: begins with %r and is read as text; --sequences reads %s"
        logger.warning(message, name or "stdin", first.decode(), other.upper())


def standard_input() -> BufferedReader:
    """Return the binary stream of stdin.

    Raises:
        ValueError: stdin is closed, which is not the same as empty.
    """
    if sys.stdin is None:
        raise ValueError("stdin is closed")
    return cast("BufferedReader", sys.stdin.buffer)


@contextmanager
def _naming_errors(name: str, format: str | None) -> Iterator[None]:
    """Convert errors about a file's content to BadRecords with the name of the file.

    Raises:
        BadRecords: the code in the `with` block raised an error about the content.
    """
    try:
        yield
    except CONTENT_ERRORS as error:
        if isinstance(error, GZIP_ERRORS):  # In all readings.
            raise BadRecords(f"{name or 'stdin'}: damaged gzip: {error}") from error
        hint = f" ({TEXT_HINT})" if format is not None else ""
        raise BadRecords(f"{name or 'stdin'}: {error}{hint}") from error


def _texts(file: _OpenFile, reading: Reading) -> Iterator[Record]:
    """Read a text file as one record, or as one record per line."""
    if reading in ("auto", "text", "whole"):
        data = file.stream.read()
        if reading == "auto":
            check_no_header(data)
            if not data:
                return
        yield Record(file.name, data)
        return
    for number, line in enumerate(file.stream, 1):
        if reading == "sequences" and line.lstrip().startswith(b">"):
            raise ValueError(
                f"line {number} begins with '>', which a FASTA file has as its first byte"
            )
        name = f"{file.name or STDIN}:{number}"
        yield Record(name, line.removesuffix(b"\n").removesuffix(b"\r"))


def _read_fasta(file: BinaryIO) -> Iterator[tuple[str, str]]:
    """Yield the name and the checked sequence of each record."""
    name: str | None = None
    bases: list[bytes] = []
    with closing(file):
        for piece in fasta_pieces(file.read):
            if not isinstance(piece, Name):
                bases.append(piece)
                continue
            if name is not None:
                yield name, b"".join(bases).decode()
            name, bases = piece, []
    if name is not None:
        yield name, b"".join(bases).decode()


def sequence_batches(
    file: BinaryIO,
    format: str,
    max_bytes: int,
    max_records: int,
    max_record_bytes: int | None = None,
) -> Iterator[NamedBatch]:
    """Yield the sequences of one FASTA or FASTQ file, in batches with the names of the sequences.

    Args:
        file: the content of the file; it is closed at its end.
        format: "fasta" or "fastq".
        max_bytes: the most bases of a batch; a longer sequence is a batch of its own.
        max_records: the most sequences of a batch.
        max_record_bytes: the most bases of a multi-line FASTQ record; None: no limit.

    Raises:
        ValueError: the file is not valid in its format; the message names the record.
        RecordTooLong: a multi-line FASTQ record is too long.
    """
    # Keep no record objects: collecting that garbage takes longer than the parsing.
    names: list[str] = []
    rows: list[str] = []
    num_bytes, number = 0, 1
    is_fastq = format == "fastq"
    for name, row in read_fastq(file, max_record_bytes) if is_fastq else _read_fasta(file):
        if rows and (num_bytes + len(row) > max_bytes or len(rows) >= max_records):
            yield NamedBatch(names, Batch(_check_rows(rows, number) if is_fastq else rows))
            number += len(rows)
            names, rows, num_bytes = [], [], 0
        names.append(name)
        rows.append(row)
        num_bytes += len(row)
    if rows:
        yield NamedBatch(names, Batch(_check_rows(rows, number) if is_fastq else rows))


def _check_rows(rows: list[str], number: int) -> list[str]:
    """Check sequences and return them without white space; errors count from record `number`."""
    groups = (
        rows[begin : begin + RECORDS_PER_CHECK] for begin in range(0, len(rows), RECORDS_PER_CHECK)
    )
    if all(is_plain("".join(group).encode()) for group in groups):
        return rows
    checked: list[str] = []
    for row in rows:
        try:
            checked.append(check_bases(row.encode()).decode())
        except ValueError as error:
            raise BadRecord(f"the sequence {error}", number + len(checked)) from error
    return checked


def batches(records: Iterable[Record], max_bytes: int, max_records: int) -> Iterator[list[Record]]:
    """Group consecutive records up to a size; a longer record is a batch of its own."""
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
