"""Reads a form that contains a file of sequences and the channel of its bases, while it arrives.

The part `channel` comes first and is small. The part `sequences` is read like a body without a
form. Since parts have no Content-Encoding, it is decompressed if it begins like gzip or zstd.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Protocol

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from service.core.errors import BadBody, InvalidRequest, TooLarge
from service.http.body.decompression import check_whole, decompress, make_decompressor
from service.http.body.part_headers import PartHeaders
from service.seqio.format_detection import ARCHIVES
from vocabularies.sequences.channel import ChannelError, SparseChannel

MEDIA_TYPE = b"multipart/form-data"
CHANNEL, SEQUENCES = "channel", "sequences"
READ_BYTES = 1 << 16
MAGIC_BYTES = 4  # The number of bytes that identify gzip and zstd.


class Reader(Protocol):
    """Reads the bytes of a body, or of the file in a form."""

    def read(self, num_bytes: int) -> memoryview:
        """Read exactly `num_bytes`, fewer at the end. May block."""


def find_boundary(content_type: str) -> bytes | None:
    """Return the boundary of a form; None if the body is not a form.

    Raises:
        BadBody: the body is a form, but the boundary is missing.
    """
    media_type, options = parse_options_header(content_type)
    if media_type != MEDIA_TYPE:
        return None
    if not (boundary := options.get(b"boundary")):
        raise BadBody("the boundary is missing", "Content-Type")
    return boundary


class SequencesForm:
    """Reads the part `sequences` of a form.

    Args:
        body: the form.
        boundary: the text that separates its parts.
        max_channel_bytes: the maximum size of the part `channel`.

    Attributes:
        channel: the part `channel`, set before the first byte of the sequences is read; None if
            there is none.
    """

    def __init__(self, body: Reader, boundary: bytes, max_channel_bytes: int) -> None:
        self.channel: SparseChannel | None = None
        self._body = body
        self._max_channel_bytes = max_channel_bytes
        self._headers = PartHeaders()
        self._part = ""
        self._seen: set[str] = set()
        self._lines = bytearray()  # The received bytes of the channel.
        self._received: deque[bytes] = deque()  # Bytes of the sequences, as they were sent.
        self._pieces = self._unpack()
        self._rest = b""  # Decompressed bytes, not read yet.
        self._has_ended = False
        callbacks = {
            **self._headers.callbacks(),
            "on_headers_finished": self._name_part,
            "on_part_data": self._add_data,
            "on_part_end": self._end_part,
            "on_end": self._end,
        }
        self._parser = MultipartParser(boundary, callbacks)  # type: ignore[arg-type]

    def read(self, num_bytes: int) -> memoryview:
        """Read exactly `num_bytes` of the sequences, fewer at their end. May block.

        Raises:
            BadBody: the form is damaged or ends too early.
            InvalidRequest: a part is unknown, repeated, missing or misplaced, or a line of the
                channel is invalid.
            TooLarge: the channel exceeds its limit.
        """
        pieces = [self._rest]
        size = len(self._rest)
        while size < num_bytes and (piece := next(self._pieces, b"")):
            pieces.append(piece)
            size += len(piece)
        data = b"".join(pieces)
        self._rest = data[num_bytes:]
        return memoryview(data)[:num_bytes]

    def _unpack(self) -> Iterator[bytes]:
        """Yield the bytes of the sequences, decompressed, in pieces that are not empty."""
        begin = b""
        for data in self._receive():
            begin += data
            if len(begin) >= MAGIC_BYTES:
                break
        names = [name for magic, name in ARCHIVES.items() if begin.startswith(magic)]
        encoding = names[0] if names and names[0] in ("gzip", "zstd") else None
        decompressor = make_decompressor(encoding)
        if begin and decompressor is None:
            yield begin
        elif begin and decompressor is not None:
            yield from decompress(decompressor, begin, f"/{SEQUENCES}")
        for data in self._receive():
            if decompressor is None:
                yield data
            else:
                yield from decompress(decompressor, data, f"/{SEQUENCES}")
        if decompressor is not None:
            check_whole(decompressor, f"/{SEQUENCES}")

    def _receive(self) -> Iterator[bytes]:
        """Yield the bytes of the sequences as the client sent them."""
        while self._received or self._parse_more():
            while self._received:
                yield self._received.popleft()

    def _parse_more(self) -> bool:
        """Parse the next bytes of the form; return whether there were any."""
        data = bytes(self._body.read(READ_BYTES))
        if not data:
            if not self._has_ended:
                raise BadBody("the multipart body ends too early")
            if SEQUENCES not in self._seen:
                raise InvalidRequest("the form has no part with this name", f"/{SEQUENCES}")
            return False
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise BadBody(f"the body is no multipart/form-data: {error}") from error
        return True

    def _name_part(self) -> None:
        name = self._headers.options().get(b"name", b"").decode(errors="replace")
        if name not in (CHANNEL, SEQUENCES):
            message = f"a part has a name other than {CHANNEL} and {SEQUENCES}"
            raise InvalidRequest(message, "Content-Disposition")
        if name in self._seen:
            raise InvalidRequest("occurs twice", f"/{name}")
        if SEQUENCES in self._seen:
            raise InvalidRequest(f"must be sent before the part {SEQUENCES}", f"/{name}")
        self._seen.add(name)
        self._part = name

    def _add_data(self, data: bytes, begin: int, end: int) -> None:
        if self._part == SEQUENCES:
            self._received.append(data[begin:end])
            return
        self._lines += data[begin:end]
        if len(self._lines) > self._max_channel_bytes:
            limit = f"max_body_bytes is {self._max_channel_bytes}"
            raise TooLarge(f"the channel is too large; {limit}", f"/{CHANNEL}")

    def _end_part(self) -> None:
        if self._part == CHANNEL:
            try:
                self.channel = SparseChannel(bytes(self._lines))
            except ChannelError as error:
                raise InvalidRequest(str(error), f"/{CHANNEL}") from error
            self._lines.clear()

    def _end(self) -> None:
        self._has_ended = True
