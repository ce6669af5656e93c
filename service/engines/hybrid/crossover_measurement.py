"""Measures the batch size from which the GPU is faster, by timing both engines on one text.

The text is the service's own source code. engine.py compares the size of each batch with the result
(`_choose_gpu`). It uses the engines only through their interface.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np

from vocabularies.batch.batch import Batch, Encoded

logger = logging.getLogger(__name__)

NEVER = 1 << 40  # More bytes than any batch has.
SIZES = tuple(1 << n for n in range(10, 25))
ROW_CHARACTERS = 512
REPEATS = 3
BUDGET_S = 0.8
SOURCE = Path(__file__).parents[2]


class Differs(AssertionError):
    """The two engines returned different ids; the message contains the place."""


class _Trial(NamedTuple):
    """A comparison of both engines on one batch.

    Attributes:
        is_won: whether the engine for large batches was not slower.
        seconds: the time that was spent on timing.
    """

    is_won: bool
    seconds: float


def measure_crossover(
    small: Callable[[Batch], Encoded],
    large: Callable[[Batch], Encoded],
    budget_s: float = BUDGET_S,
) -> int:
    """Return the smallest of SIZES from which `large` is not slower than `small`; else NEVER.

    Each size is timed REPEATS times, and the fastest counts. An untimed run before compares the ids
    and lets both engines load kernels and allocate memory. The search ends when `large` has won two
    sizes in a row. If the budget ends before `large` has won any, the largest size decides.

    Raises:
        Differs: the ids of the engines differ.
    """
    text = _source()
    crossover = NEVER
    used_s = 0.0
    last_s = 0.0
    for size in SIZES:
        if used_s + 2 * last_s > budget_s:  # The next size takes about twice as long.
            if crossover == NEVER and _try(small, large, _make_batch(text, SIZES[-1])).is_won:
                crossover = SIZES[-1]
            break
        trial = _try(small, large, _make_batch(text, size))
        if trial.is_won and crossover != NEVER:
            break
        crossover = size if trial.is_won else NEVER
        last_s = trial.seconds
        used_s += last_s
    return crossover


def log_crossover(crossover: int) -> None:
    """Log the size from which batches go to the GPU; warn if none do."""
    if crossover != NEVER:
        logger.info("batches from %d bytes on go to the GPU", crossover)
        return
    logger.warning(
        "the CPU was faster than the GPU on batches of up to %d bytes and answers all; "
        "WARPTOK_CROSSOVER_BYTES sends batches to the GPU whatever was measured",
        SIZES[-1],
    )


def _source() -> str:
    """Read the service's source as ASCII; the CPU engine is slow on some other characters."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py")))
    return text.encode("ascii", "ignore").decode()


def _try(
    small: Callable[[Batch], Encoded], large: Callable[[Batch], Encoded], batch: Batch
) -> _Trial:
    """Compare the ids of both engines on a batch, and time both; raises Differs."""
    _compare(small(batch), large(batch), len(batch.data))
    begin = perf_counter()
    is_won = _best(large, batch) <= _best(small, batch)
    return _Trial(is_won, perf_counter() - begin)


def _make_batch(text: str, size: int) -> Batch:
    """Make a batch of about `size` bytes, in rows of ROW_CHARACTERS."""
    text = text * (size // len(text) + 1)
    return Batch([text[i : min(i + ROW_CHARACTERS, size)] for i in range(0, size, ROW_CHARACTERS)])


def _best(encode: Callable[[Batch], Encoded], batch: Batch) -> float:
    """Time a batch REPEATS times; return the shortest time in seconds."""
    times = []
    for _ in range(REPEATS):
        begin = perf_counter()
        encode(batch)
        times.append(perf_counter() - begin)
    return min(times)


def _compare(small: Encoded, large: Encoded, size: int) -> None:
    if np.array_equal(small.ids, large.ids) and np.array_equal(small.offsets, large.offsets):
        return
    common = min(len(small.ids), len(large.ids))
    places = np.flatnonzero(small.ids[:common] != large.ids[:common])
    place = int(places[0]) if len(places) else common
    raise Differs(f"{size} bytes of source text: ids differ from ids[{place}] on")
