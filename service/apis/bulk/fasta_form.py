"""Reads a form with a file of sequences and the channel of its bases, while it arrives.

The part `channel` comes first and is small; the part `sequences` is read as a body without a form.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from service.core.errors import BadBody, InvalidRequest, TooLarge
from service.http.part_headers import PartHeaders
from vocabularies.sequences.channel import ChannelError, SparseChannel

MEDIA_TYPE = b"multipart/form-data"
CHANNEL, SEQUENCES = "channel", "sequences"
READ_BYTES = 1 << 16


class Reader(Protocol):
    """Reads the bytes of a body, or of the file in a form."""

    def read(self, num_bytes: int) -> memoryview:
        """Read exactly `num_bytes`, fewer at the end. May block."""


def find_boundary(content_type: str) -> bytes | None:
    """Find the boundary of a form; None if the body is no form.

    Raises:
        BadBody: the body is a form, and the boundary is missing.
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
        boundary: what parts its parts.
        max_channel_bytes: the most bytes of the part `channel`.

    Attributes:
        channel: the part `channel`, once a byte of the sequences was read; None without one.
    """

    def __init__(self, body: Reader, boundary: bytes, max_channel_bytes: int) -> None:
        self.channel: SparseChannel | None = None
        self._body = body
        self._max_channel_bytes = max_channel_bytes
        self._headers = PartHeaders()
        self._part = ""
        self._seen: set[str] = set()
        self._lines = bytearray()  # Of the channel.
        self._pieces: deque[bytes] = deque()  # Of the sequences.
        self._num_bytes = 0  # Of the pieces.
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
            InvalidRequest: a part is unknown, repeated, missing or in the wrong place, or a line
                of the channel is wrong.
            TooLarge: the channel is above its limit.
        """
        while self._num_bytes < num_bytes and self._parse_more():
            pass
        data = b"".join(self._pieces)
        self._pieces = deque([data[num_bytes:]])
        self._num_bytes = len(self._pieces[0])
        return memoryview(data)[:num_bytes]

    def _parse_more(self) -> bool:
        """Parse the next bytes of the form; return whether there were any."""
        data = bytes(self._body.read(READ_BYTES))
        if not data:
            if not self._has_ended:
                raise BadBody("the multipart body ends too early")
            if SEQUENCES not in self._seen:
                raise InvalidRequest("the form has no part of this name", f"/{SEQUENCES}")
            return False
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise BadBody(f"the body is no multipart/form-data: {error}") from error
        return True

    def _name_part(self) -> None:
        name = self._headers.options().get(b"name", b"").decode(errors="replace")
        if name not in (CHANNEL, SEQUENCES):
            message = f"a part has another name than {CHANNEL} and {SEQUENCES}"
            raise InvalidRequest(message, "Content-Disposition")
        if name in self._seen:
            raise InvalidRequest("is there twice", f"/{name}")
        if SEQUENCES in self._seen:
            raise InvalidRequest(f"stands behind {SEQUENCES}; send it first", f"/{name}")
        self._seen.add(name)
        self._part = name

    def _add_data(self, data: bytes, begin: int, end: int) -> None:
        if self._part == SEQUENCES:
            self._pieces.append(data[begin:end])
            self._num_bytes += end - begin
            return
        self._lines += data[begin:end]
        if len(self._lines) > self._max_channel_bytes:
            limit = f"max_body_bytes is {self._max_channel_bytes}"
            raise TooLarge(f"the channel has more bytes; {limit}", f"/{CHANNEL}")

    def _end_part(self) -> None:
        if self._part == CHANNEL:
            try:
                self.channel = SparseChannel(bytes(self._lines))
            except ChannelError as error:
                raise InvalidRequest(str(error), f"/{CHANNEL}") from error
            self._lines.clear()

    def _end(self) -> None:
        self._has_ended = True
