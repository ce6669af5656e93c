"""glibc's malloc told to keep the memory of large arrays instead of giving it back at once.

Every array above 128 KiB is otherwise mapped anew and its pages are cleared at the first touch: a
stream of 1 MiB parts ran at 0.48 GB/s instead of 0.73 (hyenadna, uint8, two cores).
"""

from __future__ import annotations

import ctypes
import logging

SWITCH_S = 0.0005
"""How long a thread waits for Python's lock before it asks for it, in place of 5 ms.

The event loop takes it anew after every wait for the network: beside a long text each short one
would take 5 ms longer for that."""

logger = logging.getLogger(__name__)
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # malloc.h
KEPT_BYTES = 256 << 20  # What may stay free at the heap's end.
MAPPED_FROM_BYTES = 32 << 20  # Larger blocks are still given back at once; glibc's own maximum.


def keep_large_blocks() -> None:
    """Set both thresholds; where malloc is not glibc's, nothing changes."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        logger.info("the C library has no mallopt; memory of large arrays is not kept")
        return
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
    mallopt(M_MMAP_THRESHOLD, MAPPED_FROM_BYTES)
    mallopt(M_ARENA_MAX, 1)  # Those of other threads give their memory back all the same.


def give_back() -> None:
    """Give the system what malloc holds free between blocks that are used; not Python's lock.

    Small blocks that live long lie between large ones that do not, so that the heap grows with
    every unlucky order of them and never shrinks: by 100 MB in three minutes of mixed load.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
