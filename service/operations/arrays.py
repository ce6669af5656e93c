"""Checks arrays that clients send, for all protocols."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from service.core.errors import InvalidRequest


def check_offsets(offsets: NDArray[np.int64], num_values: int, where: str) -> NDArray[np.int64]:
    """Check the offsets int64[B + 1] of B rows, and return them.

    Raises:
        InvalidRequest: the offsets do not begin with 0, do not end with `num_values`, or decrease.
    """
    if not len(offsets):
        raise InvalidRequest("must have one offset more than there are rows", where)
    if offsets[0] != 0 or offsets[-1] != num_values:
        message = f"go from {offsets[0]} to {offsets[-1]}, not from 0 to {num_values}"
        raise InvalidRequest(message, where)
    is_lower = offsets[1:] < offsets[:-1]  # Differences could overflow 64 bits.
    if is_lower.any():
        row = int(is_lower.argmax())
        raise InvalidRequest("is smaller than the offset before it", f"{where}[{row + 1}]")
    return offsets
