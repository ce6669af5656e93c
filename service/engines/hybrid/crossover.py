"""From which size on a batch is faster on the GPU: both engines timed on the same text.

Knows no engine's inside. The text is the service's own source, English and code of every length.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import numpy as np

from vocabularies.batch.batch import Batch, Encoded

logger = logging.getLogger(__name__)

NEVER = 1 << 40  # More than any batch has.
SIZES = tuple(1 << n for n in range(10, 21))
ROW_CHARACTERS = 512
REPEATS = 3
BUDGET_S = 0.8
SOURCE = Path(__file__).parents[2]


class Differs(AssertionError):
    """The two engines gave different ids; the message says on what."""


def measure_crossover(
    small: Callable[[Batch], Encoded],
    large: Callable[[Batch], Encoded],
    budget_s: float = BUDGET_S,
) -> int:
    """The smallest of SIZES from which on `large` is not slower than `small`; else NEVER.

    Each size is run REPEATS times, of which the fastest counts; once before, to compare the ids and
    to let both engines allocate what they keep. It ends at the second size in a row that `large`
    wins. When the time is up before it has won any, the largest size decides. Calls that are not
    timed take none of it: the first one of a kernel loads it.

    Raises:
        Differs: the ids are not the same.
    """
    text = _source()
    crossover, seconds, spent_s = NEVER, 0.0, 0.0
    for size in SIZES:
        if spent_s + 2 * seconds > budget_s:  # The next size takes about twice as long.
            if crossover == NEVER and _is_won(small, large, _batch_of(text, SIZES[-1]))[0]:
                crossover = SIZES[-1]
            break
        is_won, seconds = _is_won(small, large, _batch_of(text, size))
        if is_won and crossover != NEVER:
            break
        crossover = size if is_won else NEVER
        spent_s += seconds
    return crossover


def log_crossover(crossover: int) -> None:
    """Say from which size on batches are for the GPU, and warn where none is."""
    if crossover != NEVER:
        logger.info("batches from %d bytes on are for the GPU", crossover)
        return
    logger.warning(
        "the CPU was faster than the GPU on batches of up to %d bytes and answers all; "
        "WARPTOK_CROSSOVER_BYTES sends batches to the GPU whatever was measured",
        SIZES[-1],
    )


def _source() -> str:
    """Our own source without what is not ASCII, of which the CPU engine takes some the slow way."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py")))
    return text.encode("ascii", "ignore").decode()


def _is_won(
    small: Callable[[Batch], Encoded], large: Callable[[Batch], Encoded], batch: Batch
) -> tuple[bool, float]:
    """Whether `large` is not slower on a batch, and the seconds of timing; raises Differs."""
    _compare(small(batch), large(batch), len(batch.data))
    begin = perf_counter()
    is_won = _best(large, batch) <= _best(small, batch)
    return is_won, perf_counter() - begin


def _batch_of(text: str, size: int) -> Batch:
    """About so many bytes of text in rows."""
    text = text * (size // len(text) + 1)
    return Batch([text[i : min(i + ROW_CHARACTERS, size)] for i in range(0, size, ROW_CHARACTERS)])


def _best(encode: Callable[[Batch], Encoded], batch: Batch) -> float:
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
