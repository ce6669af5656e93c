"""Defines an encoder of the CPU engine, and lets several encoders share the rows of a batch.

An encoder gives the ids of the texts themselves. The engine adds begin and end tokens, truncates,
and computes the other strand. `ReferenceEncoder` makes the reference an encoder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vocabularies.batch.batch import Batch, EncodeOptions, RowError, RowRefused
from vocabularies.batch.post_processing import Content, join_rows
from vocabularies.batch.ragged import offsets_from_lengths, ragged_indices
from vocabularies.model.tables import ASCII
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference import tokenizer

MAX_COMPARED = 4  # Bytes; to compare with more, one by one, costs more than to delete all of them.
EncodeRows = Callable[[Batch, EncodeOptions], Content]


class Encoder(Protocol):
    """Encodes batches for one vocabulary; several threads may call it at once."""

    @property
    def name(self) -> str:
        """The name and version of the library that computes the ids."""

    def encode(self, batch: Batch, options: EncodeOptions) -> Content:
        """Encode each row, without begin and end tokens; all rows have these options.

        The content is a new one, and has spans if the options ask for them.
        """


class ReferenceEncoder:
    """The reference as an encoder: correct, slow, in plain Python."""

    name = "reference"

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    def encode(self, batch: Batch, options: EncodeOptions) -> Content:
        """Encode each row, without begin and end tokens; all rows have these options."""
        options = replace(options, add_special_tokens=False, max_length=None)
        rows: list[tuple[list[int], list[tuple[int, int]]]] = []
        texts, errors = batch.texts()
        for row, text in enumerate(texts):
            ids, spans = [], []
            try:
                if row not in errors:
                    encoded = tokenizer.encode(self.vocabulary, text, options)
                    ids, spans = encoded.ids, encoded.spans
            except RowRefused as refused:
                errors[row] = refused.error
            rows.append((ids, spans))
        offsets = offsets_from_lengths(
            np.fromiter((len(ids) for ids, _ in rows), np.int64, len(rows))
        )
        all_ids = np.fromiter((i for ids, _ in rows for i in ids), np.int32, int(offsets[-1]))
        all_spans = None
        if options.spans:
            all_spans = np.array([s for _, spans in rows for s in spans], np.int64).reshape(-1, 2)
        return Content(all_ids, offsets, all_spans, errors)


def flagged_rows(flags: NDArray[np.bool_], batch: Batch) -> NDArray[np.int64]:
    """List the rows that contain a byte flagged in bool[256], in order."""
    if not holds_any(flags, batch.data):
        return np.zeros(0, np.int64)
    flagged = flags[batch.data]
    if not flagged.any():
        return np.zeros(0, np.int64)
    places = np.flatnonzero(flagged)
    return np.unique(np.searchsorted(batch.offsets, places, side="right") - 1)


def holds_any(flags: NDArray[np.bool_], data: NDArray[np.uint8]) -> bool:
    """Return whether data contain a byte flagged in bool[256], without a look-up for each byte."""
    if not len(data):
        return False
    flags = flags.copy()
    if flags[ASCII:].all():
        if data.max() >= ASCII:
            return True
        flags[ASCII:] = False
    numbers = np.flatnonzero(flags).astype(np.uint8)  # Wider ones would widen all of the data.
    if len(numbers) > MAX_COMPARED:
        unflagged = bytearray(data).translate(None, numbers.tobytes())
        return len(unflagged) < len(data)
    return any((data == number).any() for number in numbers)


def encode_parts(
    batch: Batch,
    options: EncodeOptions,
    parts: Iterable[tuple[NDArray[np.int64], EncodeRows]],
    others: EncodeRows,
) -> Content:
    """Encode parts of a batch by different functions, and join the results in the batch's order.

    Args:
        batch: the rows.
        options: the options of all rows.
        parts: row numbers and the function that encodes these rows; no row is in two parts.
        others: encodes the rows that are in no part.
    """
    parts = [(rows, encode) for rows, encode in parts if len(rows)]
    if not parts:
        return others(batch, options)
    rest = np.ones(len(batch), np.bool_)
    for rows, _ in parts:
        rest[rows] = False
    if rest.any():
        parts.append((np.flatnonzero(rest), others))
    return join_rows(
        [(rows, encode(batch.select(rows.tolist(), options), options)) for rows, encode in parts],
        len(batch),
    )


def refuse_rows(content: Content, errors: dict[int, RowError]) -> Content:
    """Drop the ids of some rows, and add their errors."""
    sizes = np.diff(content.offsets)
    kept = np.ones(len(sizes), np.bool_)
    kept[list(errors)] = False
    kept_ids = np.repeat(kept, sizes)
    spans = None if content.spans is None else content.spans[kept_ids]
    all_errors = content.errors | errors
    return Content(content.ids[kept_ids], offsets_from_lengths(sizes * kept), spans, all_errors)


def take_rows(content: Content, rows: NDArray[np.int64]) -> Content:
    """Copy some rows, int64[R] in order, into a content of their own."""
    sizes = np.diff(content.offsets)[rows]
    places = ragged_indices(content.offsets[rows], sizes)
    spans = None if content.spans is None else content.spans[places]
    numbers = {int(row): number for number, row in enumerate(rows)} if content.errors else {}
    errors = {numbers[row]: error for row, error in content.errors.items() if row in numbers}
    return Content(content.ids[places], offsets_from_lengths(sizes), spans, errors)
