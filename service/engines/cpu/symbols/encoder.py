"""Encodes characters and k-mers in C++; the reference encodes the rows that C++ does not support.

These rows may contain a special token, letters that are not ASCII (for k-mers, or if the case is
changed), words that are not k-mers, or circular sequences that cannot wrap. NumPy encodes rows with
characters of several bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.errors import NotCovered
from gpu.host.cores import limit_threads
from service.engines.cpu.dna.encoder import NAME
from service.engines.cpu.symbols.tables import NativeTables, character_tables, kmer_tables
from service.engines.encoder import ReferenceEncoder, encode_parts
from vocabularies.batch.batch import Batch, Encoded, EncodeOptions
from vocabularies.batch.post_processing import NO_ADDED_IDS, AddedIds, Content
from vocabularies.batch.ragged import offsets_from_lengths
from vocabularies.model.tables import CharacterTable, character_table, kmer_table
from vocabularies.model.types import Kmers
from vocabularies.model.vocabulary import Vocabulary

try:
    from service.engines.cpu.symbols import _symbols as native
except ImportError:
    native = None  # type: ignore[assignment]

TASK_BYTES = 1 << 16  # Its letters and ids stay in a core's second cache.
BY_REFERENCE, BY_CODE_POINTS = 1, 2  # Reasons of native/rules.hpp.
NATIVE_DTYPES = (np.uint8, np.uint16, np.int32)
Int64s = NDArray[np.int64]


@dataclass(slots=True, eq=False)
class _NativeRows:
    """The rows of a batch as the extension measured them.

    Attributes:
        measured: the extension's object.
        counts: int64[B], the number of ids of each row.
        reasons: uint8[B], why a row is unsupported; 0 for an encoded row.
    """

    measured: Any
    counts: Int64s
    reasons: NDArray[np.uint8]

    def update(self) -> None:
        """Read the counts and reasons again, as they change when ids are written."""
        native.counts(self.measured, self.counts, self.reasons)


class SymbolEncoder:
    """Encodes batches of characters or k-mers; it is thread-safe.

    Attributes:
        reference: the encoder of the rows that the extension does not support.
        num_threads: the most threads that encode a batch.
        task_bytes: the bytes of rows, or of a part of a long row, that form one task of a thread.

    Raises:
        NotCovered: the extension is not built.
        ValueError: the vocabulary has too many ids.
    """

    name = NAME

    def __init__(self, vocabulary: Vocabulary, num_threads: int = 0) -> None:
        if native is None:
            raise NotCovered("its C++ extension is not built")
        self.reference = ReferenceEncoder(vocabulary)
        self.num_threads = limit_threads(num_threads)
        self.task_bytes = TASK_BYTES
        self.kmers = vocabulary.model if isinstance(vocabulary.model, Kmers) else None
        self.characters: CharacterTable | None = None
        if self.kmers is not None:
            self.native = _make_kmers(vocabulary, self.kmers)
        else:
            self.characters = character_table(vocabulary)
            assert self.characters is not None
            self.native = _make_characters(self.characters)

    def encode(self, batch: Batch, options: EncodeOptions) -> Content:
        """Encode each row, without begin and end tokens; all rows have these options."""
        if (rows := self._measure(batch, options, is_counted=False)) is None:
            return self.reference.encode(batch, options)
        encoded = self._write(rows, batch, options, NO_ADDED_IDS)
        if not rows.reasons.any():
            return Content(encoded.ids, encoded.offsets, encoded.spans)
        by_reference = np.flatnonzero(rows.reasons == BY_REFERENCE)
        by_code_points = np.flatnonzero(rows.reasons == BY_CODE_POINTS)
        parts = [
            (by_reference, self.reference.encode),
            (by_code_points, self._encode_code_points),
        ]
        return encode_parts(batch, options, parts, self.encode)

    def encode_with_added(
        self, batch: Batch, options: EncodeOptions, added: AddedIds
    ) -> Encoded | None:
        """Encode each row, or its reverse complement, with begin and end tokens.

        Returns:
            None if a row is unsupported.
        """
        rows = self._measure(batch, options, is_counted=False)
        if rows is None or rows.reasons.any():
            return None
        encoded = self._write(rows, batch, options, added)
        return None if rows.reasons.any() else encoded

    def count(self, batch: Batch, options: EncodeOptions) -> Content | None:
        """Count the ids of each row, and return the offsets of the ids without the ids.

        Returns:
            None if a row is unsupported.
        """
        rows = self._measure(batch, options, is_counted=True)
        if rows is None or rows.reasons.any():
            return None
        return Content(np.zeros(0, np.int32), offsets_from_lengths(rows.counts))

    def _measure(
        self, batch: Batch, options: EncodeOptions, *, is_counted: bool
    ) -> _NativeRows | None:
        """Count the ids of each row; None for circular rows if k-mers of this kind cannot wrap.

        Args:
            batch: the rows.
            options: the options of all rows.
            is_counted: whether to find all unsupported rows; else `_write` finds some of them.
        """
        circular = False
        if self.kmers is not None:
            circular = self.kmers.circular if options.circular is None else options.circular
            if circular and (self.kmers.frame != "sequence" or self.kmers.stride != 1):
                return None
        measured = native.measure(
            self.native,
            batch.data,
            batch.offsets,
            (options.reverse_complement, circular, options.spans, is_counted),
            self.num_threads,
            self.task_bytes,
        )
        rows = _NativeRows(measured, np.empty(len(batch), np.int64), np.empty(len(batch), np.uint8))
        rows.update()
        return rows

    def _write(
        self, rows: _NativeRows, batch: Batch, options: EncodeOptions, added: AddedIds
    ) -> Encoded:
        """Write the ids of supported rows; ids of rows found unsupported now are not used."""
        size = added.max_piece_tokens
        pieces = 1 if size is None else rows.counts // size + 1
        offsets = offsets_from_lengths((rows.counts + pieces * len(added)) * (rows.reasons == 0))
        num_ids = int(offsets[-1])
        ids = np.empty(num_ids, batch.id_dtype if batch.id_dtype in NATIVE_DTYPES else np.int32)
        spans = np.empty((num_ids, 2), np.int64) if options.spans else None
        native.write(
            rows.measured,
            offsets,
            added.prefix,
            added.suffix,
            size or 0,
            ids,
            spans,
        )
        rows.update()
        return Encoded(ids, offsets, spans)

    def _encode_code_points(self, batch: Batch, options: EncodeOptions) -> Content:
        """Encode rows with characters of several bytes; refuse rows that are not UTF-8."""
        assert self.characters is not None
        texts, errors = batch.texts()
        if errors:
            batch = Batch(texts)
        data, offsets = batch.data, batch.offsets
        characters = np.frombuffer(data.tobytes().decode().encode("utf-32-le"), np.uint32)
        table = self.characters.ids
        ids = table[np.minimum(characters, len(table) - 1)]
        begins = np.flatnonzero((data & 0xC0) != 0x80)
        spans = None
        if options.spans:
            spans = _spans(begins, np.diff(np.append(begins, len(data))), offsets)
        return Content(ids, np.searchsorted(begins, offsets), spans, errors)


def _make_kmers(vocabulary: Vocabulary, model: Kmers) -> Any:
    table = kmer_table(vocabulary)
    numbers = (
        model.k,
        model.stride,
        len(model.letters),
        table.num_kmers,
        model.first_id,
        model.unknown_id,
        model.remainder == "letters",
        model.whitespace == "words",
        model.junction == "prepend",
        False,
    )
    return _make(kmer_tables(model, table), numbers)


def _make_characters(table: CharacterTable) -> Any:
    has_code_points = not table.by_byte
    numbers = (0, 1, 0, 0, 0, 0, False, False, False, has_code_points)
    return _make(character_tables(table), numbers)


def _make(
    tables: NativeTables, numbers: tuple[int, int, int, int, int, int, bool, bool, bool, bool]
) -> Any:
    flags, kinds, codes, characters, complement = tables.arguments()
    return native.make(flags, kinds, codes, characters, complement, numbers)


def _spans(begins: Int64s, sizes: Int64s, offsets: Int64s) -> Int64s:
    """Make spans int64[T, 2] within the rows from positions in the joined bytes."""
    begins = begins - np.repeat(offsets[:-1], np.diff(np.searchsorted(begins, offsets)))
    return np.stack([begins, begins + sizes], axis=1)
