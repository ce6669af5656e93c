"""Parses long JSON in chunks, so that other threads of Python can run meanwhile.

The parser of `json` holds Python's lock for a whole list or object; for one of 10 MB, that is a
tenth of a second.

    {"model": {"vocab": {"a": 0, "b": 1, "c": 2, "d": 3, ...
                         └──── chunk ──┘ └──── chunk ──

A chunk begins with an element of a list or object, and ends before a comma. Within brackets it is
valid JSON only if the comma separates two elements of that list or object: before any other comma,
a string or an inner list or object is still open.
"""

from __future__ import annotations

import json
import re
from json.scanner import make_scanner
from typing import Any, NamedTuple

CHUNK = 1 << 16  # Characters, which take about a millisecond.
MIN_ELEMENTS = 32  # Shorter lists and objects are not split, as their elements may be long.
MAX_TRIES = 4  # Commas that are tried as the end of a chunk.
MAX_FAILURES = 100  # So many attempts may fail in all, each of which takes the time of a chunk.
CLOSING = {"[": "]", "{": "}"}
SPACE = re.compile(r"[ \t\n\r]*+")


class CannotSplit(ValueError):
    """The text is not JSON, or too many commas do not separate elements."""


class Parsed(NamedTuple):
    """A value and its end in the text."""

    value: Any
    end: int


class ChunkParser:
    """Parses one JSON text.

    Args:
        text: the text.
        decoder: parses the chunks; objects become dictionaries.
    """

    def __init__(self, text: str, decoder: json.JSONDecoder) -> None:
        self._text = text
        self._scan = make_scanner(decoder)  # type: ignore[arg-type]  # Wrong in typeshed.
        self._num_failures = 0

    def parse(self) -> Any:
        """Return the value of the text.

        Raises:
            ValueError: the text has a fault, which `json` describes, or cannot be split.
        """
        value, end = self._parse_value(self._skip_space(0))
        if self._skip_space(end) != len(self._text):
            raise CannotSplit
        return value

    def _parse_value(self, begin: int) -> Parsed:
        opening = self._text[begin : begin + 1]
        if opening not in CLOSING:
            return self._scan_value(begin)
        return self._try_rest(opening, begin + 1) or self._parse_elements(opening, begin + 1)

    def _parse_elements(self, opening: str, begin: int) -> Parsed:
        """Parse a list or object, whose elements begin at a place."""
        whole: Any = [] if opening == "[" else {}
        add = whole.extend if opening == "[" else whole.update
        size = 0
        while True:
            found = last = None
            if size >= MIN_ELEMENTS:
                found = self._try_chunk(opening, begin)
                if found is None:
                    found = last = self._try_rest(opening, begin)
            elements, end = found or self._parse_element(opening, begin)
            add(elements)
            size += len(elements)
            if not elements or len(whole) != size:  # A comma before the end, or a repeated key.
                raise CannotSplit
            if last is not None:
                return Parsed(whole, end)
            if self._text[end : end + 1] == CLOSING[opening]:
                return Parsed(whole, end + 1)
            if self._text[end : end + 1] != ",":
                raise CannotSplit
            begin = end + 1

    def _try_chunk(self, opening: str, begin: int) -> Parsed | None:
        """Parse the elements before a comma after CHUNK characters; None if no comma fits."""
        separator = ","
        if opening == "[":  # Most lists have elements of one kind.
            first = self._skip_space(begin)
            kind = self._text[first : first + 1]
            separator = {"[": "],", "{": "},", '"': '",'}.get(kind, separator)
        place = begin + CHUNK
        for _ in range(MAX_TRIES):
            place = self._text.find(separator, place, place + CHUNK)
            if place < 0:
                return None
            place += len(separator)
            chunk = f"{opening}{self._text[begin : place - 1]}{CLOSING[opening]}"
            found = self._try_scan(chunk)
            if found is not None and found.end == len(chunk):
                return Parsed(found.value, place - 1)
        return None

    def _try_rest(self, opening: str, begin: int) -> Parsed | None:
        """Parse the elements up to the end; None if they are longer than a few chunks."""
        found = self._try_scan(opening + self._text[begin : begin + 3 * CHUNK])
        return None if found is None else Parsed(found.value, begin - 1 + found.end)

    def _parse_element(self, opening: str, begin: int) -> Parsed:
        """Parse one element, to a list or object of it; its value may be long."""
        begin = self._skip_space(begin)
        if opening == "[":
            value, end = self._parse_value(begin)
            return Parsed([value], self._skip_space(end))
        if self._text[begin : begin + 1] != '"':
            raise CannotSplit
        key, end = self._scan_value(begin)
        end = self._skip_space(end)
        if self._text[end : end + 1] != ":":
            raise CannotSplit
        value, end = self._parse_value(self._skip_space(end + 1))
        return Parsed({key: value}, self._skip_space(end))

    def _skip_space(self, begin: int) -> int:
        space = SPACE.match(self._text, begin)
        return begin if space is None else space.end()

    def _try_scan(self, text: str) -> Parsed | None:
        try:
            return Parsed(*self._scan(text, 0))
        except (StopIteration, json.JSONDecodeError):
            self._num_failures += 1
            if self._num_failures > MAX_FAILURES:
                raise CannotSplit from None
            return None

    def _scan_value(self, begin: int) -> Parsed:
        try:
            return Parsed(*self._scan(self._text, begin))
        except StopIteration:
            raise CannotSplit from None
