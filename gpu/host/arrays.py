"""Functions on arrays in C++: addresses, and checked copies of offsets."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu.errors import DescendingOffsets
from gpu.host.extensions import copy_pool

Int64s = NDArray[np.int64]
address_of = copy_pool.address_of
"""Returns the address of an array's first item, ten times faster than NumPy."""


def put_begins(to: Int64s, begins: Int64s) -> None:
    """Copy offsets int64[B + 1], from 0 on, to the front of an array, and check their order.

    Kernels rely on ascending offsets. C++ checks them while it copies
    (native/array_functions.hpp); NumPy would take three microseconds.

    Raises:
        DescendingOffsets: a row ends before it begins.
    """
    begins = np.ascontiguousarray(begins)
    row = copy_pool.put_begins(to, begins)
    if row is not None:
        raise DescendingOffsets(row, int(begins[row]), int(begins[row + 1]))
