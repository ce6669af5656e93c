"""Lanes of a batcher: short requests in one, joined; long ones in the other, each by itself.

A long request is a batch of its own, because joining it would copy it. Where a GPU answers, two of
them run at once, so that the device has the next one while the ids of the last are taken away, and
their threads stay awake for a while.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from gpu.host.copy_pool import look
from service.batching.work import Work
from service.runtime.scheduler_slice import take_long_turns
from service.runtime.spinning_executor import AwakeThreads

Key = tuple[str, str, bool]
PREPARED = 1  # Batches, so that the engine never waits for us.
LONG_ON_GPU = 2  # Long batches at once.
ALONE = 1  # Bytes of a batch that is one request.


@dataclass(slots=True)
class Lane:
    """Threads, the queues that wait for them, and batches that run or are prepared.

    Attributes:
        at_once: batches that run at once.
        max_batch_bytes: of requests that are joined.
    """

    threads: AwakeThreads
    at_once: int
    max_batch_bytes: int
    turns: deque[Key] = field(default_factory=deque)
    batches: deque[list[Work]] = field(default_factory=deque)


def make_lanes(max_batch_bytes: int, is_gpu: bool) -> dict[bool, Lane]:
    """The lane of long requests, and that of the others."""
    num_long = LONG_ON_GPU if is_gpu else 1
    short = AwakeThreads(ThreadPoolExecutor(1, "engine-short"), None)
    sleeping = ThreadPoolExecutor(num_long, "engine-long", take_long_turns)
    long = AwakeThreads(sleeping, look if is_gpu else None)
    return {False: Lane(short, 1, max_batch_bytes), True: Lane(long, num_long, ALONE)}
