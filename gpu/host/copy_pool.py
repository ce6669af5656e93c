"""Copies from ordinary into pinned memory, by the threads of native/copy_pool.cpp.

One thread copies 12 to 16 GB/s on the machines that were measured. Knows neither batches nor
devices.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gpu.host.extensions import copy_pool

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]
MOST_THREADS = 6
QUOTA = Path("/sys/fs/cgroup/cpu.max")


class Copy(Protocol):
    """A copy that is under way; it has both arrays until it is forgotten."""

    @property
    def seconds(self) -> float:
        """What it took, once it is complete."""

    def wait(self, num_bytes: int, /) -> None:
        """Wait until the first bytes are there; the caller's thread takes part.

        Raises:
            ValueError: of strings: they are not those that were measured.
        """


class CopyPool:
    """Threads that copy; they start with the first copy and end with `close`.

    Between two copies they look for work for 0.2 ms, 0.4 where the last came so soon, and then
    sleep, see thread_pool.hpp.

    Args:
        num_threads: of its own, beside the one that waits; None: half of the cores, six at most.
    """

    def __init__(self, num_threads: int | None = None) -> None:
        if num_threads is None:
            num_threads = min(MOST_THREADS, usable_cores() // 2)
        self._pool = copy_pool.Pool(num_threads)

    def start(self, target: Bytes, source: Bytes) -> Copy:
        """Begin to copy uint8[N] to the front of `target`; both stay as they are meanwhile."""
        return self._pool.start(target, source)

    def start_gather(self, texts: tuple[str, ...], offsets: Int64s, target: Bytes) -> Copy:
        """Begin to copy the UTF-8 of strings to `target`, where int64[B + 1] offsets say.

        The strings must have been measured (`join_texts`): nobody looks at all of
        them before the threads do. Where they were not, or are others, `wait` raises ValueError.

        Raises:
            ValueError: the offsets are no such, or end behind the target.
        """
        return self._pool.gather(target, texts, offsets)

    def gather(self, texts: tuple[str, ...], offsets: Int64s, target: Bytes) -> None:
        """The same, the caller's thread and these together; raises ValueError."""
        self.start_gather(texts, offsets, target).wait(len(target))

    def share(self, target: Bytes, source: Bytes) -> None:
        """Copy uint8[N] to the front of `target`, the caller's thread and these together."""
        self.start(target, source).wait(len(source))

    def close(self) -> None:
        """End the threads; copies under way are completed."""
        self._pool.close()


def usable_cores(quota: Path = QUOTA) -> int:
    """Cores that this process may use at once: those it may run on, and its cgroup's share."""
    cores = len(os.sched_getaffinity(0))
    try:
        allowed, period = quota.read_text().split()
        return max(1, min(cores, int(allowed) // int(period)))
    except (OSError, ValueError):  # There is none, or it is "max".
        return cores
