"""FASTA in pieces: a record is given out while it is read, so that none need be held whole.

    bytes ─► whole lines ─► ">" at a line's begin ─► a name
                         └► everything else ─► bases, line ends taken out at once

Lines are what dnaio makes of them, and a test holds both equal: they end with LF, CR LF or CR, and
empty ones do not count, nor do those that begin with "#". Names may be more than ASCII, which dnaio
refuses: they are UTF-8, or Latin-1 where they are not. White space is no part of a sequence,
wherever it stands. What has only letters and line ends, nearly everything, is taken many lines at a
time. Knows no HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from service.seqio.sequence_checks import FEW_BYTES, bases_of, is_plain

READ_BYTES = 1 << 18
MAX_HEADER_BYTES = 1 << 20
WHITE = b" \t\n\r\v\f\x1c\x1d\x1e\x1f"  # Of ASCII, as strings have it.
MAX_TOKEN_BYTES = 64  # Of a special token such as <mask>, which is not cut.


Name = str
"""What a record begins with; its bases follow as bytes, until the next name."""


def fasta_pieces(read: Callable[[int], Any], first: bytes = b"") -> Iterator[Name | bytes]:
    """The names and bases of a file, as they come.

    Args:
        read: gives up to so many bytes, none at the end.
        first: what was read before.

    Raises:
        ValueError: a sequence holds what is no base, bases come before a name, or a header does not
            end.
    """
    lines = _Lines(first)
    while data := bytes(read(READ_BYTES)):
        yield from lines.add(data)
    yield from lines.end()


class _Lines:
    """What has been read and not given out, and where in a record that is."""

    def __init__(self, rest: bytes) -> None:
        self._rest = rest
        self._in_line = False  # The rest goes on a line whose begin was given out: bases.
        self._has_name = False
        self._number = 0

    def add(self, data: bytes) -> Iterator[Name | bytes]:
        data = self._rest + data
        # A last CR may belong to an LF that has not come.
        end = max(data.rfind(b"\n"), data.rfind(b"\r", 0, len(data) - 1)) + 1
        yield from self._whole_lines(data[:end])
        self._rest = data[end:]
        if len(self._rest) > READ_BYTES:
            yield from self._part_of_line()

    def end(self) -> Iterator[Name | bytes]:
        """What is left at the file's end."""
        yield from self._whole_lines(self._rest)

    def _part_of_line(self) -> Iterator[bytes]:
        """Bases of a long line that has not ended; white space at its end waits."""
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
            yield self._bases_of(part)
            self._rest, self._in_line = self._rest[len(part) :], True

    def _whole_lines(self, data: bytes) -> Iterator[Name | bytes]:
        begin = 0
        if self._in_line and data:
            begin = min(
                (place for place in (data.find(b"\n"), data.find(b"\r")) if place >= 0),
                default=len(data),
            )
            if part := data[:begin].rstrip():
                yield self._bases_of(part)
            self._in_line = False
        header = _next_header(data, begin)
        if header > begin:
            yield from self._bases(data[begin:header])
        if data.count(b">", header) * FEW_BYTES > len(data):
            if (records := self._short_records(data[header:])) is not None:
                yield from records
                return
        while header < len(data):
            begin = data.find(b"\n", header) + 1 or len(data)
            line = data[header:begin]
            if b"\r" in line.rstrip():
                yield from self._slowly(line)
            else:
                yield self._name(line)
            header = _next_header(data, begin)
            if header > begin:
                yield from self._bases(data[begin:header])

    def _short_records(self, data: bytes) -> Iterator[Name | bytes] | None:
        """Whole records, many at a time; None where a line needs a closer look."""
        if b"\r" in data or not data.isascii():
            return None
        records = [part.partition(b"\n") for part in data[1:].split(b"\n>")]
        if not is_plain(b"".join([bases for _, _, bases in records]).replace(b"\n", b"")):
            return None
        return self._given_out(records)

    def _given_out(self, records: list[tuple[bytes, bytes, bytes]]) -> Iterator[Name | bytes]:
        self._has_name = True
        self._number += len(records)
        for header, _, bases in records:
            yield _name(header.decode())
            if bases:
                yield bases.replace(b"\n", b"")

    def _bases(self, data: bytes) -> Iterator[Name | bytes]:
        """Lines that are no headers unless white space stands before them."""
        joined = data.replace(b"\n", b"")
        if b"\r" in joined:
            if joined.count(b"\r") != data.count(b"\r\n"):
                yield from self._slowly(data)
                return
            joined = joined.replace(b"\r", b"")
        if not joined:
            return
        if is_plain(joined):
            yield self._checked(joined)
        else:
            yield from self._slowly(data)

    def _slowly(self, data: bytes) -> Iterator[Name | bytes]:
        """Line by line."""
        for line in data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
            text = line.decode(errors="replace").strip()
            if text.startswith(">"):
                yield self._name(line)
            elif text and not text.startswith("#"):
                yield self._bases_of(text.encode())

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

    def _bases_of(self, part: bytes) -> bytes:
        """What may hold more than bases."""
        data = self._checked(part)
        try:
            return bases_of(data)
        except ValueError as error:
            raise ValueError(f"the sequence {error} (record {self._number})") from error


def _name(header: str) -> Name:
    """What stands before the first white space."""
    return "" if not header or header[0].isspace() else header.split(None, 1)[0]


def _next_header(data: bytes, begin: int) -> int:
    """Where the next line with ">" begins, or the end; at `begin` a line begins."""
    place = data.find(b">", begin)
    while place > begin and data[place - 1] not in b"\r\n":
        place = data.find(b">", place + 1)
    return len(data) if place < 0 else place
