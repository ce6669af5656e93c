"""Pads rows of ids to a matrix, for requests with padding."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray


def pad_rows(
    ids: NDArray[np.integer[Any]],
    offsets: NDArray[np.int64],
    pad_id: int,
    min_length: int,
    side: Literal["right", "left"],
) -> tuple[NDArray[np.int32], NDArray[np.int8]]:
    """Pad rows to the length L of the longest one, or to `min_length` if that is more.

    Args:
        ids: int32[T]; offsets point into it.
        offsets: int64[B + 1], where each row begins.
        pad_id: the id that fills rows up.
        min_length: the least length of the padded rows.
        side: the side of a row that is filled up.

    Returns:
        int32[B, L] ids and int8[B, L] attention mask, 0 over padding.
    """
    lengths = np.diff(offsets)
    width = max(min_length, int(lengths.max(initial=0)))
    columns = np.arange(width)
    if side == "right":
        mask = columns < lengths[:, None]
    else:
        mask = columns >= width - lengths[:, None]
    padded = np.full((len(lengths), width), pad_id, np.int32)
    padded[mask] = ids[offsets[0] : offsets[-1]]
    return padded, mask.astype(np.int8)
