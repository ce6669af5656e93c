"""Named texts out of files: text, lines, FASTA and FASTQ, gzip or not, in bounded memory.

Knows nothing about vocabularies or engines; the command line reads its inputs here, and whoever
wants the sequences of a file in batches. gzip takes in block gzip (.bgz), whose blocks are its
members. White space is no part of a sequence, wherever it stands in a record.
"""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from io import BufferedReader
from typing import BinaryIO, Literal, NamedTuple, cast, get_args

import dnaio
from isal import isal_zlib

from service.seqio.bgzf import UnpackedGzip
from service.seqio.fasta import Name, fasta_pieces
from service.seqio.fastq import open_fastq
from service.seqio.format_detection import format_of
from service.seqio.sequence_checks import bases_of, is_plain
from vocabularies.batch.batch import Batch

Reading = Literal["auto", "whole", "lines", "sequences"]
DAMAGED: tuple[type[Exception], ...] = (
    EOFError,
    gzip.BadGzipFile,
    zlib.error,
    cast("type[Exception]", isal_zlib.error),
)
WRONG: tuple[type[Exception], ...] = (dnaio.FileFormatError, ValueError, *DAMAGED)

GZIP_MAGIC = b"\x1f\x8b"
FOUND = ("auto", "sequences")  # Readings that look at the first bytes.
BATCH_BYTES = 4 * 1024 * 1024
FEW_RECORDS = 256  # So that they stay in a cache.
UNPACKED_BYTES = 128 * 1024
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
            one text, unless what follows looks like FASTA, FASTQ or an archive; "whole": always
            one text; "lines": each line is one, without its line end; "sequences": as "auto", and
            "lines" where that finds no records; none of these may begin with ">".

    Raises:
        OSError: a file cannot be read.
        TypeError: paths is one path.
        ValueError: stdin is named twice, or closed, or the reading is none of these.
        BadRecords: a file's content is not what it begins as; the message has the file, the record
            and, where it is known, the line.
    """
    for file, name, format in _opened(paths, reading):
        with _explained(name, format):
            if format is not None:
                for names, batch in sequence_batches(file, format, BATCH_BYTES, BATCH_RECORDS):
                    for row, id in enumerate(names):
                        yield Record(id, batch.row_bytes(row))
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
        OSError, TypeError, ValueError, BadRecords: as `read_records`; the batches before it are
            given out. ValueError, too, where a batch would have no text.

    Memory is bounded by about three batches, or three of the longest text where that is more.
    """
    if max_bytes < 1 or max_records < 1:
        raise ValueError(f"max_bytes is {max_bytes}, max_records {max_records}; the least is 1")
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
    if isinstance(paths, str | bytes):
        raise TypeError(f"paths is a {type(paths).__name__}, not several paths")
    if reading not in get_args(Reading):
        raise ValueError(f"reading is {reading!r}, none of {', '.join(get_args(Reading))}")
    if list(paths).count(STDIN) > 1:
        raise ValueError("stdin can be read only once")
    for path in paths or (STDIN,):
        with nullcontext(standard_input()) if path == STDIN else open(path, "rb") as file:
            # A path that is no UTF-8 still gets a name that can be printed.
            name = "" if path == STDIN and len(paths) <= 1 else path
            shown = os.fsencode(name).decode(errors="replace")
            with _explained(shown, None):
                if file.peek(2)[:2] == GZIP_MAGIC:
                    unpacked = UnpackedGzip(file, shown or "stdin")
                    file = BufferedReader(unpacked, UNPACKED_BYTES)
                format = format_of(file.peek(1)) if reading in FOUND else None
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
        if isinstance(error, DAMAGED):  # However it is read.
            raise BadRecords(f"{name or 'stdin'}: damaged gzip: {error}") from error
        hint = f" ({TEXT_HINT})" if format is not None else ""
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


def _fasta(file: BinaryIO) -> Iterator[tuple[str, str]]:
    """Names and sequences."""
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


def _fastq(file: BinaryIO) -> Iterator[tuple[str, str]]:
    """Names and sequences."""
    number = 1
    try:
        # dnaio's reader closes the file when it is collected; done here, it comes at a known time.
        with closing(file), open_fastq(file) as records:
            for record in records:
                number += 1
                yield record.id, record.sequence
    except dnaio.FileFormatError as error:
        behind = " or behind it" if error.line is None else ""
        raise ValueError(f"{error} (record {number}{behind})") from error


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
    num_bytes, number = 0, 1
    read, checked = (_fastq, _bases) if format == "fastq" else (_fasta, _as_read)
    for name, row in read(file):
        if rows and (num_bytes + len(row) > max_bytes or len(rows) >= max_records):
            yield names, Batch(checked(rows, number))
            number += len(rows)
            names, rows, num_bytes = [], [], 0
        names.append(name)
        rows.append(row)
        num_bytes += len(row)
    if rows:
        yield names, Batch(checked(rows, number))


def _as_read(rows: list[str], _: int) -> list[str]:
    """Sequences that were looked at while they were read."""
    return rows


def _bases(rows: list[str], number: int) -> list[str]:
    """Sequences without white space; the first one is record `number`."""
    some = (rows[begin : begin + FEW_RECORDS] for begin in range(0, len(rows), FEW_RECORDS))
    if all(is_plain("".join(each).encode()) for each in some):
        return rows
    kept: list[str] = []
    for row in rows:
        try:
            kept.append(bases_of(row.encode()).decode())
        except ValueError as error:
            raise ValueError(f"the sequence {error} (record {number + len(kept)})") from error
    return kept


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
