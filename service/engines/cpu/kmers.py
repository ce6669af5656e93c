"""Encodes vocabularies of k-mers with NumPy: a whole batch at once, no Python for a row.

The reference encodes rows that need more than a look at each byte: non-ASCII letters, the text of a
special token, a circular sequence that cannot wrap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.engines.encoder import ReferenceEncoder, encode_parts, flagged_rows
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.batch.post_processing import Content
from vocabularies.batch.ragged import offsets_from_lengths, ragged_indices
from vocabularies.model.tables import BASE, SINGLE, SPACE, kmer_table
from vocabularies.model.types import Kmers
from vocabularies.model.vocabulary import Vocabulary

Int64s = NDArray[np.int64]
Numbers = NDArray[np.signedinteger[Any]]
BLOCK = 1 << 15  # K-mers that are numbered at once, so that the arrays stay in the cache.
NO_ROWS = np.zeros(0, np.int64)


@dataclass(slots=True)
class _Segments:
    """Stretches of bytes that are cut into k-mers separately, in order; bytes between give no ids.

    Attributes:
        begins, ends: int64[S], positions in the joined bytes.
        kinds: uint8[S], classes as in KmerTable.
        rows: int64[B + 1], the first segment of each row.
    """

    begins: Int64s
    ends: Int64s
    kinds: NDArray[np.uint8]
    rows: Int64s


class KmerEncoder:
    """Encodes batches of a vocabulary whose model is Kmers; several threads may call it at once."""

    name = "numpy"

    def __init__(self, vocabulary: Vocabulary) -> None:
        assert isinstance(vocabulary.model, Kmers)
        self.model = vocabulary.model
        self.table = kmer_table(vocabulary)
        self.reference = ReferenceEncoder(vocabulary)
        self.powers = [len(self.model.letters) ** i for i in reversed(range(self.model.k))]
        largest = self.table.num_kmers * sum(self.powers)
        number_type = np.int32 if largest < 2**31 else np.int64
        self.codes: Numbers = self.table.codes.astype(number_type)

    def encode(self, batch: Batch, options: EncodeOptions) -> Content:
        """Encode each row, without begin and end tokens; all rows have these options."""
        circular = self.model.circular if options.circular is None else options.circular
        if circular and (self.model.frame != "sequence" or self.model.stride != 1):
            return self.reference.encode(batch, options)
        by_reference = flagged_rows(self.table.needs_reference, batch)
        words = with_signs = NO_ROWS
        if circular:
            by_reference = np.union1d(by_reference, self._find_unwrappable(batch))
        elif self.model.whitespace == "words":
            with_signs = self._find_with_signs(by_reference, batch)
            words, irregular = self._find_words(batch)
            by_reference = np.union1d(by_reference, irregular)
            by_reference = np.setdiff1d(by_reference, with_signs, assume_unique=True)
            words = np.setdiff1d(words, by_reference, assume_unique=True)
        parts = [
            (by_reference, self.reference.encode),
            (words, self._encode_words),
            (with_signs, self._encode_with_signs),
        ]
        others = self._encode_circular if circular else self._encode_linear
        return encode_parts(batch, options, parts, others)

    def _find_unwrappable(self, batch: Batch) -> Int64s:
        """Find circular rows that cannot wrap, which the reference refuses with the reason."""
        short = np.flatnonzero(np.diff(batch.offsets) < self.model.k)
        if self.model.whitespace == "letter":
            return short
        return np.union1d(short, flagged_rows(self.table.is_space, batch))

    def _find_words(self, batch: Batch) -> tuple[Int64s, Int64s]:
        """Find rows of k letters, one white space, k letters ...; and other rows with some."""
        places = np.flatnonzero(self.table.is_space[batch.data])
        if not len(places):
            return NO_ROWS, NO_ROWS
        offsets, period = batch.offsets, self.model.k + 1
        rows = np.searchsorted(offsets, places, side="right") - 1
        fits = (places - offsets[rows]) % period == self.model.k
        num_fitting = np.bincount(rows[fits], minlength=len(batch))
        num_spaces = np.bincount(rows, minlength=len(batch))
        num_words, rest = np.divmod(np.diff(offsets) + 1, period)
        regular = (rest == 0) & (num_fitting == num_spaces) & (num_spaces == num_words - 1)
        has_space = num_spaces > 0
        return np.flatnonzero(regular & has_space), np.flatnonzero(~regular & has_space)

    def _find_with_signs(self, flagged: Int64s, batch: Batch) -> Int64s:
        """Find the flagged rows that are flagged only for ASCII signs, such as gaps and stops."""
        if not len(flagged) or not self.table.is_sign.any():
            return NO_ROWS
        others = self.table.needs_reference & ~self.table.is_sign | self.table.is_space
        return np.setdiff1d(flagged, flagged_rows(others, batch), assume_unique=True)

    def _encode_with_signs(self, batch: Batch, options: EncodeOptions) -> Content:
        """Encode k-mers at every base; one with signs gives as many unknown ids as it has pieces.

        Each sign is a piece, and so is each run of letters between signs. Example, k = 3: A-C has
        the pieces A, - and C.
        """
        k, offsets, is_sign = self.model.k, batch.offsets, self.table.is_sign[batch.data]
        content = self._encode_every_base(batch.data, offsets)
        places = ragged_indices(offsets[:-1], np.diff(content.offsets))
        begins_run = ~is_sign
        begins_run[1:] &= is_sign[:-1]
        signs, runs = (
            offsets_from_lengths(flags.astype(np.int64)) for flags in (is_sign, begins_run)
        )
        pieces = signs[places + k] - signs[places] + ~is_sign[places]
        pieces += runs[places + k] - runs[places + 1]
        spans = None
        if options.spans:
            begins = places - np.repeat(offsets[:-1], np.diff(content.offsets))
            spans = np.repeat(np.stack([begins, begins + k], axis=1), pieces, axis=0)
        ids = np.repeat(content.ids, pieces)
        return Content(ids, offsets_from_lengths(pieces)[content.offsets], spans)

    def _encode_words(self, batch: Batch, options: EncodeOptions) -> Content:
        """Encode rows of k letters, one white space, k letters ..."""
        period, offsets = self.model.k + 1, batch.offsets
        counts = (np.diff(offsets) + 1) // period
        places = ragged_indices(offsets[:-1], counts, period)
        spans = None
        if options.spans:
            begins = places - np.repeat(offsets[:-1], counts)
            spans = np.stack([begins, begins + self.model.k], axis=1)
        return Content(self._ids_at(batch.data, places), offsets_from_lengths(counts), spans)

    def _encode_linear(self, batch: Batch, options: EncodeOptions) -> Content:
        return self._encode(batch.data, batch.offsets, options.spans)

    def _encode_circular(self, batch: Batch, options: EncodeOptions) -> Content:
        """Encode each row followed by its first, or preceded by its last, k - 1 letters."""
        k, offsets, prepend = self.model.k, batch.offsets, self.model.junction == "prepend"
        sizes = np.diff(offsets)
        longer = offsets_from_lengths(sizes + k - 1)
        places = np.arange(longer[-1]) - np.repeat(longer[:-1], sizes + k - 1)
        if prepend:
            places -= k - 1
            places[places < 0] += np.repeat(sizes, k - 1)
        else:
            places -= np.repeat(sizes, sizes + k - 1) * (places >= np.repeat(sizes, sizes + k - 1))
        index = places + np.repeat(offsets[:-1], sizes + k - 1)
        content = self._encode(batch.data[index], longer, False)
        if options.spans:
            begins = np.arange(offsets[-1]) - np.repeat(offsets[:-1], sizes)
            wraps_at = np.repeat(sizes, sizes)
            if prepend:
                begins = (begins - (k - 1)) % wraps_at
            content.spans = np.stack([begins, np.minimum(begins + k, wraps_at)], axis=1)
        return content

    def _encode(self, data: NDArray[np.uint8], offsets: Int64s, with_spans: bool) -> Content:
        model = self.model
        if model.frame == "sequence" and model.stride == 1 and model.remainder == "drop":
            has_gaps = model.whitespace == "skip" and self.table.is_space[data].any()
            if not with_spans and not has_gaps:
                return self._encode_every_base(data, offsets)
        is_run = model.frame == "run"
        segments = self._find_runs(data, offsets) if is_run else self._find_rows(data, offsets)
        return self._encode_segments(data, offsets, segments, with_spans)

    def _encode_every_base(self, data: NDArray[np.uint8], offsets: Int64s) -> Content:
        """Encode k-mers at every base, without those across the border of two rows."""
        k, num_places = self.model.k, max(len(data) - self.model.k + 1, 0)
        ids = self._all_ids(data, num_places)
        if len(offsets) == 2:
            return Content(ids, np.array([0, num_places]))
        filled = np.flatnonzero(np.diff(offsets))
        ends, begins = offsets[1:][filled, None], offsets[:-1][filled, None]
        borders = np.maximum(ends - np.arange(1, k), begins).ravel()
        inside = np.ones(num_places, np.bool_)
        inside[borders[borders < num_places]] = False
        counts = np.maximum(np.diff(offsets) - k + 1, 0)
        return Content(ids[inside], offsets_from_lengths(counts))

    def _find_rows(self, data: NDArray[np.uint8], offsets: Int64s) -> _Segments:
        """Make a segment of each row, or several if white space is skipped."""
        begins, ends, rows = offsets[:-1], offsets[1:], np.arange(len(offsets))
        if self.model.whitespace == "skip":
            spaces = np.flatnonzero(self.table.classes[data] == SPACE)
            begins = np.sort(np.concatenate([begins, spaces + 1]))
            ends = np.sort(np.concatenate([ends, spaces]))
            rows = rows + np.searchsorted(spaces, offsets)
        return _Segments(begins, ends, np.full(len(begins), BASE, np.uint8), rows)

    def _find_runs(self, data: NDArray[np.uint8], offsets: Int64s) -> _Segments:
        """Make a segment of each maximal run of one class, and of each byte of class SINGLE."""
        classes = self.table.classes[data]
        starts = classes == SINGLE
        starts[1:] |= classes[1:] != classes[:-1]
        starts[offsets[offsets < len(data)]] = True
        begins = np.flatnonzero(starts)
        ends = np.append(begins[1:], len(data)) if len(begins) else begins
        return _Segments(begins, ends, classes[begins], np.searchsorted(begins, offsets))

    def _encode_segments(
        self, data: NDArray[np.uint8], offsets: Int64s, segments: _Segments, with_spans: bool
    ) -> Content:
        """Encode segments: k-mers, remaining letters, single letters, and unknown runs."""
        model, begins, sizes = self.model, segments.begins, segments.ends - segments.begins
        is_base = segments.kinds == BASE
        num_kmers = np.where(is_base, np.maximum((sizes - model.k) // model.stride + 1, 0), 0)
        num_rest = np.zeros_like(sizes)
        covered = np.where(num_kmers > 0, (num_kmers - 1) * model.stride + model.k, 0)
        if model.remainder == "letters":
            num_rest = np.where(is_base, sizes - covered, 0)
        alone = np.flatnonzero(~is_base & (segments.kinds != SPACE))
        counts = num_kmers + num_rest
        counts[alone] = 1
        places = offsets_from_lengths(counts)
        ids = np.empty(int(places[-1]), np.int32)
        kmers = ragged_indices(begins, num_kmers, model.stride)
        rest = ragged_indices(begins + covered, num_rest)
        at_kmers = ragged_indices(places[:-1], num_kmers)
        at_rest = ragged_indices(places[:-1] + num_kmers, num_rest)
        ids[at_kmers] = self._ids_at(data, kmers)
        ids[at_rest] = self.table.letter_ids[data[rest]]
        # A byte of class OTHER has the unknown id in this table.
        ids[places[alone]] = self.table.letter_ids[data[begins[alone]]]
        row_places = places[segments.rows]
        content = Content(ids, row_places)
        if with_spans:
            content.spans = spans = np.empty((len(ids), 2), np.int64)
            spans[at_kmers] = np.stack([kmers, kmers + model.k], axis=1)
            spans[at_rest] = np.stack([rest, rest + 1], axis=1)
            spans[places[alone]] = np.stack([begins[alone], segments.ends[alone]], axis=1)
            spans -= np.repeat(offsets[:-1], np.diff(row_places))[:, None]
        return content

    def _ids_at(self, data: NDArray[np.uint8], places: Int64s) -> NDArray[np.int32]:
        """Compute int32[P], the ids of the k-mers that begin at the positions int64[P]."""
        ids = np.empty(len(places), np.int32)
        for first in range(0, len(places), BLOCK):
            block = places[first : first + BLOCK]
            numbers = np.zeros(len(block), self.codes.dtype)
            for i, power in enumerate(self.powers):
                numbers += self.codes[data[block + i]] * power
            ids[first : first + BLOCK] = self._to_ids(numbers)
        return ids

    def _all_ids(self, data: NDArray[np.uint8], num_places: int) -> NDArray[np.int32]:
        """Compute int32[P], the ids of the k-mers that begin at 0 .. P - 1."""
        ids = np.empty(num_places, np.int32)
        for first in range(0, num_places, BLOCK):
            last = min(first + BLOCK, num_places)
            codes = self.codes[data[first : last + self.model.k - 1]]
            ids[first:last] = self._to_ids(self._number_all(codes))
        return ids

    def _number_all(self, codes: Numbers) -> Numbers:
        """Number the k-mers at all letters of a sequence of codes.

        Numbers of 2, 4, ... letters are made of two of half the length, and those of the lengths
        in the binary digits of k are joined, so that k = 6 takes three steps instead of six.
        """
        k, base = self.model.k, len(self.model.letters)
        numbers, width = codes, 1
        result, covered = np.zeros(len(codes) + 1, codes.dtype), 0
        while True:
            if k & width:
                num_places = len(codes) + 1 - covered - width
                result = numbers[:num_places] * base**covered + result[width:]
                covered += width
            if covered == k:
                return result
            numbers = numbers[:-width] * base**width + numbers[width:]
            width *= 2

    def _to_ids(self, numbers: Numbers) -> Numbers:
        unknown = numbers >= self.table.num_kmers
        numbers += self.model.first_id
        numbers[unknown] = self.model.unknown_id
        return numbers
