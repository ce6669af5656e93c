"""Collects the answer to a batch from its chunks, as they finish.

Ids and spans are copied from the device into the arrays of the answer. Offsets, errors and
truncation are collected by row. A row that was split into parts gets its begin and end tokens here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.batch.row_options import NO_BYTE, RowOptions, drop_rows, row_errors
from gpu.host.arrays import address_of
from gpu.large.chunk_in_flight import ChunkInFlight
from gpu.memory.pinned_pool import PinnedPool
from gpu.memory.workspace import Workspace
from vocabularies.batch.batch import Batch, Encoded, RowError
from vocabularies.model.vocabulary import Vocabulary

Int64s = NDArray[np.int64]
SPARE = 1.05  # More room, because the text of later chunks may have more ids.
SPARE_ITEMS = 1024


class GrowingArray:
    """A growing array of rows of `width` items, in leased pinned memory if possible.

    Attributes:
        size: the number of rows; copies may still be writing them.
        is_leased: whether the memory is leased, so that the device can write it.
    """

    def __init__(self, leases: PinnedPool, dtype: type[np.generic], width: int = 1) -> None:
        self.leases, self.dtype, self.width, self.size = leases, np.dtype(dtype), width, 0
        self._array, self.is_leased = np.empty(0, dtype), False
        self._filling: set[Workspace] = set()

    def add(self, count: int, share: float, flight: ChunkInFlight | None = None) -> int:
        """Append `count` rows and return their address.

        Args:
            count: the number of rows.
            share: the share of the array that is then complete, from which its final size is
                estimated.
            flight: the chunk that writes the rows later; None: the caller writes them.
        """
        if (self.size + count) * self.width > len(self._array):
            self._grow(count, share)
        if flight is not None:
            self._filling.add(flight.workspace)
        place = address_of(self._array) + self.size * self.width * self.dtype.itemsize
        self.size += count
        return place

    def _grow(self, count: int, share: float) -> None:
        for workspace in self._filling:
            workspace.stream.synchronize()
        spare = SPARE if share < 1 else 1
        items = (int((self.size + count) / share * spare) + SPARE_ITEMS) * self.width
        block = self.leases.take(items * self.dtype.itemsize)
        self.is_leased = block is not None
        if block is None:
            larger = np.empty(items, self.dtype)
        else:
            larger = block[: items * self.dtype.itemsize].view(self.dtype)
        larger[: self.size * self.width] = self._array[: self.size * self.width]
        self._array = larger

    def last(self, count: int) -> NDArray[np.generic]:
        """Return the last `count` rows, as a view."""
        return self._array[(self.size - count) * self.width : self.size * self.width]

    def filled(self) -> NDArray[np.generic]:
        """Return all rows, as a view that keeps the memory."""
        return self._array[: self.size * self.width]


class _Findings:
    """Collects the faulty bytes that kernels report, by row of the batch."""

    def __init__(self, vocabulary: Vocabulary, batch: Batch, options: RowOptions) -> None:
        self.vocabulary, self.batch, self.options = vocabulary, batch, options
        self.places = np.full(len(batch), NO_BYTE, np.uint32)

    def note(self, flight: ChunkInFlight) -> None:
        """Note what the kernels report for a chunk."""
        first, rows = flight.chunk.first_row, flight.chunk.num_rows
        found = flight.errors()
        if found is not None:
            own = self.places[first : first + rows]
            np.minimum(own, found, out=own)

    def errors(self) -> dict[int, RowError]:
        """Return the errors of the refused rows."""
        return row_errors(self.vocabulary, self.batch, self.options, self.places)


class RowsRefused(Exception):
    """A row is refused in a batch of ids of 8 or 16 bits, which cannot be removed on the device."""


class BatchAnswer:
    """Collects the `Encoded` of a batch; chunks must have ids of as many bits as its dtype.

    Attributes:
        has_collected: whether any chunk has been collected.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        batch: Batch,
        options: RowOptions,
        leases: PinnedPool,
        id_dtype: type[np.integer[Any]] = np.int32,
    ) -> None:
        self.vocabulary, self.batch, self.options = vocabulary, batch, options
        self.ids = GrowingArray(leases, id_dtype)
        self.spans = GrowingArray(leases, np.int64, 2)
        self.offsets = np.zeros(len(batch) + 1, np.int64)
        self.findings = _Findings(vocabulary, batch, options)
        self.has_collected = False
        self._cut_rows: list[int] = []
        self._truncated: list[tuple[slice, Int64s, Int64s]] = []

    def collect(self, flight: ChunkInFlight) -> None:
        """Collect a chunk: queue copies of its ids and spans; store offsets, errors and truncation.

        Raises:
            RowsRefused: a row is refused, and ids have fewer than 32 bits.
        """
        if self.ids.dtype != np.int32 and flight.errors() is not None:
            raise RowsRefused
        self.has_collected, chunk = True, flight.chunk
        rows = slice(chunk.first_row, chunk.first_row + chunk.num_rows)
        share = max(1, chunk.end) / max(1, len(self.batch.data))
        self.findings.note(flight)
        if chunk.begins_row:
            np.add(flight.offsets[:-1], self.ids.size, out=self.offsets[rows])
        if chunk.is_part:
            self._cut_rows += [chunk.first_row]
            self._append_added_ids(chunk.begins_row, self.vocabulary.prefix, chunk.first_row, share)
        num_ids = flight.num_ids
        place = self.ids.add(num_ids, share, flight)
        if self.ids.is_leased:
            flight.copy_ids(place, flight.num_bytes)
        else:
            flight.bring_ids(self.ids.last(num_ids).view(np.uint8))
        if flight.with_spans:
            flight.copy_spans(self.spans.add(num_ids, share, flight), 16 * num_ids)
        if chunk.is_part:
            self._append_added_ids(chunk.ends_row, self.vocabulary.suffix, chunk.first_row, share)
        self.offsets[rows.stop] = self.ids.size
        truncated = flight.truncated()
        if truncated is not None:
            self._truncated.append((rows, *truncated))

    def _append_added_ids(self, is_end: bool, side: Sequence[int], row: int, share: float) -> None:
        """Append the begin or end tokens of a row that was split into parts."""
        if is_end and side and self.options.adds(row):
            self.ids.add(len(side), share)
            self.ids.filled()[-len(side) :] = side

    def finish(self) -> Encoded:
        """Return the answer; all chunks must be collected, and their copies must be done."""
        errors = self.findings.errors()
        ids: NDArray[Any] = self.ids.filled()
        encoded = Encoded(ids, self.offsets, errors=errors, engine="gpu")
        if self.options.spans is not None:
            encoded.spans = self.spans.filled().view(np.int64).reshape(-1, 2)
            if not self.options.spans.all():
                encoded.spans[np.repeat(~self.options.spans, np.diff(self.offsets))] = 0
        if any(row in errors for row in self._cut_rows):
            drop_rows(encoded)
        if self._truncated:
            self._report_truncation(encoded)
        return encoded

    def _report_truncation(self, encoded: Encoded) -> None:
        """Add the number of ids of each row before truncation, and the range that was kept."""
        sizes = np.diff(encoded.offsets)
        added = len(self.vocabulary.prefix) + len(self.vocabulary.suffix)
        own = np.maximum(0, sizes - added * self.options.added_rows())
        encoded.num_tokens = sizes
        encoded.kept = np.stack([np.zeros_like(own), own], axis=1)
        for rows, num_tokens, kept in self._truncated:
            encoded.num_tokens[rows], encoded.kept[rows] = num_tokens, kept


class Counts:
    """Collects the number of ids of each row."""

    def __init__(self, vocabulary: Vocabulary, batch: Batch, options: RowOptions) -> None:
        self.findings = _Findings(vocabulary, batch, options)
        self.counts = np.zeros(len(batch), np.int64)
        self.options, self.has_collected = options, False
        self._added = len(vocabulary.prefix) + len(vocabulary.suffix)

    def collect(self, flight: ChunkInFlight) -> None:
        """Collect a chunk: note the numbers of ids of its rows."""
        self.has_collected, chunk = True, flight.chunk
        self.findings.note(flight)
        rows = slice(chunk.first_row, chunk.first_row + chunk.num_rows)
        self.counts[rows] += np.diff(flight.offsets)
        if chunk.is_part and chunk.begins_row and self.options.adds(chunk.first_row):
            self.counts[chunk.first_row] += self._added

    def finish(self) -> tuple[Int64s, dict[int, RowError]]:
        """Return the counts int64[B] and the errors of the refused rows, whose counts are 0."""
        errors = self.findings.errors()
        self.counts[list(errors)] = 0
        return self.counts, errors
