"""A multipart upload of a training job: files go to disk while they arrive, fields are kept.

Pieces are parsed and written in a thread, so that neither a large corpus nor a slow disk holds the
loop. Every part has its limit, which its refusal names.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from service.core.errors import BadBody, InvalidRequest, TooLarge, UnsupportedFormat, disk_errors
from service.core.settings import Settings

FILES = ("corpus", "motifs", "confidence")
FIELD_BYTES = 1 << 16
MAX_PARTS = 64
GATHERED_BYTES = 1 << 20
FORM_BYTES = 1 << 20  # What a form takes beside its files.


@dataclass(slots=True)
class Uploaded:
    """What came.

    Attributes:
        fields: the texts of all parts that are no files.
        num_files: parts of each of FILES.
        corpus_bytes: bytes of all parts called corpus.
    """

    fields: dict[str, str] = field(default_factory=dict)
    num_files: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FILES, 0))
    corpus_bytes: int = 0


async def receive_upload(
    pieces: AsyncIterator[bytes], content_type: str, folder: Path, settings: Settings
) -> Uploaded:
    """Write the files of an upload into a folder: corpus.0, corpus.1, ..., motifs, confidence.

    Raises:
        UnsupportedFormat, BadBody: it is no multipart/form-data, or a damaged one.
        InvalidRequest: a part is there twice, or has no name, or there is no corpus.
        TooLarge: a part is above its limit.
        NoSpace: the disk is full.
    """
    media_type, options = parse_options_header(content_type)
    if media_type != b"multipart/form-data":
        raise UnsupportedFormat("send multipart/form-data with a part corpus", "Content-Type")
    if not (boundary := options.get(b"boundary")):
        raise BadBody("the boundary is missing", "Content-Type")
    parts = _Parts(folder, settings)
    try:
        parser = MultipartParser(boundary, parts.callbacks())  # type: ignore[arg-type]
        with disk_errors():
            async for data in gathered(pieces):
                await asyncio.to_thread(parser.write, data)
        parts.check_whole()
    except FormParserError as error:
        raise BadBody(f"the body is no multipart/form-data: {error}") from error
    finally:
        parts.close()
    return parts.uploaded


def max_upload_bytes(settings: Settings) -> int:
    """The most that an upload with all its parts may have."""
    return 2 * settings.max_corpus_bytes + settings.max_vocabulary_bytes + FORM_BYTES


async def gathered(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in larger pieces, each worth a call of a thread."""
    waiting, size = [], 0
    async for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= GATHERED_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)


class _Parts:
    """What the parser finds, part by part."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.uploaded = Uploaded()
        self._folder = folder
        self._settings = settings
        self._header = b""
        self._value = b""
        self._disposition: bytes | None = None
        self._name = ""
        self._file: BinaryIO | None = None
        self._text = bytearray()
        self._num_bytes = 0
        self._num_parts = 0
        self._has_ended = False

    def callbacks(self) -> dict[str, object]:
        """By the parser's names for them."""
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._add_header,
            "on_header_value": self._add_value,
            "on_header_end": self._end_header,
            "on_headers_finished": self._open,
            "on_part_data": self._write,
            "on_part_end": self._end_part,
            "on_end": self._end,
        }

    def check_whole(self) -> None:
        """Raises where the body has ended too early, or holds no corpus."""
        if not self._has_ended:
            raise BadBody("the multipart body ends too early")
        if not self.uploaded.num_files["corpus"]:
            raise InvalidRequest("the upload has no part corpus", "/corpus")

    def close(self) -> None:
        """Close the file of a part that was not finished."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _begin(self) -> None:
        self._num_parts += 1
        if self._num_parts > MAX_PARTS:
            raise TooLarge(f"more than {MAX_PARTS} parts")
        self._disposition = None

    def _add_header(self, data: bytes, begin: int, end: int) -> None:
        self._header += data[begin:end]

    def _add_value(self, data: bytes, begin: int, end: int) -> None:
        self._value += data[begin:end]

    def _end_header(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = self._value
        self._header = b""
        self._value = b""

    def _open(self) -> None:
        _, options = parse_options_header(self._disposition)
        self._name = options.get(b"name", b"").decode(errors="replace")
        self._num_bytes = 0
        if not self._name:
            raise InvalidRequest("a part has no name", "Content-Disposition")
        if self._name not in FILES:
            if self._name in self.uploaded.fields:
                raise InvalidRequest("is there twice", f"/{self._name}")
            self._text.clear()
            return
        number = self.uploaded.num_files[self._name]
        self.uploaded.num_files[self._name] += 1
        if number and self._name != "corpus":
            raise InvalidRequest("is there twice", f"/{self._name}")
        file_name = f"corpus.{number}" if self._name == "corpus" else self._name
        self._file = open(self._folder / file_name, "xb")

    def _write(self, data: bytes, begin: int, end: int) -> None:
        self._num_bytes += end - begin
        if self._name == "corpus":
            self.uploaded.corpus_bytes += end - begin
        self._check_size()
        if self._file is not None:
            self._file.write(memoryview(data)[begin:end])
        else:
            self._text += memoryview(data)[begin:end]

    def _check_size(self) -> None:
        settings = self._settings
        size, limit, setting = {
            "corpus": (self.uploaded.corpus_bytes, settings.max_corpus_bytes, "max_corpus_bytes"),
            "confidence": (self._num_bytes, settings.max_corpus_bytes, "max_corpus_bytes"),
            "motifs": (self._num_bytes, settings.max_vocabulary_bytes, "max_vocabulary_bytes"),
        }.get(self._name, (self._num_bytes, FIELD_BYTES, ""))
        if size > limit:
            named = f" ({setting})" if setting else ""
            raise TooLarge(f"more than {limit} bytes{named}", f"/{self._name}")

    def _end_part(self) -> None:
        if self._file is not None:
            self.close()
            return
        try:
            self.uploaded.fields[self._name] = self._text.decode()
        except UnicodeDecodeError as error:
            raise InvalidRequest("is no UTF-8", f"/{self._name}") from error

    def _end(self) -> None:
        self._has_ended = True
