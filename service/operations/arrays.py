"""Arrays that clients send: what is checked of them, whatever the protocol."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from service.core.errors import InvalidRequest


def check_offsets(offsets: NDArray[np.int64], num_values: int, where: str) -> NDArray[np.int64]:
    """Return int64[B + 1] offsets that go from 0 to the number of values and never back.

    Raises:
        InvalidRequest: they do not.
    """
    if not len(offsets):
        raise InvalidRequest("there must be one offset more than there are rows", where)
    if offsets[0] != 0 or offsets[-1] != num_values:
        message = f"go from {offsets[0]} to {offsets[-1]}, not from 0 to {num_values}"
        raise InvalidRequest(message, where)
    is_back = offsets[1:] < offsets[:-1]  # A difference may not fit 64 bits.
    if is_back.any():
        row = int(is_back.argmax())
        raise InvalidRequest("is lower than the one before it", f"{where}[{row + 1}]")
    return offsets
