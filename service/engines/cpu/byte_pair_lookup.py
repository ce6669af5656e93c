"""An id of one byte for each byte of a text, two at a time, while other threads run.

    text   A C G T N …          uint8[N]
            └┬┘ └┬┘
    pairs  65,536 ids of two bytes, taken by Arrow      0.14 ns a byte of DNA
            ┌┴┐ ┌┴┐                                     (bytes.translate 0.28, NumPy's take 0.72)
    ids    7 8 9 10 11 …        uint8[N]

`bytes.translate` holds Python's lock meanwhile, so that no other thread receives or sends.
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]


class BytePairs:
    """A look-up of bytes; safe for several threads.

    Args:
        table: uint8[256], what each byte becomes.
    """

    def __init__(self, table: Bytes) -> None:
        pairs = np.arange(1 << 16, dtype=np.uint16).view(np.uint8)  # Each as it lies in memory.
        self._table, self._pairs = table, table[pairs].view(np.uint16)

    def look_up(self, data: Bytes) -> Bytes:
        """uint8[N] of contiguous uint8[N]; may be read only."""
        arrow, compute = _arrow()
        if data.ctypes.data % 2:
            data = data.copy()
        num_pairs = len(data) // 2
        places = arrow.py_buffer(data[: 2 * num_pairs])
        indices = arrow.Array.from_buffers(arrow.uint16(), num_pairs, [None, places])
        found = compute.take(self._values, indices, boundscheck=False).to_numpy().view(np.uint8)
        return np.append(found, self._table[data[-1]]) if len(data) % 2 else found

    @cached_property
    def _values(self) -> Any:
        return _arrow()[0].array(self._pairs)


@cache
def _arrow() -> tuple[Any, Any]:
    """Imported when it is needed: that takes as long as the rest of a command's start."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pa, pc
