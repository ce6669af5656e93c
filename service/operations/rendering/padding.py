"""Pads rows of ids to the same length, as a matrix."""

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
    """Pad rows to a common length L: that of the longest row, but at least `min_length`.

    Args:
        ids: int32[T], the ids of all rows.
        offsets: int64[B + 1], the start of each row.
        pad_id: the id that fills up rows.
        min_length: the minimum of L.
        side: the side on which rows are padded.

    Returns:
        The ids int32[B, L], and the attention mask int8[B, L], which is 0 for padding.
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
