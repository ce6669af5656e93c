"""Where rows begin, into pinned memory; rows that end before they begin are refused on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    from gpu.host import _copy_pool as native
except ImportError:
    native = None  # type: ignore[assignment]

__all__ = ["FallingRow", "put_begins"]

Int64s = NDArray[np.int64]


class FallingRow(ValueError):
    """A row ends before it begins.

    Attributes:
        row: its number.
        begin, end: its bytes, or ids that are decoded.
    """

    def __init__(self, row: int, begin: int, end: int) -> None:
        super().__init__(f"row {row} begins at {begin} and ends at {end}")
        self.row, self.begin, self.end = row, begin, end

    def behind(self, num_rows: int, num_bytes: int) -> FallingRow:
        """The same row, by its number and place in a batch that has so much in front."""
        return FallingRow(self.row + num_rows, self.begin + num_bytes, self.end + num_bytes)


def _by_numpy(to: Int64s, begins: Int64s) -> int | None:
    to[: len(begins)] = begins
    falls = begins[1:] < begins[:-1]
    return int(falls.argmax()) if falls.any() else None


_copy: Callable[[Any, Any], int | None] = getattr(native, "put_begins", _by_numpy)


def put_begins(to: Int64s, begins: Int64s) -> None:
    """Copy where rows begin, int64[B + 1] from 0 on, to the front of an array.

    Kernels rely on it that none ends before it begins. NumPy takes three microseconds to see that,
    C++ sees it while it copies (native/copy_pool.cpp).

    Raises:
        FallingRow: one does.
    """
    if not begins.flags.c_contiguous:
        begins = np.ascontiguousarray(begins)
    row = _copy(to, begins)
    if row is not None:
        raise FallingRow(row, int(begins[row]), int(begins[row + 1]))
