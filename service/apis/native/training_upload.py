"""Receives the multipart upload of a training job; writes its files to disk while they arrive.

A thread parses and writes the pieces, so that neither a large corpus nor a slow disk blocks the
event loop. Each part has a size limit; a refusal names the setting of the limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from service.core.errors import BadBody, InvalidRequest, TooLarge, UnsupportedFormat, disk_errors
from service.core.settings import Settings
from service.http.body.part_headers import PartHeaders

FILES = ("corpus", "motifs", "confidence")  # The parts that are files; the others are fields.
FIELD_BYTES = 1 << 16  # The maximum size of a field.
MAX_PARTS = 64
GATHERED_BYTES = 1 << 20
FORM_BYTES = 1 << 20  # The maximum size of a form without its files.


@dataclass(slots=True)
class Uploaded:
    """The contents of a received upload.

    Attributes:
        fields: the texts of the form fields, by name.
        num_files: the number of file parts, by their names in FILES.
        corpus_bytes: the total size of all parts named corpus.
    """

    fields: dict[str, str] = field(default_factory=dict)
    num_files: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FILES, 0))
    corpus_bytes: int = 0


async def receive_upload(
    pieces: AsyncIterator[bytes], content_type: str, folder: Path, settings: Settings
) -> Uploaded:
    """Write the files of an upload to a folder: corpus.0, corpus.1, ..., motifs, confidence.

    Raises:
        UnsupportedFormat, BadBody: the body is not multipart/form-data, or is damaged.
        InvalidRequest: a part is repeated or has no name, or there is no corpus.
        TooLarge: a part exceeds its limit.
        NoSpace: the disk is full.
    """
    media_type, options = parse_options_header(content_type)
    if media_type != b"multipart/form-data":
        raise UnsupportedFormat("send multipart/form-data with a part named corpus", "Content-Type")
    if not (boundary := options.get(b"boundary")):
        raise BadBody("the boundary is missing", "Content-Type")
    parts = _Parts(folder, settings)
    try:
        parser = MultipartParser(boundary, parts.callbacks())  # type: ignore[arg-type]
        with disk_errors():
            async for data in gather_pieces(pieces):
                await asyncio.to_thread(parser.write, data)
        parts.check_whole()
    except FormParserError as error:
        raise BadBody(f"the body is no multipart/form-data: {error}") from error
    finally:
        parts.close()
    return parts.uploaded


def max_upload_bytes(settings: Settings) -> int:
    """Return the maximum size of an upload with all its parts."""
    return 2 * settings.max_corpus_bytes + settings.max_vocabulary_bytes + FORM_BYTES


async def gather_pieces(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Join pieces to about GATHERED_BYTES, so that each is worth a call in a thread."""
    gathered: list[bytes] = []
    size = 0
    async for piece in pieces:
        gathered.append(piece)
        size += len(piece)
        if size >= GATHERED_BYTES:
            yield b"".join(gathered)
            gathered, size = [], 0
    if gathered:
        yield b"".join(gathered)


class _Limit(NamedTuple):
    """The size of a part, its limit in bytes, and the name of the limit's setting or ""."""

    num_bytes: int
    max_bytes: int
    setting: str


class _Parts:
    """Stores the parts that a parser finds: files in a folder, and fields in `uploaded`."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.uploaded = Uploaded()
        self._folder = folder
        self._settings = settings
        self._headers = PartHeaders()
        self._name = ""
        self._file: BinaryIO | None = None
        self._text = bytearray()
        self._num_bytes = 0
        self._num_parts = 0
        self._has_ended = False

    def callbacks(self) -> dict[str, object]:
        """Return the callback methods under the names that the parser expects."""
        return {
            **self._headers.callbacks(),
            "on_part_begin": self._begin,
            "on_headers_finished": self._open,
            "on_part_data": self._write,
            "on_part_end": self._end_part,
            "on_end": self._end,
        }

    def check_whole(self) -> None:
        """Raise ServiceError if the body has ended too early, or there is no corpus."""
        if not self._has_ended:
            raise BadBody("the multipart body ends too early")
        if not self.uploaded.num_files["corpus"]:
            raise InvalidRequest("the upload has no part named corpus", "/corpus")

    def close(self) -> None:
        """Close the file of an unfinished part."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _begin(self) -> None:
        self._num_parts += 1
        if self._num_parts > MAX_PARTS:
            raise TooLarge(f"more than {MAX_PARTS} parts")
        self._headers.begin()

    def _open(self) -> None:
        options = self._headers.options()
        self._name = options.get(b"name", b"").decode(errors="replace")
        self._num_bytes = 0
        if not self._name:
            raise InvalidRequest("a part has no name", "Content-Disposition")
        if self._name not in FILES:
            if self._name in self.uploaded.fields:
                raise InvalidRequest("occurs twice", f"/{self._name}")
            self._text.clear()
            return
        number = self.uploaded.num_files[self._name]
        self.uploaded.num_files[self._name] += 1
        if number and self._name != "corpus":
            raise InvalidRequest("occurs twice", f"/{self._name}")
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
        limit = self._find_limit()
        if limit.num_bytes > limit.max_bytes:
            setting = f" ({limit.setting})" if limit.setting else ""
            raise TooLarge(f"more than {limit.max_bytes} bytes{setting}", f"/{self._name}")

    def _find_limit(self) -> _Limit:
        """Return the limit of the current part; all files of a corpus share one limit."""
        settings = self._settings
        if self._name == "corpus":
            num_bytes = self.uploaded.corpus_bytes
            return _Limit(num_bytes, settings.max_corpus_bytes, "max_corpus_bytes")
        if self._name == "confidence":
            return _Limit(self._num_bytes, settings.max_corpus_bytes, "max_corpus_bytes")
        if self._name == "motifs":
            return _Limit(self._num_bytes, settings.max_vocabulary_bytes, "max_vocabulary_bytes")
        return _Limit(self._num_bytes, FIELD_BYTES, "")

    def _end_part(self) -> None:
        if self._file is not None:
            self.close()
            return
        try:
            self.uploaded.fields[self._name] = self._text.decode()
        except UnicodeDecodeError as error:
            raise InvalidRequest("is not UTF-8", f"/{self._name}") from error

    def _end(self) -> None:
        self._has_ended = True
