"""Parses FASTA in chunks, so that no record needs to be in memory whole.

    bytes ─► whole lines ─► ">" at the start of a line ─► a name
                         └► everything else ─► bases, without line ends

Lines end with LF, CR LF or CR, as dnaio has it; a test compares the two. Empty lines and lines that
begin with "#" are skipped. Names are UTF-8, or Latin-1 where they are not valid UTF-8; dnaio
accepts only ASCII. White space is never part of a sequence. Data that hold only letters and line
ends are parsed many lines at a time, everything else line by line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from service.seqio.sequence_checks import FEW_BYTES, check_bases, is_plain

READ_BYTES = 1 << 18
MAX_HEADER_BYTES = 1 << 20
WHITE = b" \t\n\r\v\f\x1c\x1d\x1e\x1f"  # What str.isspace accepts of ASCII.
MAX_TOKEN_BYTES = 64  # The longest special token, such as <mask>, that is never cut.


Name = str
"""The name of a record; its bases follow as bytes, until the next name."""


def fasta_pieces(read: Callable[[int], Any], first: bytes = b"") -> Iterator[Name | bytes]:
    """Read the names and bases of a file while they arrive.

    Args:
        read: returns at most the given number of bytes, and none at the end.
        first: bytes that were already read from the file.

    Raises:
        ValueError: a sequence holds a byte that is not a base, bases come before the first name, or
            a header is longer than MAX_HEADER_BYTES.
    """
    parser = _Parser(first)
    while data := bytes(read(READ_BYTES)):
        yield from parser.add(data)
    yield from parser.end()


class _Parser:
    """Holds the bytes that were read and not yet returned, and their place in a record."""

    def __init__(self, rest: bytes) -> None:
        self._rest = rest
        self._in_line = False  # The rest continues a line of bases whose start was returned.
        self._has_name = False
        self._number = 0  # Of the record, from 1.

    def add(self, data: bytes) -> Iterator[Name | bytes]:
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
        """Return bases of a long line that has not ended; white space at its end stays."""
        if not self._in_line:
            self._rest = self._rest.lstrip(WHITE)
            if self._rest.startswith((b">", b"#")):
                if len(self._rest) > MAX_HEADER_BYTES:
                    raise ValueError(f"a header has more than {MAX_HEADER_BYTES} bytes")
                return
        part = self._rest.rstrip(WHITE)
        if (token := part.rfind(b"<", -MAX_TOKEN_BYTES)) >= 0:
            part = part[:token]
        if part:
            yield self._check_bases(part)
            self._rest, self._in_line = self._rest[len(part) :], True

    def _whole_lines(self, data: bytes) -> Iterator[Name | bytes]:
        begin = 0
        if self._in_line and data:
            begin = min(
                (place for place in (data.find(b"\n"), data.find(b"\r")) if place >= 0),
                default=len(data),
            )
            if part := data[:begin].rstrip():
                yield self._check_bases(part)
            self._in_line = False
        header = _next_header(data, begin)
        if header > begin:
            yield from self._bases(data[begin:header])
        if data.count(b">", header) * FEW_BYTES > len(data):
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
        """Parse whole records, many at a time; None if a line must be parsed on its own."""
        if b"\r" in data or not data.isascii():
            return None
        records = [part.partition(b"\n") for part in data[1:].split(b"\n>")]
        if not is_plain(b"".join([bases for _, _, bases in records]).replace(b"\n", b"")):
            return None
        return self._numbered(records)

    def _numbered(self, records: list[tuple[bytes, bytes, bytes]]) -> Iterator[Name | bytes]:
        self._has_name = True
        self._number += len(records)
        for header, _, bases in records:
            yield _name(header.decode())
            if bases:
                yield bases.replace(b"\n", b"")

    def _bases(self, data: bytes) -> Iterator[Name | bytes]:
        """Parse lines of bases; a header behind white space is found as well."""
        joined = data.replace(b"\n", b"")
        if b"\r" in joined:
            if joined.count(b"\r") != data.count(b"\r\n"):
                yield from self._line_by_line(data)
                return
            joined = joined.replace(b"\r", b"")
        if not joined:
            return
        if is_plain(joined):
            yield self._checked(joined)
        else:
            yield from self._line_by_line(data)

    def _line_by_line(self, data: bytes) -> Iterator[Name | bytes]:
        """Parse line by line."""
        for line in data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
            text = line.decode(errors="replace").strip()
            if text.startswith(">"):
                yield self._name(line)
            elif text and not text.startswith("#"):
                yield self._check_bases(text.encode())

    def _name(self, line: bytes) -> Name:
        self._has_name = True
        self._number += 1
        try:
            text = line.decode()
        except UnicodeDecodeError:
            text = line.decode("latin-1")
        return _name(text.strip()[1:])

    def _checked(self, part: bytes) -> bytes:
        if not self._has_name:
            raise ValueError("bases come before the first '>'")
        if not part.isascii():
            raise ValueError(f"a sequence is not ASCII (record {self._number})")
        return part

    def _check_bases(self, part: bytes) -> bytes:
        """Check bytes that may hold more than bases, and remove white space."""
        data = self._checked(part)
        try:
            return check_bases(data)
        except ValueError as error:
            raise ValueError(f"the sequence {error} (record {self._number})") from error


def _name(header: str) -> Name:
    """Return the part of a header before the first white space."""
    return "" if not header or header[0].isspace() else header.split(None, 1)[0]


def _next_header(data: bytes, begin: int) -> int:
    """Find the start of the next header line, or the end; a line starts at `begin`."""
    place = data.find(b">", begin)
    while place > begin and data[place - 1] not in b"\r\n":
        place = data.find(b">", place + 1)
    return len(data) if place < 0 else place
