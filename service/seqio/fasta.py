"""Parses FASTA in chunks, so that no whole record needs to be in memory.

    bytes ─► whole lines ─► ">" at the start of a line ─► a name
                         └► everything else ─► bases, without line ends

Lines end with LF, CR LF or CR, as in dnaio; a test compares the two. Empty lines and lines that
begin with "#" are skipped, as are lines that begin with ";" before the first name. Names are
decoded as UTF-8, or as Latin-1 if they are not valid UTF-8; dnaio accepts only ASCII. White space
is never part of a sequence. Data that contain only letters and line ends are parsed many lines at a
time, all other data line by line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from service.seqio.sequence_checks import BadRecord, check_bases, is_plain

READ_BYTES = 1 << 18
MAX_HEADER_BYTES = 1 << 20
SHORT_RECORD_BYTES = 4096  # Records that have fewer bytes on average are parsed many at a time.
WHITE = b" \t\n\r\v\f\x1c\x1d\x1e\x1f"  # What str.isspace accepts of ASCII.
MAX_TOKEN_BYTES = 64  # The longest special token, such as <mask>, that is never cut.

Name = str
"""The name of a record. The items after it are its bases as bytes, up to the next name."""


def fasta_pieces(read: Callable[[int], Any], first: bytes = b"") -> Iterator[Name | bytes]:
    """Yield the names and bases of a file as they are read.

    Args:
        read: returns at most the given number of bytes, and b"" at the end.
        first: bytes that have already been read from the file.

    Raises:
        ValueError: a sequence contains a byte that is not a base, bases precede the first name, or
            a header is longer than MAX_HEADER_BYTES.
    """
    parser = _Parser(first)
    while data := bytes(read(READ_BYTES)):
        yield from parser.add(data)
    yield from parser.end()


class _Parser:
    """Stores bytes that have been read and not yet returned, and their position in a record."""

    def __init__(self, rest: bytes) -> None:
        self._rest = rest
        self._in_line = False  # The rest continues a line of bases whose start was returned.
        self._has_name = False
        self._number = 0  # The number of the record, from 1.

    def add(self, data: bytes) -> Iterator[Name | bytes]:
        """Parse the next bytes of the file; store an incomplete last line for the next call."""
        data = self._rest + data
        # A CR at the end may belong to an LF that has not arrived.
        end = max(data.rfind(b"\n"), data.rfind(b"\r", 0, len(data) - 1)) + 1
        yield from self._whole_lines(data[:end])
        self._rest = data[end:]
        if len(self._rest) > READ_BYTES:
            yield from self._start_of_long_line()

    def end(self) -> Iterator[Name | bytes]:
        """Parse the remaining bytes; called at the end of the file."""
        yield from self._whole_lines(self._rest)

    def _start_of_long_line(self) -> Iterator[bytes]:
        """Return bases of a long incomplete line; trailing white space is stored."""
        if not self._in_line:
            self._rest = self._rest.lstrip(WHITE)
            if self._rest.startswith((b">", b"#")):
                if len(self._rest) > MAX_HEADER_BYTES:
                    message = f"a header has more than {MAX_HEADER_BYTES} bytes"
                    raise BadRecord(message, self._number + 1)
                return
        part = self._rest.rstrip(WHITE)
        if (token := part.rfind(b"<", -MAX_TOKEN_BYTES)) >= 0:
            part = part[:token]
        if part:
            yield self._check_bases(part)
            self._rest = self._rest[len(part) :]
            self._in_line = True

    def _whole_lines(self, data: bytes) -> Iterator[Name | bytes]:
        """Parse whole lines; the first one may continue a line of bases."""
        begin = 0
        if self._in_line and data:
            line_ends = [place for place in (data.find(b"\n"), data.find(b"\r")) if place >= 0]
            begin = min(line_ends, default=len(data))
            if part := data[:begin].rstrip():
                yield self._check_bases(part)
            self._in_line = False
        header = _next_header(data, begin)
        if header > begin:
            yield from self._bases(data[begin:header])
        if data.count(b">", header) * SHORT_RECORD_BYTES > len(data):
            if (records := self._parse_short_records(data[header:])) is not None:
                yield from records
                return
        while header < len(data):
            begin = data.find(b"\n", header) + 1 or len(data)
            line = data[header:begin]
            if b"\r" in line.rstrip():
                yield from self._line_by_line(line)
            else:
                yield self._name(line)
            header = _next_header(data, begin)
            if header > begin:
                yield from self._bases(data[begin:header])

    def _parse_short_records(self, data: bytes) -> Iterator[Name | bytes] | None:
        """Parse whole records, many at a time; None if the lines must be parsed one by one."""
        if b"\r" in data or not data.isascii():
            return None
        records = [part.partition(b"\n") for part in data[1:].split(b"\n>")]
        if not is_plain(b"".join([bases for _, _, bases in records]).replace(b"\n", b"")):
            return None
        return self._names_and_bases(records)

    def _names_and_bases(self, records: list[tuple[bytes, bytes, bytes]]) -> Iterator[Name | bytes]:
        """Yield the name and the bases of records: header, line end and lines of each."""
        self._has_name = True
        self._number += len(records)
        for header, _, bases in records:
            yield _name(header.decode())
            if bases:
                yield bases.replace(b"\n", b"")

    def _bases(self, data: bytes) -> Iterator[Name | bytes]:
        """Parse lines of bases, many at a time if possible; a header may follow white space."""
        joined = data.replace(b"\n", b"")
        if b"\r" in joined:
            if joined.count(b"\r") != data.count(b"\r\n"):
                yield from self._line_by_line(data)
                return
            joined = joined.replace(b"\r", b"")
        if not joined:
            return
        if is_plain(joined):
            self._check_place(joined)
            yield joined
        else:
            yield from self._line_by_line(data)

    def _line_by_line(self, data: bytes) -> Iterator[Name | bytes]:
        """Parse lines one by one: headers, bases and comments."""
        for line in data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
            text = line.decode(errors="replace").strip()
            if text.startswith(">"):
                yield self._name(line)
            elif text and not text.startswith("#" if self._has_name else ("#", ";")):
                yield self._check_bases(text.encode())

    def _name(self, line: bytes) -> Name:
        self._has_name = True
        self._number += 1
        try:
            text = line.decode()
        except UnicodeDecodeError:
            text = line.decode("latin-1")
        return _name(text.strip()[1:])

    def _check_place(self, part: bytes) -> None:
        """Raise ValueError if bases precede the first name or are not ASCII."""
        if not self._has_name:
            raise ValueError("bases come before the first '>'")
        if not part.isascii():
            raise BadRecord("a sequence is not ASCII", self._number)

    def _check_bases(self, part: bytes) -> bytes:
        """Return the bases of a part without white space; raise BadRecord for other bytes."""
        self._check_place(part)
        try:
            return check_bases(part)
        except ValueError as error:
            raise BadRecord(f"the sequence {error}", self._number) from error


def _name(header: str) -> Name:
    """Return the part of a header, without its ">", before the first white space."""
    return "" if not header or header[0].isspace() else header.split(None, 1)[0]


def _next_header(data: bytes, begin: int) -> int:
    """Return where the next header line begins, at or after `begin`; without one, the end."""
    place = data.find(b">", begin)
    while place > begin and data[place - 1] not in b"\r\n":
        place = data.find(b">", place + 1)
    return len(data) if place < 0 else place
