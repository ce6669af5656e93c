"""Times calls in turns, and summarizes samples by medians and their spread.

In turns (A B A B ...), so that a drift of the machine falls on all of them. This module does not
depend on what is timed.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from time import perf_counter

Run = Callable[[], float]
"""Does the work once and returns the seconds it took."""
Seconds = list[float]
GIGA = 1e9
MAX_SAMPLES = 2_000


def clocked(work: Callable[[], object]) -> Run:
    """Time work by the wall clock."""

    def run() -> float:
        begin = perf_counter()
        work()
        return perf_counter() - begin

    return run


def take_turns(
    runs: Mapping[str, Run], rounds: int, slice_s: float = 0.0, warmups: int = 1
) -> dict[str, Seconds]:
    """Time every run `rounds` times in turns, after `warmups` rounds; return seconds by name.

    A run that is faster than `slice_s` is repeated until its turn has lasted that long.
    """
    samples: dict[str, Seconds] = {name: [] for name in runs}
    for number in range(-warmups, rounds):
        for name, run in runs.items():
            turn_seconds: Seconds = []
            while not turn_seconds or (
                sum(turn_seconds) < slice_s and len(turn_seconds) < MAX_SAMPLES
            ):
                turn_seconds.append(run())
            if number >= 0:
                samples[name] += turn_seconds
    return samples


def summary(samples: Seconds) -> dict[str, float]:
    """Summarize samples by median, quartiles and extremes."""
    low, middle, high = (
        statistics.quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else samples * 3
    )
    return {
        "median_s": middle,
        "q1_s": low,
        "q3_s": high,
        "min_s": min(samples),
        "max_s": max(samples),
        "samples": len(samples),
    }


def per_second(num_bytes: int, samples: Seconds) -> float:
    """Return GB/s (10**9 bytes) of the median."""
    return num_bytes / statistics.median(samples) / GIGA
