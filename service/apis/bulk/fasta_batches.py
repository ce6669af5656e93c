"""Collects FASTA records into batches for an engine, and splits long ones.

pieces ─► records of up to 4 MiB in total ─► one batch with a row for each record
       └► a longer record, if the vocabulary allows it ─► batches with one row, a part of the record
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.apis.bulk.arrow_reader import TextBatch
from service.apis.bulk.sequence_chunks import Splitter
from service.core.errors import TooLarge
from service.seqio.fasta import Name
from service.seqio.reader import BATCH_BYTES
from vocabularies.batch.batch import Batch

BATCH_RECORDS = 16_384
PART_BYTES = 1 << 20  # The size of a long record's parts; its windows may be ten times as large.


class BaseValues(NamedTuple):
    """A value for each base of the records in a batch.

    Attributes:
        values: float32[N], the values of all rows.
        offsets: int64[B + 1], the start of each row's bases.
    """

    values: NDArray[np.float32]
    offsets: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RecordNames:
    """The names of the records in a batch.

    Attributes:
        names: the name of each row's record.
        begin: the position in its record, in bytes, at which the first row begins.
        continues: whether the record of the last row continues in the next batch.
        channel: the values of the bases; None if there is no channel.
    """

    names: list[str]
    begin: int = 0
    continues: bool = False
    channel: BaseValues | None = None


def make_too_long(num_bytes: int, max_bytes: int, where: str = "record") -> TooLarge:
    """Return the refusal of a record that is too long and cannot be split."""
    limit = f"max_text_bytes is {max_bytes}"
    return TooLarge(f"a record has at least {num_bytes} bytes; {limit}", where)


class FastaBatches:
    """Collects the records of one file.

    Args:
        splitter: splits long records; None: records are not split.
        max_bytes: the maximum size of a record that is not split.
        max_records: the maximum number of records of a batch.
    """

    def __init__(
        self, splitter: Splitter | None, max_bytes: int, max_records: int = BATCH_RECORDS
    ) -> None:
        self._splitter = splitter
        self._max_bytes = max_bytes
        self._max_records = max_records
        self._names: list[str] = []
        self._rows: list[bytes] = []
        self._num_bytes = 0
        self._number = 0  # The number of the current record, from 1.
        self._name: str | None = None
        self._bases: list[bytes] = []
        self._size = 0
        self._begin = 0
        self._split_bytes = PART_BYTES  # The size at which the current record is split.

    def batches(self, pieces: Iterable[Name | bytes]) -> Iterator[TextBatch]:
        """Collect the pieces of records into batches, with RecordNames as metadata.

        Raises:
            TooLarge: a record that cannot be split is longer than `max_bytes`.
        """
        for piece in pieces:
            if isinstance(piece, Name):
                yield from self._end_record()
                self._name = piece
                self._number += 1
                continue
            self._bases.append(piece)
            self._size += len(piece)
            if self._size >= self._split_bytes and self._splitter is not None:
                yield from self._split(self._splitter)
            if self._size > self._max_bytes:
                raise make_too_long(self._size, self._max_bytes, f"record {self._number}")
        yield from self._end_record()
        yield from self._flush()

    def _split(self, splitter: Splitter) -> Iterator[TextBatch]:
        """Split a part off the record; if this is not possible, read more of the record first."""
        assert self._name is not None
        data = np.frombuffer(b"".join(self._bases), np.uint8)
        split = splitter.split(data)
        if split is None:
            self._bases = [data.tobytes()]
            self._split_bytes = 2 * self._size
            return
        yield from self._flush()
        yield self._part(data[: split.part_end], continues=True)
        self._bases = [data[split.rest_begin :].tobytes()]
        self._begin += split.rest_begin
        self._size = len(data) - split.rest_begin
        self._split_bytes = PART_BYTES

    def _part(self, data: NDArray[np.uint8], continues: bool) -> TextBatch:
        assert self._name is not None
        record = RecordNames([self._name], self._begin, continues)
        return TextBatch(Batch(data=data, offsets=np.array([0, len(data)])), record)

    def _end_record(self) -> Iterator[TextBatch]:
        if self._name is None:
            return
        row = self._bases[0] if len(self._bases) == 1 else b"".join(self._bases)
        if self._begin:
            yield self._part(np.frombuffer(row, np.uint8), continues=False)
        else:
            is_full = (
                self._num_bytes + len(row) > BATCH_BYTES or len(self._rows) >= self._max_records
            )
            if self._rows and is_full:
                yield from self._flush()
            self._names.append(self._name)
            self._rows.append(row)
            self._num_bytes += len(row)
        self._name = None
        self._bases = []
        self._size = 0
        self._begin = 0
        self._split_bytes = PART_BYTES

    def _flush(self) -> Iterator[TextBatch]:
        """Yield a batch of the whole records that were collected, if there are any."""
        if self._rows:
            yield TextBatch(Batch.from_bytes(self._rows), RecordNames(self._names))
        self._names = []
        self._rows = []
        self._num_bytes = 0
