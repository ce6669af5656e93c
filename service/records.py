"""Named texts out of files: text, lines, FASTA and FASTQ, gzip or not, in bounded memory.

Knows nothing about vocabularies or engines; the command line reads its inputs here.
"""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from io import BufferedReader
from typing import BinaryIO, Literal, cast

import dnaio

__all__ = ["BadRecords", "Reading", "Record", "batches", "read_records", "standard_input"]

Reading = Literal["auto", "whole", "lines"]
GZIP_MAGIC = b"\x1f\x8b"
FORMATS = {b">": "fasta", b"@": "fastq"}
TEXT_HINT = "read so because of its first byte; as text with --whole or --lines"
STDIN = "-"


class BadRecords(ValueError):
    """A file is not the FASTA, FASTQ or gzip that it begins as."""


@dataclass(frozen=True, slots=True)
class Record:
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
            one text; "whole": always one text; "lines": each line is one, without its line end.

    Raises:
        OSError: a file cannot be read.
        ValueError: stdin is named twice, or closed.
        BadRecords: a file's content is not what it begins as.
    """
    if list(paths).count(STDIN) > 1:
        raise ValueError("stdin can be read only once")
    for path in paths or (STDIN,):
        with ExitStack() as stack:
            if path == STDIN:
                file = standard_input()
            else:
                file = stack.enter_context(open(path, "rb"))
            if file.peek(2)[:2] == GZIP_MAGIC:
                unpacked = stack.enter_context(gzip.GzipFile(fileobj=file))
                file = BufferedReader(unpacked)
            name = "" if path == STDIN and len(paths) <= 1 else path
            # A path that is no UTF-8 still gets a name that can be printed.
            shown = os.fsencode(name).decode(errors="replace")
            yield from _of_file(file, shown, reading)


def standard_input() -> BufferedReader:
    """The bytes of stdin.

    Raises:
        ValueError: it is closed, which is not the same as empty.
    """
    if sys.stdin is None:
        raise ValueError("stdin is closed")
    return cast("BufferedReader", sys.stdin.buffer)


def _of_file(file: BufferedReader, name: str, reading: Reading) -> Iterator[Record]:
    format = None
    try:
        if reading == "auto":
            format = FORMATS.get(file.peek(1)[:1])
        if format is not None:
            yield from _of_sequences(file, format)
        elif reading == "lines":
            for number, line in enumerate(file, 1):
                yield Record(
                    f"{name or STDIN}:{number}", line.removesuffix(b"\n").removesuffix(b"\r")
                )
        else:
            yield Record(name, file.read())
    except (dnaio.FileFormatError, EOFError, gzip.BadGzipFile, zlib.error, ValueError) as error:
        # Damaged gzip is damaged however it is read.
        is_damaged = isinstance(error, (EOFError, gzip.BadGzipFile, zlib.error))
        hint = f" ({TEXT_HINT})" if format is not None and not is_damaged else ""
        raise BadRecords(f"{name or 'stdin'}: {error}{hint}") from error


def _of_sequences(file: BinaryIO, format: str) -> Iterator[Record]:
    # dnaio's reader closes the file when it is collected; done here, it comes at a known time.
    with dnaio.open(file, fileformat=format) as records, closing(file):
        for record in records:
            yield Record(
                record.name.split(maxsplit=1)[0] if record.name else "", record.sequence.encode()
            )


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
