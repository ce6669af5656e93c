"""Where rows begin, into pinned memory; rows that end before they begin are refused on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.errors import DescendingOffsets

try:
    from gpu.host import _copy_pool as native
except ImportError:
    native = None  # type: ignore[assignment]

Int64s = NDArray[np.int64]


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
        DescendingOffsets: one does.
    """
    if not begins.flags.c_contiguous:
        begins = np.ascontiguousarray(begins)
    row = _copy(to, begins)
    if row is not None:
        raise DescendingOffsets(row, int(begins[row]), int(begins[row + 1]))
