"""Copies from pageable into pinned memory by the threads of native/copy_pool.cpp.

One thread copies 12 to 16 GB/s on the machines that were measured.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gpu.host.cores import usable_cores
from gpu.host.extensions import copy_pool

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]
MOST_THREADS = 6


class Copy(Protocol):
    """A running copy; it holds references to both arrays."""

    @property
    def seconds(self) -> float:
        """The time it took; valid once it is complete."""

    def wait(self, num_bytes: int, /) -> None:
        """Wait until the first bytes are copied; meanwhile the caller's thread helps to copy.

        Raises:
            ValueError: the strings are not those that were measured.
        """


class CopyPool:
    """Threads that copy; they start with the first copy and end with `close`.

    After a copy they poll for more work for 0.2 ms, or for 0.4 ms if copies follow each other
    quickly, and then sleep; see thread_pool.hpp.

    Args:
        num_threads: the number of threads, not counting the waiting one; None: half of the cores,
            at most six.
    """

    def __init__(self, num_threads: int | None = None) -> None:
        if num_threads is None:
            num_threads = min(MOST_THREADS, usable_cores() // 2)
        self._pool = copy_pool.Pool(num_threads)

    def start(self, target: Bytes, source: Bytes) -> Copy:
        """Start to copy uint8[N] to the front of `target`; neither may change meanwhile."""
        return self._pool.start(target, source)

    def start_gather(self, texts: tuple[str, ...], offsets: Int64s, target: Bytes) -> Copy:
        """Start to copy the UTF-8 of strings to the places int64[B + 1] `offsets` in `target`.

        The strings must have been measured (`join_texts`), because only the threads check them.
        If they are not those that were measured, `wait` raises ValueError.

        Raises:
            ValueError: the offsets do not fit the strings, or are beyond the end of the target.
        """
        return self._pool.gather(target, texts, offsets)

    def gather(self, texts: tuple[str, ...], offsets: Int64s, target: Bytes) -> None:
        """Copy strings as `start_gather` does, and wait; raises ValueError."""
        self.start_gather(texts, offsets, target).wait(len(target))

    def share(self, target: Bytes, source: Bytes) -> None:
        """Copy uint8[N] to the front of `target`, and wait."""
        self.start(target, source).wait(len(source))

    def close(self) -> None:
        """Complete running copies and end the threads."""
        self._pool.close()
