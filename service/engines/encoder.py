"""Defines encoders of the CPU engine, and divides the rows of a batch among several encoders.

An encoder returns the ids of the texts alone. The engine adds begin and end tokens, truncates, and
makes reverse complements. `ReferenceEncoder` adapts the reference, and `BytesEncoder` adapts the
reference's rule for bytes that are not UTF-8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from service.engines.base import Abandoned
from vocabularies.batch.batch import Batch, Encoded, EncodeOptions, RowError, RowRefused
from vocabularies.batch.post_processing import AddedIds, Content, join_rows
from vocabularies.batch.ragged import offsets_from_lengths, ragged_indices
from vocabularies.model.tables import ASCII
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference import tokenizer
from vocabularies.reference.invalid_utf8 import encode_bytes
from vocabularies.reference.special_tokens import Token

MAX_COMPARED = 4  # Bytes; to compare with more, one by one, costs more than to delete all of them.
EncodeRows = Callable[[Batch, EncodeOptions], Content]


class Encoder(Protocol):
    """Encodes batches for one vocabulary; it is thread-safe."""

    @property
    def name(self) -> str:
        """The name and version of the library that computes the ids."""

    def encode(self, batch: Batch, options: EncodeOptions) -> Content:
        """Encode each row, without begin and end tokens; all rows have these options.

        Return a new Content, with spans if the options request them.
        """


class OneStepEncoder(Encoder, Protocol):
    """An encoder that can also write begin and end tokens, and count ids without writing them."""

    def encode_with_added(
        self, batch: Batch, options: EncodeOptions, added: AddedIds
    ) -> Encoded | None:
        """Encode each row with begin and end tokens; None if a row needs several steps."""

    def count(self, batch: Batch, options: EncodeOptions) -> Content | None:
        """Return the offsets of each row's ids, not the ids; None if this takes several steps."""


class ReferenceEncoder:
    """The reference as an encoder: correct, slow, in plain Python."""

    name = "reference"

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    def encode(self, batch: Batch, options: EncodeOptions) -> Content:
        """Encode each row, without begin and end tokens; all rows have these options."""
        options = replace(options, add_special_tokens=False, max_length=None)
        rows: list[list[Token]] = []
        texts, errors = batch.texts()
        for row, text in enumerate(texts):
            tokens: list[Token] = []
            try:
                if row not in errors:
                    encoded = tokenizer.encode(self.vocabulary, text, options)
                    pairs = zip(encoded.ids, encoded.spans, strict=True)
                    tokens = [Token(token_id, *span) for token_id, span in pairs]
            except RowRefused as refused:
                errors[row] = refused.error
            rows.append(tokens)
        return _make_content(rows, options, errors)


class BytesEncoder:
    """Encodes rows that are not UTF-8 with the reference, if the vocabulary has all bytes.

    Args:
        vocabulary: the vocabulary.
        should_continue: returns whether the ids are still needed.
    """

    name = "reference"

    def __init__(self, vocabulary: Vocabulary, should_continue: Callable[[], bool]) -> None:
        self.vocabulary = vocabulary
        self.should_continue = should_continue

    def encode(self, batch: Batch, options: EncodeOptions) -> Content:
        """Encode each row, without begin and end tokens; all rows have these options.

        Raises:
            Abandoned: no request waits for the batch any more.
        """
        rows: list[list[Token]] = []
        errors: dict[int, RowError] = {}
        for row in range(len(batch)):
            if not self.should_continue():
                raise Abandoned
            tokens: list[Token] = []
            try:
                tokens = encode_bytes(self.vocabulary, batch.row_bytes(row), options)
            except RowRefused as refused:
                errors[row] = refused.error
            rows.append(tokens)
        return _make_content(rows, options, errors)


def _make_content(
    rows: list[list[Token]], options: EncodeOptions, errors: dict[int, RowError]
) -> Content:
    """Join the tokens of rows."""
    offsets = offsets_from_lengths(np.fromiter(map(len, rows), np.int64, len(rows)))
    ids = np.fromiter((token.id for row in rows for token in row), np.int32, int(offsets[-1]))
    spans = None
    if options.spans:
        pairs = [(token.begin, token.end) for row in rows for token in row]
        spans = np.array(pairs, np.int64).reshape(-1, 2)
    return Content(ids, offsets, spans, errors)


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
    """Return whether data contain a byte flagged in bool[256]; faster than looking up each byte."""
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
    """Encode parts of a batch with different functions, and join the results in row order.

    Args:
        batch: the rows.
        options: the options of all rows.
        parts: the row numbers of each part, and the function that encodes it; parts do not overlap.
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
    """Copy some rows, given by number in ascending order, to a new content."""
    sizes = np.diff(content.offsets)[rows]
    places = ragged_indices(content.offsets[rows], sizes)
    spans = None if content.spans is None else content.spans[places]
    numbers = {int(row): number for number, row in enumerate(rows)} if content.errors else {}
    errors = {numbers[row]: error for row, error in content.errors.items() if row in numbers}
    return Content(content.ids[places], offsets_from_lengths(sizes), spans, errors)
