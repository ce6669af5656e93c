"""Truncates the ids of a batch and puts begin and end tokens around them, with their spans.

Vectorized: there is no Python loop over rows. `reference` defines the same rules in plain Python.
This module does not depend on texts or engines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vocabularies.batch.batch import Encoded, EncodeOptions, RowError
from vocabularies.batch.ragged import offsets_from_lengths, ragged_indices
from vocabularies.model.types import Kmers
from vocabularies.model.vocabulary import Vocabulary

Int64s = NDArray[np.int64]


@dataclass(slots=True)
class Content:
    """The ids of the texts before truncation, without begin and end tokens.

    Attributes:
        ids: int32[T] or narrower, the rows one after another.
        offsets: int64[B + 1]; a refused row has no ids.
        spans: int64[T, 2], begin and end byte of each id in its row's text; None if no row's
            options request spans.
        errors: the refused rows.
    """

    ids: NDArray[np.integer[Any]]
    offsets: Int64s
    spans: Int64s | None = None
    errors: dict[int, RowError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class AddedIds:
    """The ids that are put around the content of each row.

    Attributes:
        prefix, suffix: int32[...], the ids before and after the content.
        max_piece_tokens: the number of ids of a piece; the ids are added around every piece. None:
            they are added around the whole row.
    """

    prefix: NDArray[np.int32]
    suffix: NDArray[np.int32]
    max_piece_tokens: int | None = None

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> AddedIds:
        """Make the added ids of a vocabulary."""
        model = vocabulary.model
        size = model.max_piece_tokens if isinstance(model, Kmers) else None
        prefix, suffix = (
            np.array(side, np.int32) for side in (vocabulary.prefix, vocabulary.suffix)
        )
        return cls(prefix, suffix, size)

    def __len__(self) -> int:
        """Return the number of ids that are added to one piece."""
        return len(self.prefix) + len(self.suffix)


NO_ADDED_IDS = AddedIds(np.zeros(0, np.int32), np.zeros(0, np.int32))


def post_process(content: Content, added: AddedIds, options: EncodeOptions) -> Encoded:
    """Truncate each row to max_length and put begin and end tokens around it.

    If nothing is added or removed, the result has the arrays of `content` without copies. A row is
    refused if its max_length is too small for its begin and end tokens.

    Example: prefix 1, suffix 2, max_length 4 and content 7 8 9 give 1 7 8 2.
    """
    if not options.add_special_tokens or not len(added):
        added = NO_ADDED_IDS
    spans = content.spans if options.spans else None
    if added is NO_ADDED_IDS and options.max_length is None:
        return Encoded(content.ids, content.offsets, spans, errors=content.errors)
    if options.max_length is None and len(content.offsets) == 2 and not content.errors:
        if added.max_piece_tokens is None:
            return _post_process_one(content, added, spans)
    sizes = np.diff(content.offsets)
    kept_sizes = count_kept(sizes, added, options.max_length)
    errors = content.errors | _too_small(content, added, options.max_length)
    cut_rows = kept_sizes != sizes
    num_tokens = kept = None
    if cut_rows.any():
        left = options.truncation_side == "left"
        first = sizes - kept_sizes if left else np.zeros_like(sizes)
        kept = np.stack([first, first + kept_sizes], axis=1)
        num_tokens = _total(sizes, added)
        for values in (kept, num_tokens):
            values[list(errors)] = 0
        index = ragged_indices(content.offsets[:-1] + first, kept_sizes)
        cut_spans = None if spans is None else spans[index]
        content = Content(content.ids[index], offsets_from_lengths(kept_sizes), cut_spans, errors)
    else:
        content = Content(content.ids, content.offsets, spans, errors)
    encoded = _put_around(content, added)
    encoded.num_tokens, encoded.kept = num_tokens, kept
    return encoded


def post_processed_lengths(
    content: Content, added: AddedIds, options: EncodeOptions
) -> tuple[Int64s, dict[int, RowError]]:
    """Count the ids of each row after `post_process`.

    Returns:
        int64[B] counts, 0 for a refused row, and the refused rows.
    """
    if not options.add_special_tokens:
        added = NO_ADDED_IDS
    errors = content.errors | _too_small(content, added, options.max_length)
    sizes = np.diff(content.offsets)
    lengths = _total(count_kept(sizes, added, options.max_length), added)
    lengths[list(errors)] = 0
    return lengths, errors


def _total(sizes: Int64s, added: AddedIds) -> Int64s:
    """Count the ids of rows, including begin and end tokens; `sizes` are without them."""
    pieces = 1 if added.max_piece_tokens is None else sizes // added.max_piece_tokens + 1
    return sizes + pieces * len(added)


def _too_small(content: Content, added: AddedIds, max_length: int | None) -> dict[int, RowError]:
    if max_length is None or max_length >= len(added):
        return {}
    error = RowError.of_max_length(max_length, len(added))
    rows = range(len(content.offsets) - 1)
    return {row: error for row in rows if row not in content.errors}


def count_kept(sizes: Int64s, added: AddedIds, max_length: int | None) -> Int64s:
    """Count the ids that each row keeps after truncation, not counting begin and end tokens.

    Args:
        sizes: int64[B], the number of ids of each row before truncation.
        added: the begin and end tokens.
        max_length: the largest number of ids of a row, including begin and end tokens; None: no
            limit.
    """
    if max_length is None:
        return sizes
    most, size = max_length - len(added), added.max_piece_tokens
    if most < 0:
        return np.zeros_like(sizes)
    if size is not None:
        pieces, rest = divmod(most, size + len(added))
        most = pieces * size + min(rest, size - 1)
    return np.minimum(sizes, most)


def _post_process_one(content: Content, added: AddedIds, spans: Int64s | None) -> Encoded:
    dtype = content.ids.dtype
    ids = np.concatenate([added.prefix.astype(dtype), content.ids, added.suffix.astype(dtype)])
    if spans is not None:
        spans_of_all = np.zeros((len(ids), 2), np.int64)
        spans_of_all[len(added.prefix) : len(ids) - len(added.suffix)] = spans
        spans = spans_of_all
    return Encoded(ids, np.array([0, len(ids)]), spans)


def _put_around(content: Content, added: AddedIds) -> Encoded:
    """Put the added ids around every piece; without max_piece_tokens a piece is a whole row."""
    if added is NO_ADDED_IDS:
        return Encoded(content.ids, content.offsets, content.spans, errors=content.errors)
    sizes, size = np.diff(content.offsets), added.max_piece_tokens
    pieces = np.ones_like(sizes) if size is None else sizes // size + 1
    pieces[list(content.errors)] = 0
    last = offsets_from_lengths(pieces)
    piece_sizes = sizes[pieces > 0]
    if size is not None:
        full = np.full(int(last[-1]), size, np.int64)
        full[last[1:][pieces > 0] - 1] = piece_sizes % size
        piece_sizes = full
    ends = np.cumsum(piece_sizes + len(added))
    begins = ends - piece_sizes - len(added)
    total = int(ends[-1]) if len(ends) else 0
    ids = np.empty(total, content.ids.dtype)
    own = np.ones(total, np.bool_)
    suffix_begins = ends - len(added.suffix)
    for places, side in ((begins, added.prefix), (suffix_begins, added.suffix)):
        for i, token_id in enumerate(side.tolist()):
            ids[places + i] = token_id
            own[places + i] = False
    ids[own] = content.ids
    spans = None
    if content.spans is not None:
        spans = np.zeros((total, 2), np.int64)
        spans[own] = content.spans
    offsets = np.concatenate([[0], ends])[last]
    return Encoded(ids, offsets, spans, errors=content.errors)


def join_rows(parts: Sequence[tuple[NDArray[np.int64], Content]], num_rows: int) -> Content:
    """Join the contents of groups of rows into one content in the order of the rows.

    Args:
        parts: for each group, the numbers of its rows, int64[...], and the content of these rows in
            the same order; no row is in two groups.
        num_rows: B, the number of all rows.
    """
    counts = np.zeros(num_rows, np.int64)
    for rows, part in parts:
        counts[rows] = np.diff(part.offsets)
    offsets = offsets_from_lengths(counts)
    ids = np.empty(int(offsets[-1]), np.int32)
    with_spans = any(part.spans is not None for _, part in parts)
    spans = np.zeros((len(ids), 2), np.int64) if with_spans else None
    errors: dict[int, RowError] = {}
    for rows, part in parts:
        places = ragged_indices(offsets[rows], counts[rows])
        ids[places] = part.ids
        if spans is not None and part.spans is not None:
            spans[places] = part.spans
        errors |= {int(rows[row]): error for row, error in part.errors.items()}
    return Content(ids, offsets, spans, errors)
