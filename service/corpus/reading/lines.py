"""Makes documents from blocks of lines: the texts of a JSON key, or the lines themselves.

The C++ extension works in the block's own memory and without Python's lock; if it is not built,
Python code returns the same documents.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.corpus.documents import Documents, Reject
from service.corpus.reading.line_blocks import LineBlock

try:
    from service.corpus import _corpus as native
except ImportError:
    native = None  # type: ignore[assignment]

REASONS = (
    ("invalid_json", "the line is not JSON"),
    ("not_an_object", "the line is not a JSON object"),
    ("missing_key", "the object has no key {key!r}"),
    ("not_text", "the value of {key!r} is not a text"),
    ("lone_surrogate", "the text has half of a surrogate pair"),
)
INVALID_JSON, NOT_OBJECT, MISSING_KEY, NOT_TEXT, LONE_SURROGATE = range(len(REASONS))
BLANK = b" \t\r"
MAX_DEPTH = 512  # As in native/json_text.hpp.
OPENING, CLOSING = ("[", "{"), ("]", "}")
TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[][{}]|[^][{}",:\s]+')


def json_documents(block: LineBlock, key: str) -> Documents:
    """Make documents from the texts of a JSON key; they reuse the block's memory."""
    offsets, places, found = extract(block.data, key.encode())
    documents = _make_documents(block, offsets, places)
    for place, reason in found:
        code, message = REASONS[reason]
        documents.rejects.append(Reject(block.begin + place, code, message.format(key=key)))
    documents.rejects.sort()
    return documents


def line_documents(block: LineBlock) -> Documents:
    """Make documents from lines that are not blank; they reuse the block's memory."""
    return _make_documents(block, *split(block.data))


def _make_documents(block: LineBlock, offset_bytes: bytes, place_bytes: bytes) -> Documents:
    offsets = np.frombuffer(offset_bytes, np.int64)
    places = np.frombuffer(place_bytes, np.int64) + block.begin
    data = block.data[: offsets[-1]]
    rejects = list(block.rejects)
    return Documents(
        data, offsets, places, block.end, block.num_bytes, rejects, digests=block.digests
    )


def extract_by_python(
    data: NDArray[np.uint8], name: bytes
) -> tuple[bytes, bytes, list[tuple[int, int]]]:
    """Extract texts like the extension's `extract`."""
    texts, places, rejects = [], [], []
    for place, line in _find_lines(data):
        text = _find_text(line, name.decode())
        if isinstance(text, int):
            rejects.append((place, text))
        else:
            texts.append(text)
            places.append(place)
    return *_join(data, texts, places), rejects


def split_by_python(data: NDArray[np.uint8]) -> tuple[bytes, bytes]:
    """Split lines like the extension's `split`."""
    found = _find_lines(data)
    texts = [line.removesuffix(b"\r") for _, line in found]
    return _join(data, texts, [place for place, _ in found])


def _join(data: NDArray[np.uint8], texts: list[bytes], places: list[int]) -> tuple[bytes, bytes]:
    """Copy texts to the beginning of a block, joined; return their offsets and places."""
    joined = b"".join(texts)
    data[: len(joined)] = np.frombuffer(joined, np.uint8)
    offsets = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    return offsets.tobytes(), np.array(places, np.int64).tobytes()


def _find_lines(data: NDArray[np.uint8]) -> list[tuple[int, bytes]]:
    """List the lines that are not blank, each with its place."""
    lines, place = [], 0
    for line in data.tobytes().split(b"\n"):
        if line.strip(BLANK):
            lines.append((place, line))
        place += len(line) + 1
    return lines


def _find_text(line: bytes, key: str) -> bytes | int:
    """Return the text of a JSON key, or the number of the reason why there is no text."""
    try:
        text, errors = line.decode(), "strict"
    except UnicodeDecodeError:  # The engine refuses the text, if it is in the text.
        text, errors = line.decode(errors="surrogateescape"), "surrogateescape"
    try:
        value: Any = json.loads(
            text, parse_int=_skip_number, parse_float=_skip_number, parse_constant=_refuse
        )
    except (ValueError, RecursionError):
        return INVALID_JSON
    if text.count("[") + text.count("{") > MAX_DEPTH and _is_too_deep(text):
        return INVALID_JSON
    if not isinstance(value, dict):
        return NOT_OBJECT
    if key not in value:
        return MISSING_KEY
    found = value[key]
    if not isinstance(found, str):
        return NOT_TEXT
    try:
        return found.encode(errors=errors)
    except UnicodeEncodeError:
        return LONE_SURROGATE


def _is_too_deep(text: str) -> bool:
    """Return whether valid JSON is nested more deeply than MAX_DEPTH."""
    depth = 0
    for found in TOKEN.finditer(text):
        token = found[0]
        if token in CLOSING:
            depth -= 1
        elif depth > MAX_DEPTH:
            return True
        elif token in OPENING:
            depth += 1
    return False


def _skip_number(number: str) -> int:
    """Return a placeholder for a number, as Python refuses numbers with thousands of digits."""
    return 0


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


extract = extract_by_python if native is None else native.extract
split = split_by_python if native is None else native.split
