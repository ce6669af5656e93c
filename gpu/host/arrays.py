"""Arrays by C++: where they lie, and copies of where rows begin."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu.errors import DescendingOffsets
from gpu.host.extensions import copy_pool

Int64s = NDArray[np.int64]
address_of = copy_pool.address_of
"""The address of an array's first item. NumPy takes a microsecond to say so, C++ a tenth."""


def put_begins(to: Int64s, begins: Int64s) -> None:
    """Copy where rows begin, int64[B + 1] from 0 on, to the front of an array.

    Kernels rely on it that none ends before it begins. NumPy takes three microseconds to see that,
    C++ sees it while it copies (native/array_functions.hpp).

    Raises:
        DescendingOffsets: one does.
    """
    begins = np.ascontiguousarray(begins)
    row = copy_pool.put_begins(to, begins)
    if row is not None:
        raise DescendingOffsets(row, int(begins[row]), int(begins[row + 1]))
