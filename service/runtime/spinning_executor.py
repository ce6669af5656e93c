"""Threads of long batches, of which one that was at work is still awake when the next batch comes.

    submit ─► does a thread look for work? ─yes─► it begins at once
                        │no
                  one that sleeps is woken

A thread that has slept for 10 ms takes 0.26 ms to wake on a virtual machine, a fortieth of what a
GPU takes for 1 GiB. A client that asks again as soon as it is answered comes within 2 ms.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

from gpu.host.copy_pool import Look

Run = Callable[[], object]
SHARE, LONGEST_S = 1 / 5, 0.002  # Of what its last work took a thread looks for more, and at most.


class _Seat:
    """Where a thread finds its work, which nothing holds once it is done."""

    def __init__(self) -> None:
        self.is_given = bytearray(1)
        self._runs: list[Run] = []

    def give(self, run: Run) -> None:
        """Have the thread do this."""
        self._runs.append(run)
        self.is_given[0] = True

    def take(self) -> Run:
        """What it was given."""
        return self._runs.pop()


class AwakeThreads:
    """Does work on threads, on one that looks for some before those that sleep.

    Args:
        threads: they sleep until they are woken.
        look: see `gpu.host.copy_pool.look`; None: whoever has no work sleeps.
    """

    def __init__(self, threads: ThreadPoolExecutor, look: Look | None) -> None:
        self._threads, self._look = threads, look
        self._looking: list[_Seat] = []  # What is done with it is atomic.

    def submit(self, run: Run) -> None:
        """Have this done; any thread may ask."""
        try:
            self._looking.pop().give(run)
        except IndexError:
            seat = _Seat()
            seat.give(run)
            self._threads.submit(self._work, seat)

    def _work(self, seat: _Seat | None) -> None:
        while seat is not None:
            begin = perf_counter()
            seat.take()()
            seat = self._next(min(LONGEST_S, SHARE * (perf_counter() - begin)))

    def _next(self, seconds: float) -> _Seat | None:
        """What somebody gives within so many seconds."""
        if self._look is None:
            return None
        seat = _Seat()
        self._looking.append(seat)
        if not self._look(seat.is_given, seconds):
            try:
                self._looking.remove(seat)
                return None
            except ValueError:  # Somebody has taken it and is about to give.
                while not self._look(seat.is_given, LONGEST_S):
                    pass
        return seat

    def shutdown(self) -> None:
        """Take no more; whoever is at work finishes it, and what waits is dropped."""
        self._threads.shutdown(wait=False, cancel_futures=True)
