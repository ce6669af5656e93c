"""Reads one value for each base of sequences, such as heteroplasmy levels, from a file.

The file lists only the bases with a value other than 0, because most bases have none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

MAX_FLOAT32 = float(np.finfo(np.float32).max)


class ChannelError(ValueError):
    """A line of a channel's file is invalid, or does not fit the sequences."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(f"line {line}: {message}")
        self.line = line


@dataclass(slots=True)
class _Entries:
    """The lines of one sequence: {position: value}, and the line of each position."""

    values: dict[int, float] = field(default_factory=dict)
    lines: dict[int, int] = field(default_factory=dict)
    is_used: bool = False


class SparseChannel:
    """The values of some bases of named sequences; the value of all other bases is 0.

    Args:
        data: the content of a file. Each line has a sequence's name, the position of a base from 0,
            and the value of the base, separated by tabs. Empty lines and lines that begin with "#"
            are skipped.

    Raises:
        ChannelError: a line is invalid, or a base occurs twice.
    """

    def __init__(self, data: bytes) -> None:
        self._sequences: dict[str, _Entries] = {}
        for line, row in enumerate(data.split(b"\n"), 1):
            text = _decode_as_names(row.removesuffix(b"\r"))
            if text and not text.startswith("#"):
                self._add(text.split("\t"), line)

    def _add(self, columns: list[str], line: int) -> None:
        if len(columns) != 3:
            raise ChannelError("must have a name, a position and a value, separated by tabs", line)
        name, position, value = columns
        if not (position.isascii() and position.isdecimal() and len(position) <= 18):
            raise ChannelError("the position must be a whole number from 0 on", line)
        try:
            # Python's numbers may have "_" and digits of other scripts.
            number = float(value) if value.isascii() and "_" not in value else math.nan
        except ValueError:
            number = math.nan
        if not abs(number) <= MAX_FLOAT32:
            raise ChannelError("the value must be a finite 32-bit number", line)
        entries = self._sequences.setdefault(name, _Entries())
        if int(position) in entries.values:
            raise ChannelError("the base already has a value", line)
        entries.values[int(position)] = number
        entries.lines[int(position)] = line

    def values(
        self, name: str, length: int, *, begin: int = 0, continues: bool = False
    ) -> NDArray[np.float32]:
        """Return the values of a sequence's bases, float32[length].

        Args:
            name: the sequence's name.
            length: the number of bases of the sequence or of a part of it.
            begin: the position of the part's first base in the sequence.
            continues: whether the sequence continues after the part.

        Raises:
            ChannelError: a position in the file is beyond the end of the sequence.
        """
        values = np.zeros(length, np.float32)
        if (entries := self._sequences.get(name)) is None:
            return values
        entries.is_used = True
        last = max(entries.values)
        if last >= begin + length and not continues:
            message = f"the position is after the {begin + length} bases of the sequence"
            raise ChannelError(message, entries.lines[last])
        places = np.array([*entries.values], np.int64) - begin
        is_inside = (places >= 0) & (places < length)
        values[places[is_inside]] = np.array([*entries.values.values()])[is_inside]
        return values

    def check_used(self) -> None:
        """Check that the values of every line have been read; call it after the last sequence.

        Raises:
            ChannelError: a line is for a sequence whose values were never requested.
        """
        for entries in self._sequences.values():
            if not entries.is_used:
                line = min(entries.lines.values())
                raise ChannelError("there is no sequence of this name", line)


def _decode_as_names(row: bytes) -> str:
    """Decode a line like the names of FASTA records: as UTF-8 if it is valid, else as Latin-1."""
    try:
        return row.decode()
    except UnicodeDecodeError:
        return row.decode("latin-1")
