"""Reads the headers of a form's parts; Content-Disposition contains the name of the part."""

from __future__ import annotations

from collections.abc import Callable

from python_multipart.multipart import parse_options_header


class PartHeaders:
    """The headers of the part that a `MultipartParser` reads; its methods are callbacks."""

    def __init__(self) -> None:
        self._field = b""
        self._value = b""
        self._disposition: bytes | None = None

    def callbacks(self) -> dict[str, Callable[..., None]]:
        """Return the callback methods under the names that the parser expects."""
        return {
            "on_part_begin": self.begin,
            "on_header_field": self._add_field,
            "on_header_value": self._add_value,
            "on_header_end": self._end,
        }

    def options(self) -> dict[bytes, bytes]:
        """Return the options of Content-Disposition, such as `name`; {} if it is missing."""
        return parse_options_header(self._disposition)[1]

    def begin(self) -> None:
        """Drop the headers of the previous part."""
        self._disposition = None

    def _add_field(self, data: bytes, begin: int, end: int) -> None:
        self._field += data[begin:end]

    def _add_value(self, data: bytes, begin: int, end: int) -> None:
        self._value += data[begin:end]

    def _end(self) -> None:
        if self._field.lower() == b"content-disposition":
            self._disposition = self._value
        self._field = b""
        self._value = b""
