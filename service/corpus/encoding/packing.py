"""Packs documents into rows of equal length: documents are joined and cut where a row ends.

documents  |--a--|-----b-----|---c---|
rows       |-------|-------|-------|     the rest waits for the next documents
"""

from __future__ import annotations

import numpy as np

from service.corpus.documents import Int64s, Rows


class Packer:
    """Makes rows of equal length from consecutive documents.

    Args:
        length: the number of ids in a row.
        skip: the number of the first document's ids that are already in earlier rows.
        input_number, place: the file number and the place of the first document.
    """

    def __init__(self, length: int, skip: int, input_number: int, place: int) -> None:
        self.length = length
        self._unread = skip
        self._skip = skip
        self._rest: Rows | None = None
        self._inputs = np.array([input_number], np.int64)
        self._places = np.array([place], np.int64)

    @property
    def num_left(self) -> int:
        """The number of ids that wait for the next documents."""
        return 0 if self._rest is None else len(self._rest.ids)

    def add(self, rows: Rows) -> Rows:
        """Add documents, one per row of `rows`, and return the packed rows that are complete."""
        joined = self._join(rows)
        # Where each document begins, and in the last place where the one behind them does.
        inputs = np.concatenate([self._inputs[:1], joined.next_inputs])
        places = np.concatenate([self._places[:1], joined.next_places])
        num_rows = len(joined.ids) // self.length
        ends = np.arange(1, num_rows + 1) * self.length
        packed, first, skips = self._cut(joined, ends, inputs, places)
        if num_rows:
            self._skip = int(skips[-1])
            begin = int(first[-1])
        else:
            begin = 0
        self._keep(joined, begin, num_rows * self.length)
        self._inputs, self._places = inputs[begin:], places[begin:]
        return packed

    def _join(self, rows: Rows) -> Rows:
        """Prepend the waiting ids to new documents; drop ids that are already in earlier rows."""
        if self._unread and len(rows):
            lengths = np.diff(rows.offsets)
            lengths[0] -= self._unread
            offsets = np.concatenate([[0], np.cumsum(lengths)])
            mask = None if rows.mask is None else rows.mask[self._unread :]
            rows = Rows(
                rows.ids[self._unread :],
                offsets,
                rows.next_inputs,
                rows.next_places,
                rows.next_skips,
                rows.num_documents,
                mask,
            )
            self._unread = 0
        rest = self._rest
        if rest is None:
            return rows
        mask = None
        if rest.mask is not None and rows.mask is not None:
            mask = np.concatenate([rest.mask, rows.mask])
        return Rows(
            np.concatenate([rest.ids, rows.ids]),
            np.concatenate([rest.offsets, rows.offsets[1:] + rest.offsets[-1]]),
            np.concatenate([rest.next_inputs, rows.next_inputs]),
            np.concatenate([rest.next_places, rows.next_places]),
            np.concatenate([rest.next_skips, rows.next_skips]),
            np.arange(len(rest) + len(rows) + 1),
            mask,
        )

    def _cut(
        self, joined: Rows, ends: Int64s, inputs: Int64s, places: Int64s
    ) -> tuple[Rows, Int64s, Int64s]:
        """Make rows that end at `ends`.

        Also return, for each row, the number of the document after its end, and how many ids of
        this document precede the end.
        """
        size = len(ends) * self.length
        # A document that ends there is before the end; an empty one that begins there is behind it,
        # whether it is known already or comes with the next documents.
        num_begun = np.searchsorted(joined.offsets[:-1], ends, side="left")
        first = np.minimum(num_begun, np.searchsorted(joined.offsets[1:], ends, side="right"))
        skips = ends - joined.offsets[first]
        skips[first == 0] += self._skip
        packed = Rows(
            joined.ids[:size],
            np.concatenate([[0], ends]),
            inputs[first],
            places[first],
            skips,
            np.concatenate([[0], first]),
            None if joined.mask is None else joined.mask[:size],
        )
        return packed, first, skips

    def _keep(self, joined: Rows, begin: int, size: int) -> None:
        """Store the documents from `begin` on, without the first `size` of all ids."""
        self._rest = Rows(
            joined.ids[size:].copy(),
            np.maximum(joined.offsets[begin:] - size, 0),
            joined.next_inputs[begin:],
            joined.next_places[begin:],
            joined.next_skips[begin:],
            np.arange(len(joined) - begin + 1),
            None if joined.mask is None else joined.mask[size:].copy(),
        )
