"""Configures glibc's malloc to keep the memory of large arrays instead of returning it at once.

By default every array above 128 KiB is mapped anew, and the system clears each of its pages at the
first access, which slows down streams of such arrays.
"""

from __future__ import annotations

import ctypes
import logging

SWITCH_S = 0.0005
"""Seconds that a thread waits for Python's lock before it requests it; Python's default is 0.005.

The event loop takes the lock again after every wait for the network, so with the default each short
text would take 5 ms longer while a long text is encoded."""

logger = logging.getLogger(__name__)
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # malloc.h
KEPT_BYTES = 256 << 20  # Free memory that may stay at the end of the heap.
MAPPED_FROM_BYTES = 32 << 20  # Larger blocks are returned at once; this is glibc's maximum.


def keep_large_blocks() -> None:
    """Set malloc's thresholds; do nothing without glibc."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        logger.info("the C library has no mallopt; memory of large arrays is not kept")
        return
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
    mallopt(M_MMAP_THRESHOLD, MAPPED_FROM_BYTES)
    # Arenas of other threads would return their memory despite the thresholds.
    mallopt(M_ARENA_MAX, 1)


def give_back() -> None:
    """Return free memory between used blocks to the system; Python's lock is released meanwhile.

    Small blocks with a long life lie between large ones with a short life, so without this the heap
    grows and never shrinks.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
