"""Encodes vocabularies of single characters: one look-up for a whole batch, no Python for a row.

The reference encodes rows that may contain a special token, and rows with letters whose case only
Unicode defines.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.engines.cpu.byte_pair_lookup import BytePairs
from service.engines.encoder import ReferenceEncoder, encode_parts, flagged_rows, holds_any
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.batch.post_processing import Content
from vocabularies.batch.ragged import offsets_from_lengths
from vocabularies.model.tables import ASCII, DROPPED, CharacterTable
from vocabularies.model.vocabulary import Vocabulary

PART_BYTES = 1 << 20  # No other thread runs during translate; and a part stays in the cache.
MIN_PAIRED_BYTES = 1 << 16  # With less data, Arrow costs more than it saves.
MARK = 255  # Stands for a byte that the look-up alone cannot encode; larger than all ids.
Int64s = NDArray[np.int64]
Ids = np.integer[Any]


class CharacterEncoder:
    """Encodes batches of a vocabulary that has a CharacterTable; several threads may call it."""

    name = "numpy"

    def __init__(self, vocabulary: Vocabulary, table: CharacterTable) -> None:
        self.table = table
        self.reference = ReferenceEncoder(vocabulary)
        self.may_need_reference = bool(table.needs_reference.any())
        ids = table.ids[:256]
        self.is_dropped = ids == DROPPED
        kept = ids[~self.is_dropped]
        is_narrow = len(kept) and 0 <= int(kept.min()) and int(kept.max()) < 256
        self.byte_ids = ids.astype(np.uint8).tobytes() if is_narrow else None
        is_marked = table.needs_reference | self.is_dropped
        if not table.by_byte:
            is_marked[ASCII:] = True
        unmarked = ids[~is_marked]
        self.pairs = None
        if is_narrow and len(unmarked) and int(unmarked.max()) < MARK:
            self.pairs = BytePairs(np.where(is_marked, MARK, ids).astype(np.uint8))

    def encode(self, batch: Batch, options: EncodeOptions) -> Content:
        """Encode each row, without begin and end tokens; all rows have these options."""
        if (ids := self._paired_ids(batch.data, batch.id_dtype)) is not None:
            return _content(ids, batch, options)
        if not self.may_need_reference:
            return self._encode_bytes(batch, options)
        rows = flagged_rows(self.table.needs_reference, batch)
        return encode_parts(batch, options, [(rows, self.reference.encode)], self._encode_bytes)

    def _encode_bytes(self, batch: Batch, options: EncodeOptions) -> Content:
        """Encode rows of which no byte needs the reference."""
        data, offsets = batch.data, batch.offsets
        if not self.table.by_byte and len(data) and int(data.max()) >= ASCII:
            return self._encode_code_points(batch, options)
        drops = self.table.drops and holds_any(self.is_dropped, data)
        if not drops:
            return _content(self._byte_ids(data, batch.id_dtype), batch, options)
        ids = self.table.ids[data]
        kept = ids != DROPPED
        kept_before = offsets_from_lengths(kept.astype(np.int64))
        spans = _spans(np.arange(len(data)), 1, offsets)[kept] if options.spans else None
        return Content(ids[kept], kept_before[offsets], spans)

    def _paired_ids(self, data: NDArray[np.uint8], dtype: type[Ids]) -> NDArray[Ids] | None:
        """Look up many bytes in pairs; None: they are few, or one of them is marked."""
        if self.pairs is None or len(data) < MIN_PAIRED_BYTES:
            return None
        if dtype is np.uint8:
            narrow = self.pairs.look_up(data)
            return None if narrow.max() == MARK else narrow
        ids = np.empty(len(data), dtype)
        for begin in range(0, len(data), PART_BYTES):
            narrow = self.pairs.look_up(data[begin : begin + PART_BYTES])
            if narrow.max() == MARK:
                return None
            ids[begin : begin + PART_BYTES] = narrow
        return ids

    def _byte_ids(self, data: NDArray[np.uint8], dtype: type[Ids]) -> NDArray[Ids]:
        """Look up each byte; bytes.translate is three times as fast as NumPy's look-up."""
        if self.byte_ids is None:
            return self.table.ids[data]
        ids = np.empty(len(data), dtype)
        for begin in range(0, len(data), PART_BYTES):
            part = bytearray(data[begin : begin + PART_BYTES]).translate(self.byte_ids)
            ids[begin : begin + PART_BYTES] = np.frombuffer(part, np.uint8)
        return ids

    def _encode_code_points(self, batch: Batch, options: EncodeOptions) -> Content:
        """Encode rows with characters of several bytes; refuse rows that are not UTF-8."""
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


def _content(ids: NDArray[Ids], batch: Batch, options: EncodeOptions) -> Content:
    """Make the content of a batch in which every byte has one id."""
    spans = _spans(np.arange(len(ids)), 1, batch.offsets) if options.spans else None
    return Content(ids, batch.offsets.copy(), spans)


def _spans(begins: Int64s, sizes: Int64s | int, offsets: Int64s) -> Int64s:
    """Make spans int64[T, 2] within the rows from positions in the joined bytes."""
    begins = begins - np.repeat(offsets[:-1], np.diff(np.searchsorted(begins, offsets)))
    return np.stack([begins, begins + sizes], axis=1)
