"""Characters of a whole batch with one look-up: no Python runs for a row.

A row that may hold a special token, or whose case only Unicode knows, is left to the reference.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.encoders import ReferenceEncoder, encode_parts, flagged_rows, holds_any
from vocabularies.batch import Batch, EncodeOptions
from vocabularies.framing import Content, offsets_of
from vocabularies.tables import ASCII, DROPPED, CharacterTable
from vocabularies.vocabulary import Vocabulary

__all__ = ["CharacterEncoder"]

PART_BYTES = 1 << 20  # translate keeps other threads waiting, and a part stays in the cache.
Int64s = NDArray[np.int64]
Ids = np.integer[Any]


class CharacterEncoder:
    """Encodes batches for a vocabulary that has a CharacterTable; safe for several threads."""

    name = "numpy"

    def __init__(self, vocabulary: Vocabulary, table: CharacterTable) -> None:
        self.table = table
        self.reference = ReferenceEncoder(vocabulary)
        self.has_rare = bool(table.is_rare.any())
        ids = table.ids[:256]
        self.is_dropped = ids == DROPPED
        kept = ids[~self.is_dropped]
        is_narrow = len(kept) and 0 <= int(kept.min()) and int(kept.max()) < 256
        self.byte_ids = ids.astype(np.uint8).tobytes() if is_narrow else None

    def encode(self, batch: Batch, options: EncodeOptions) -> Content:
        """The ids of each row, without begin and end tokens; all rows have these options."""
        rare = flagged_rows(self.table.is_rare, batch) if self.has_rare else np.zeros(0, np.int64)
        return encode_parts(batch, options, [(rare, self.reference.encode)], self._look_up)

    def _look_up(self, batch: Batch, options: EncodeOptions) -> Content:
        data, offsets = batch.data, batch.offsets
        if not self.table.by_byte and len(data) and int(data.max()) >= ASCII:
            return self._code_points(batch, options)
        drops = self.table.drops and holds_any(self.is_dropped, data)
        ids = self.table.ids[data] if drops else self._ids(data, batch.id_dtype)
        spans = _spans(np.arange(len(data)), 1, offsets) if options.spans else None
        if not drops:
            return Content(ids, offsets.copy(), spans)
        kept = ids != DROPPED
        kept_before = offsets_of(kept.astype(np.int64))
        spans = None if spans is None else spans[kept]
        return Content(ids[kept], kept_before[offsets], spans)

    def _ids(self, data: NDArray[np.uint8], dtype: type[Ids]) -> NDArray[Ids]:
        """The ids of bytes; bytes.translate is three times as fast as NumPy's look-up."""
        if self.byte_ids is None:
            return self.table.ids[data]
        ids = np.empty(len(data), dtype)
        for begin in range(0, len(data), PART_BYTES):
            part = bytearray(data[begin : begin + PART_BYTES]).translate(self.byte_ids)
            ids[begin : begin + PART_BYTES] = np.frombuffer(part, np.uint8)
        return ids

    def _code_points(self, batch: Batch, options: EncodeOptions) -> Content:
        """Rows with characters of several bytes; those that are not UTF-8 are refused."""
        texts, errors = batch.texts()
        if errors:
            batch = Batch(texts)
        data, offsets = batch.data, batch.offsets
        characters = np.frombuffer(data.tobytes().decode().encode("utf-32-le"), np.uint32)
        ids = self.table.ids[np.minimum(characters, len(self.table.ids) - 1)]
        begins = np.flatnonzero((data & 0xC0) != 0x80)
        spans = None
        if options.spans:
            spans = _spans(begins, np.diff(np.append(begins, len(data))), offsets)
        return Content(ids, np.searchsorted(begins, offsets), spans, errors)


def _spans(begins: Int64s, sizes: Int64s | int, offsets: Int64s) -> Int64s:
    """int64[T, 2] in the rows from places in the joined bytes."""
    begins = begins - np.repeat(offsets[:-1], np.diff(np.searchsorted(begins, offsets)))
    return np.stack([begins, begins + sizes], axis=1)
