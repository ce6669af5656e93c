"""Clients of the front ends: a process on each core that the service does not use.

All begin at the same time of the machine's clock. Bodies come from a file, which is read once.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter, sleep
from typing import Any, Self

import numpy as np
import uvloop

from benchmarks.service.bulk_apis.clients import Answer, arrow_ids, exchange, http_payload
from benchmarks.support.closed_loop import Load, measure

START_S = 0.5  # Until every process has read its arguments.
OK, LAST_CHUNK = b"HTTP/1.1 200", b"0\r\n\r\n"


class Clients:
    """Processes that load a server together.

    Args:
        cores: one process on each.

    Attributes:
        pids: of the processes.
    """

    pids: list[int]

    def __init__(self, cores: Sequence[int]) -> None:
        context = get_context("spawn")
        self._processes = [
            ProcessPoolExecutor(1, context, os.sched_setaffinity, (0, {core})) for core in cores
        ]

    def __enter__(self) -> Self:
        # They import all of this, which takes a second.
        self.pids = [one.result() for one in [each.submit(os.getpid) for each in self._processes]]
        return self

    def __exit__(self, *error: object) -> None:
        for each in self._processes:
            each.shutdown()

    def run(self, work: Callable[..., Any], total: int) -> list[Any]:
        """Divide `total` among processes; return the results of ``work(share, begin)`` in each."""
        count = len(self._processes)
        begin = perf_counter() + START_S
        shares = [total * (n + 1) // count - total * n // count for n in range(count)]
        futures = [
            each.submit(work, share, begin)
            for each, share in zip(self._processes, shares, strict=True)
            if share
        ]
        return [one.result() for one in futures]


def small_requests(
    port: int,
    requests: list[bytes],
    warmup_s: float,
    seconds: float,
    connections: int,
    begin: float,
) -> Load:
    """Send closed-loop requests over a number of connections."""
    sleep(max(0.0, begin - perf_counter()))
    return uvloop.run(measure(port, requests, connections, warmup_s, seconds))


def streams(
    port: int, sent: Path, answer_bytes: int, digest: str, seconds: float, count: int, begin: float
) -> float:
    """Send Arrow streams for some seconds, always `count` at once.

    Args:
        port: the port of the server.
        sent: a file with a request.
        answer_bytes: most bytes of an answer.
        digest: the hash of the ids that each answer must have.
        seconds: the time in which streams are counted; none is begun after it.
        count: the number of streams at once.
        begin: when to begin, on the clock of perf_counter.

    Returns:
        The number of streams answered in these seconds; one that ends later counts in part.

    Raises:
        SystemExit: an answer was cut short or refused, or a last one has other ids.
    """
    with ThreadPoolExecutor(count) as threads:
        one = partial(_stream, port, _content(sent), answer_bytes, digest, seconds, begin)
        return sum(threads.map(lambda _: one(), range(count)))


def _stream(
    port: int, sent: bytes, answer_bytes: int, digest: str, seconds: float, begin: float
) -> float:
    memory = np.ones(answer_bytes, np.uint8)  # Touched before the clock starts; zeros would not be.
    sleep(max(0.0, begin - perf_counter()))
    times = [begin]
    while times[-1] < begin + seconds:
        answer = exchange(port, (sent,), memory)
        times.append(perf_counter())
        if answer[: len(OK)].tobytes() != OK or answer[-len(LAST_CHUNK) :].tobytes() != LAST_CHUNK:
            raise SystemExit(f"refused or cut short: {answer[:1000].tobytes()!r}")
    if ids_digest(answer) != digest:
        raise SystemExit("other ids under load")
    return counted(times, seconds)


def counted(times: Sequence[float], seconds: float) -> float:
    """Count the streams that end within the first seconds; the next one counts in part.

    Example: 3 seconds of 10, 11, 12, 14 have two and a half.
    """
    before, end = times[-2:]
    return len(times) - 1 - (end - times[0] - seconds) / (end - before)


def ids_digest(answer: Answer) -> str:
    """Hash the ids of an Arrow stream in their own dtype."""
    return hashlib.sha256(arrow_ids(http_payload(answer), "ids").tobytes()).hexdigest()


@cache
def _content(path: Path) -> bytes:
    return path.read_bytes()
