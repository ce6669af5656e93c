"""Threads that compute for long, and give their core up at once to whoever has something short.

The scheduler lets a thread run for its slice, some milliseconds up to the next tick, before one
that wakes gets the core, unless that one's slice is shorter. A lower priority would do the same and
more: the thread holds Python's lock in between, and whoever kept it from running would keep the
event loop waiting. With a longer slice its share of the core stays what it is.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys

SLICE_NS = 100_000_000  # The longest that Linux takes.
SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}  # Numbers of the system call; libc has no function.
ATTRIBUTES = struct.Struct("IIQiIQQQ")  # struct sched_attr of sched.h, in its first version


def take_long_turns() -> None:
    """Ask for the longest slice for this thread: Linux 6.12 and later; others change nothing."""
    number = SCHED_SETATTR.get(platform.machine())
    if sys.platform != "linux" or number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    asked = ATTRIBUTES.pack(ATTRIBUTES.size, os.SCHED_OTHER, 0, nice, 0, SLICE_NS, 0, 0)
    ctypes.CDLL(None).syscall(number, 0, asked, 0)
