"""Joins the outputs of consecutive parts of a batch into one output.

If several engines computed the parts, the joined output names the slowest one. This module depends
on no engine.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from service.engines.base import Counted, Decoded
from vocabularies.batch.batch import Encoded, RowError

SLOWEST_LAST = ("gpu", "cpu", "reference")


def join_encoded(parts: Sequence[Encoded]) -> Encoded:
    """Join encoded parts; an array that some parts lack is filled in for them.

    A part without `num_tokens` and `kept` was not truncated; for it, all ids count as kept,
    including begin and end tokens.
    """
    if len(parts) == 1:
        return parts[0]
    spans = num_tokens = kept = None
    if any(part.spans is not None for part in parts):
        spans = np.concatenate([_spans(part) for part in parts])
    if any(part.num_tokens is not None for part in parts):
        num_tokens = np.concatenate([_num_tokens(part) for part in parts])
        kept = np.concatenate([_kept(part) for part in parts])
    return Encoded(
        ids=np.concatenate([part.ids for part in parts]),
        offsets=_join_offsets([part.offsets for part in parts]),
        spans=spans,
        num_tokens=num_tokens,
        kept=kept,
        errors=_join_errors([(len(part.offsets) - 1, part.errors) for part in parts]),
        engine=_slowest([part.engine for part in parts]),
    )


def join_counted(parts: Sequence[Counted]) -> Counted:
    """Join counted parts."""
    if len(parts) == 1:
        return parts[0]
    return Counted(
        np.concatenate([part.counts for part in parts]),
        _join_errors([(len(part.counts), part.errors) for part in parts]),
        _slowest([part.engine for part in parts]),
    )


def join_decoded(parts: Sequence[Decoded]) -> Decoded:
    """Join decoded parts."""
    if len(parts) == 1:
        return parts[0]
    return Decoded(
        np.concatenate([part.data for part in parts]),
        _join_offsets([part.offsets for part in parts]),
        _join_errors([(len(part.offsets) - 1, part.errors) for part in parts]),
        _slowest([part.engine for part in parts]),
    )


def _slowest(engines: Sequence[str]) -> str:
    return max(engines, key=SLOWEST_LAST.index)


def _join_offsets(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    sizes = np.concatenate([np.diff(offsets) for offsets in parts])
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def _join_errors(parts: Sequence[tuple[int, dict[int, RowError]]]) -> dict[int, RowError]:
    """Renumber errors by the row in the whole; a part is its number of rows and its errors."""
    errors: dict[int, RowError] = {}
    begin = 0
    for num_rows, part in parts:
        errors |= {begin + row: error for row, error in part.items()}
        begin += num_rows
    return errors


def _spans(part: Encoded) -> NDArray[np.int64]:
    return np.zeros((len(part.ids), 2), np.int64) if part.spans is None else part.spans


def _num_tokens(part: Encoded) -> NDArray[np.int64]:
    return np.diff(part.offsets) if part.num_tokens is None else part.num_tokens


def _kept(part: Encoded) -> NDArray[np.int64]:
    if part.kept is not None:
        return part.kept
    sizes = np.diff(part.offsets)
    return np.stack([np.zeros_like(sizes), sizes], axis=1)
