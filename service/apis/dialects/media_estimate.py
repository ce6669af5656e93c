"""Estimates how many ids a chat's images and documents become; only the model counts exactly.

    image      width × height / PIXELS_AN_ID, at most IMAGE_IDS, as published by Anthropic;
               IMAGE_IDS if the request does not contain the image (a URL, a file of the provider)
    document   text remains in the messages for the template; a PDF counts PAGE_IDS for each page,
               and counts as one page if the request does not contain it

These content parts occur in Anthropic's messages, OpenAI's chats and OpenAI's Responses. Routes
that return ids refuse them: an estimate contains no ids.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import re
import struct
import zlib
from dataclasses import dataclass
from typing import Any

Part = dict[str, Any]
IMAGES = ("image", "image_url", "input_image")
DOCUMENTS = ("document", "file", "input_file")
PIXELS_AN_ID = 750
IMAGE_IDS = 1600
PAGE_IDS = 3000
HEAD_CHARACTERS = 1 << 20  # The size of an image is searched in this many characters of base64.
PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
OBJECTS = re.compile(rb"/ObjStm.{0,200}?stream\r?\n", re.DOTALL)
PIECE_CHARACTERS = 1 << 20  # A PDF is read in pieces of this many characters of base64.
MAX_UNPACKED = 1 << 20  # Maximum decompressed bytes of one stream of a PDF.
MAX_STREAMS = 64  # Maximum number of streams of a piece that are searched for pages.


@dataclass(slots=True)
class MediaEstimate:
    """The estimate for one request.

    Attributes:
        images: the number of images.
        documents: the number of documents.
        tokens: the estimated number of ids of all of them.
    """

    images: int = 0
    documents: int = 0
    tokens: int = 0

    def describe(self) -> dict[str, Any]:
        """Return the additional fields of an answer; {} if nothing was estimated."""
        if not self.images and not self.documents:
            return {}
        values = {"images": self.images, "documents": self.documents, "tokens": self.tokens}
        return {"estimated": values}

    def remove_from(self, messages: list[Part]) -> list[Part]:
        """Return messages (or Responses items) without images and documents; count those."""
        return [self._remove_from_message(message) for message in messages]

    def _remove_from_message(self, message: Any) -> Any:
        if not isinstance(message, dict):
            return message
        parts = {
            name: self._remove(message[name])
            for name in ("content", "output")
            if isinstance(message.get(name), list)
        }
        return {**message, **parts}

    def _remove(self, parts: list[Any]) -> list[Any]:
        kept = []
        for part in parts:
            kind = part.get("type") if isinstance(part, dict) else None
            if kind in IMAGES:
                self.images += 1
                self.tokens += count_image_ids(_find_data(part))
            elif kind in DOCUMENTS:
                self.documents += 1
                kept += self._read_document(part)
            else:
                kept.append(self._remove_from_message(part))
        return kept

    def _read_document(self, part: Part) -> list[Any]:
        """Return the text parts of a document; count the ids of its other parts."""
        source = part.get("source")
        if isinstance(source, dict) and source.get("type") == "text":
            return [{"type": "text", "text": str(source.get("data", ""))}]
        if isinstance(source, dict) and source.get("type") == "content":
            content = source.get("content")
            return self._remove(content if isinstance(content, list) else [str(content)])
        self.tokens += PAGE_IDS * count_pages(_find_data(part))
        return []


def _find_data(part: Part) -> str:
    """Return the base64 data of an image or a document; "" if the request does not contain it."""
    for name in ("source", "image_url", "file", "input_file"):
        inner = part.get(name)
        if isinstance(inner, dict):
            part = inner
        elif isinstance(inner, str):
            part = {"url": inner}
    for name in ("data", "url", "file_data"):
        value = part.get(name)
        if isinstance(value, str) and not value.startswith(("http:", "https:")):
            is_url = value.startswith("data:")
            return value.partition(",")[2] if is_url else value
    return ""


def _decode(data: str) -> bytes:
    """Decode the valid prefix of a base64 text."""
    try:
        return base64.b64decode(data[: len(data) // 4 * 4])
    except (binascii.Error, ValueError):
        return b""


def count_image_ids(data: str) -> int:
    """Estimate the number of ids of an image in base64."""
    size = find_size(_decode(data[:HEAD_CHARACTERS]))
    if size is None:
        return IMAGE_IDS
    width, height = size
    return min(IMAGE_IDS, -(-width * height // PIXELS_AN_ID))


def find_size(image: bytes) -> tuple[int, int] | None:
    """Return the width and the height of a PNG, GIF, WebP or JPEG from its first bytes."""
    try:
        if image.startswith(b"\x89PNG"):
            return _pair(">II", image, 16)
        if image.startswith(b"GIF8"):
            return _pair("<HH", image, 6)
        if image[:4] == b"RIFF" and image[8:12] == b"WEBP":
            return _find_webp_size(image)
        if image.startswith(b"\xff\xd8"):
            return _find_jpeg_size(image)
    except (struct.error, IndexError):
        pass
    return None


def _pair(form: str, image: bytes, place: int) -> tuple[int, int]:
    first, second = struct.unpack_from(form, image, place)
    return first, second


def _find_webp_size(image: bytes) -> tuple[int, int]:
    kind = image[12:16]
    if kind == b"VP8X":
        low_width, high_width, low_height, high_height = struct.unpack_from("<HBHB", image, 24)
        return (low_width | high_width << 16) + 1, (low_height | high_height << 16) + 1
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", image, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    width, height = _pair("<HH", image, 26)
    return width & 0x3FFF, height & 0x3FFF


def _find_jpeg_size(image: bytes) -> tuple[int, int] | None:
    place = 2
    while image[place] == 0xFF:
        marker = image[place + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = _pair(">HH", image, place + 5)
            return width, height
        (length,) = struct.unpack_from(">H", image, place + 2)
        place += 2 + length
    return None


def count_pages(data: str) -> int:
    """Return the number of pages of a PDF in base64, at least one.

    The PDF is read in pieces, so that other threads can run between them.
    """
    pieces = range(0, len(data), PIECE_CHARACTERS)
    number = sum(_count_pages(_decode(data[begin : begin + PIECE_CHARACTERS])) for begin in pieces)
    return max(1, number)


def _count_pages(piece: bytes) -> int:
    """Count the pages whose objects begin in a piece of a PDF, including compressed objects."""
    number = len(PAGE.findall(piece))
    for found in itertools.islice(OBJECTS.finditer(piece), MAX_STREAMS):
        try:
            unpacked = zlib.decompressobj().decompress(piece[found.end() :], MAX_UNPACKED)
        except zlib.error:
            continue
        number += len(PAGE.findall(unpacked))
    return number
