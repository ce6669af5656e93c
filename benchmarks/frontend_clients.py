"""Clients of benchmarks/frontends.py: a process on each core that the service leaves.

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

from benchmarks.door_clients import Answer, arrow_ids, exchange, http_payload
from benchmarks.load_client import Load, measure

__all__ = ["Clients", "ids_digest", "small_requests", "streams"]

START_S = 0.3  # Until every process has read what it is told.
OK, LAST_CHUNK = b"HTTP/1.1 200", b"0\r\n\r\n"


class Clients:
    """Processes that load a server together.

    Args:
        cores: one process on each.
    """

    def __init__(self, cores: Sequence[int]) -> None:
        context = get_context("spawn")
        self._processes = [
            ProcessPoolExecutor(1, context, os.sched_setaffinity, (0, {core})) for core in cores
        ]

    def __enter__(self) -> Self:
        for one in [each.submit(perf_counter) for each in self._processes]:
            one.result()  # They import all of this, which takes a second.
        return self

    def __exit__(self, *error: object) -> None:
        for each in self._processes:
            each.shutdown()

    def run(self, work: Callable[..., Any], total: int) -> list[Any]:
        """What each process gives for ``work(share, begin)``, the shares adding up to `total`."""
        count = len(self._processes)
        begin = perf_counter() + START_S
        shares = [total * (n + 1) // count - total * n // count for n in range(count)]
        asked = [
            each.submit(work, share, begin)
            for each, share in zip(self._processes, shares, strict=True)
            if share
        ]
        return [one.result() for one in asked]


def small_requests(
    port: int,
    requests: list[bytes],
    warmup_s: float,
    seconds: float,
    connections: int,
    begin: float,
) -> Load:
    """Closed-loop requests over so many connections."""
    sleep(max(0.0, begin - perf_counter()))
    return uvloop.run(measure(port, requests, connections, warmup_s, seconds))


def streams(
    port: int, sent: Path, room: int, digest: str, seconds: float, count: int, begin: float
) -> tuple[int, float]:
    """Arrow streams, `count` at once and one after the other.

    Args:
        port: of the server.
        sent: a file with a request.
        room: bytes that an answer takes at most.
        digest: of the ids that each answer has.
        seconds: after which none is begun any more.
        count: how many at once.
        begin: when to begin, on the clock of perf_counter.

    Returns:
        How many were answered, and seconds until the last of them was.

    Raises:
        SystemExit: an answer was cut short or refused, or a last one has other ids.
    """
    with ThreadPoolExecutor(count) as threads:
        one = partial(_stream, port, _content(sent), room, digest, seconds, begin)
        done = list(threads.map(lambda _: one(), range(count)))
    return sum(num for num, _ in done), max(end for _, end in done)


def _stream(
    port: int, sent: bytes, room: int, digest: str, seconds: float, begin: float
) -> tuple[int, float]:
    memory = np.zeros(room, np.uint8)  # Touched before the clock starts.
    sleep(max(0.0, begin - perf_counter()))
    num = 0
    while True:
        answer = exchange(port, (sent,), memory)
        num, end = num + 1, perf_counter()
        if answer[: len(OK)].tobytes() != OK or answer[-len(LAST_CHUNK) :].tobytes() != LAST_CHUNK:
            raise SystemExit(f"refused or cut short: {answer[:1000].tobytes()!r}")
        if end >= begin + seconds:
            break
    if ids_digest(answer) != digest:
        raise SystemExit("other ids under load")
    return num, end - begin


def ids_digest(answer: Answer) -> str:
    """SHA-256 of the ids of an Arrow stream, as wide as they came."""
    return hashlib.sha256(arrow_ids(http_payload(answer), "ids").tobytes()).hexdigest()


@cache
def _content(path: Path) -> bytes:
    return path.read_bytes()
