"""The addresses of arrays: NumPy takes a microsecond for one, native/copy_pool.cpp a tenth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

try:
    from gpu.host import _copy_pool as native
except ImportError:
    native = None  # type: ignore[assignment]


def _by_numpy(array: NDArray[Any]) -> int:
    return int(array.ctypes.data)


address_of: Callable[[NDArray[Any]], int] = getattr(native, "address_of", _by_numpy)
"""The address of an array's first item."""
