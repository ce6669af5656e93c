"""Encodes BPE of DNA letters in C++; another encoder encodes the rows that C++ does not support.

Such rows contain special tokens that strip white space or are matched after the normalizers,
letters that are not ASCII, or letters that are dropped without an id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.errors import NotCovered
from gpu.host.cores import limit_threads
from service.engines.encoder import Encoder, EncodeRows
from vocabularies.batch.batch import SPECIAL, Batch, Encoded, EncodeOptions
from vocabularies.batch.post_processing import NO_ADDED_IDS, AddedIds, Content, join_rows
from vocabularies.batch.ragged import offsets_from_lengths
from vocabularies.model.vocabulary import Vocabulary

try:
    from service.engines.cpu.dna import _dna_bpe as native
except ImportError:
    native = None  # type: ignore[assignment]

NAME = "warptok C++"
TASK_BYTES = 1 << 16  # Its tables and letters stay in a core's cache.


@dataclass(slots=True, eq=False)
class _NativeRows:
    """The rows of a batch after the extension has encoded them.

    Attributes:
        encoded: the extension's object.
        counts: int64[B], the number of ids of each row; 0 for an unsupported row.
        reasons: uint8[B], why a row is unsupported, see `tables.REASONS`; 0 for an encoded row.
    """

    encoded: Any
    counts: NDArray[np.int64]
    reasons: NDArray[np.uint8]


class DnaEncoder:
    """Encodes batches of a vocabulary of DNA letters; it is thread-safe.

    Attributes:
        other: the encoder of the rows that the extension does not support.
        encode_left: encodes these rows with `other`.
        count_left: called with the reasons of a batch's unsupported rows.
        num_threads: the most threads that encode a batch.
        task_bytes: the bytes of rows, or of a part of a long row, that form one task of a thread.
        num_bytes: an estimate of the memory of the tables.

    Raises:
        NotCovered: the extension is not built, or does not support the vocabulary.
    """

    name = NAME

    def __init__(self, vocabulary: Vocabulary, other: Encoder, num_threads: int = 0) -> None:
        if native is None:
            raise NotCovered("its C++ extension is not built")
        # Imported here: it brings the tables of the kernels, which only DNA needs.
        from service.engines.cpu.dna import tables

        self.other = other
        self.encode_left: EncodeRows = other.encode
        self.count_left: Callable[[Iterable[str]], None] = lambda reasons: None
        arguments = tables.native_arguments(vocabulary)
        self.native = native.make(*arguments)
        self.num_bytes = tables.table_bytes(arguments)
        self.reasons = tables.REASONS
        self.num_threads = limit_threads(num_threads)
        self.task_bytes = TASK_BYTES

    def encode(self, batch: Batch, options: EncodeOptions) -> Content:
        """Encode each row, without begin and end tokens; all rows have these options."""
        rows = self._encode_rows(batch, options)
        encoded = self._write(rows, batch, options, NO_ADDED_IDS)
        content = Content(encoded.ids, encoded.offsets, encoded.spans)
        left = np.flatnonzero(rows.reasons)
        if not len(left):
            return content
        self.count_left([self.reasons[reason] for reason in np.unique(rows.reasons[left])])
        other_rows = self.encode_left(batch.select(left.tolist(), options), options)
        done = np.flatnonzero(rows.reasons == 0)
        content.offsets = offsets_from_lengths(rows.counts[done])
        return join_rows([(done, content), (left, other_rows)], len(batch))

    def encode_with_added(
        self, batch: Batch, options: EncodeOptions, added: AddedIds
    ) -> Encoded | None:
        """Encode each row with begin and end tokens, without copying the ids.

        Returns:
            None if the extension does not support a row.
        """
        rows = self._encode_rows(batch, options)
        if rows.reasons.any():
            return None
        return self._write(rows, batch, options, added)

    def count(self, batch: Batch, options: EncodeOptions) -> Content | None:
        """Encode each row, and return the offsets of the ids without the ids.

        Returns:
            None if the extension does not support a row.
        """
        rows = self._encode_rows(batch, options)
        if rows.reasons.any():
            return None
        return Content(np.zeros(0, np.int32), offsets_from_lengths(rows.counts))

    def _encode_rows(self, batch: Batch, options: EncodeOptions) -> _NativeRows:
        mode = SPECIAL.index(options.special)
        encoded = native.encode(
            self.native,
            batch.data,
            batch.offsets,
            mode,
            options.spans,
            self.num_threads,
            self.task_bytes,
        )
        counts, reasons = np.empty(len(batch), np.int64), np.empty(len(batch), np.uint8)
        native.counts(encoded, counts, reasons)
        return _NativeRows(encoded, counts, reasons)

    def _write(
        self, rows: _NativeRows, batch: Batch, options: EncodeOptions, added: AddedIds
    ) -> Encoded:
        """Write the ids of the supported rows."""
        offsets = offsets_from_lengths(rows.counts + (rows.reasons == 0) * len(added))
        num_ids = int(offsets[-1])
        dtype: type[np.integer[Any]] = np.uint16 if batch.id_dtype is np.uint16 else np.int32
        ids = np.empty(num_ids, dtype)
        spans = np.empty((num_ids, 2), np.int64) if options.spans else None
        native.write(rows.encoded, offsets, added.prefix, added.suffix, ids, spans)
        return Encoded(ids, offsets, spans)
