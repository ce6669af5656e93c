"""Collects FASTA records into batches for an engine, and splits long ones.

pieces ─► records up to 4 MiB together ─► a batch of rows
       └► a longer one, where its ids allow it ─► batches of one row each, a part of it
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.apis.bulk.sequence_chunks import Splitter
from service.core.errors import TooLarge
from service.seqio.fasta import Name
from service.seqio.reader import BATCH_BYTES
from vocabularies.batch.batch import Batch

BATCH_RECORDS = 16_384
PART_BYTES = 1 << 20  # The size of a long record's parts; windows take up to ten times as much.


@dataclass(frozen=True, slots=True)
class RecordNames:
    """The names of the records in a batch.

    Attributes:
        names: the name of each row's record.
        begin: the place in its record at which the first row begins, in bytes.
        goes_on: whether the next batch continues the record of the last row.
    """

    names: list[str]
    begin: int = 0
    goes_on: bool = False


def make_too_long(num_bytes: int, max_bytes: int) -> TooLarge:
    """Make the refusal of a record that cannot be split."""
    limit = f"max_text_bytes is {max_bytes}"
    return TooLarge(f"a record has more than {num_bytes} bytes; {limit}", "record")


class FastaBatches:
    """Collects the records of one file.

    Args:
        splitter: splits long records; None: records stay whole.
        max_bytes: the most bytes of a record that stays whole.
    """

    def __init__(self, splitter: Splitter | None, max_bytes: int) -> None:
        self._splitter = splitter
        self._max_bytes = max_bytes
        self._names: list[str] = []
        self._rows: list[bytes] = []
        self._num_bytes = 0
        self._name: str | None = None  # Of the record that is being read.
        self._bases: list[bytes] = []
        self._size = 0
        self._begin = 0
        self._enough = PART_BYTES  # Bases at which the record is split.

    def batches(self, pieces: Iterable[Name | bytes]) -> Iterator[tuple[RecordNames, Batch]]:
        """Make batches of names and bases."""
        for piece in pieces:
            if isinstance(piece, Name):
                yield from self._end_record()
                self._name = piece
                continue
            self._bases.append(piece)
            self._size += len(piece)
            if self._size >= self._enough and self._splitter is not None:
                yield from self._split(self._splitter)
            if self._size > self._max_bytes:
                raise make_too_long(self._size, self._max_bytes)
        yield from self._end_record()
        yield from self._flush()

    def _split(self, splitter: Splitter) -> Iterator[tuple[RecordNames, Batch]]:
        """Split a part off the record; if that is impossible, wait until more of it is read."""
        assert self._name is not None
        data = np.frombuffer(b"".join(self._bases), np.uint8)
        end, rest = splitter.split(data)
        if not end:
            self._bases, self._enough = [data.tobytes()], 2 * self._size
            return
        yield from self._flush()
        yield self._part(data[:end], goes_on=True)
        self._bases, self._begin = [data[rest:].tobytes()], self._begin + rest
        self._size, self._enough = len(data) - rest, PART_BYTES

    def _part(self, data: NDArray[np.uint8], goes_on: bool) -> tuple[RecordNames, Batch]:
        assert self._name is not None
        named = RecordNames([self._name], self._begin, goes_on)
        return named, Batch(data=data, offsets=np.array([0, len(data)]))

    def _end_record(self) -> Iterator[tuple[RecordNames, Batch]]:
        if self._name is None:
            return
        row = self._bases[0] if len(self._bases) == 1 else b"".join(self._bases)
        if self._begin:
            yield self._part(np.frombuffer(row, np.uint8), goes_on=False)
        else:
            too_much = self._num_bytes + len(row) > BATCH_BYTES
            if self._rows and (too_much or len(self._rows) >= BATCH_RECORDS):
                yield from self._flush()
            self._names.append(self._name)
            self._rows.append(row)
            self._num_bytes += len(row)
        self._name, self._bases = None, []
        self._size = 0
        self._begin = 0
        self._enough = PART_BYTES

    def _flush(self) -> Iterator[tuple[RecordNames, Batch]]:
        """Give the whole records that were read."""
        if self._rows:
            yield RecordNames(self._names), Batch.from_bytes(self._rows)
        self._names = []
        self._rows = []
        self._num_bytes = 0
