"""One call of DNATok's layer: the micro-batches that are left, and what comes of each.

Knows neither streams nor devices.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gpu.embedding.inputs import next_rows
from vocabularies.batch.batch import Batch

__all__ = ["MAX_AHEAD", "Part", "Run", "is_too_large"]

MAX_AHEAD = 3
"""Micro-batches whose embedding may be outstanding; bounds the memory of their ids."""

TOO_LARGE = ("out of memory", "canuse32bitindexmath", "conv1d index", "can't allocate memory")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Neighbouring rows and what the embedder made of them.

    Attributes:
        begin, end: the rows.
        ids: [end - begin, T'] on the device, padded on the left; never written again by the layer.
        activations: what `embed_tokens` gave for these ids.
        path: how the ids came: "bytes", "ids" or "upstream", with ", pipelined" where copies and
            look-ups ran beside the embedding, ", at once" where one kernel did both.
        num_upstream: rows that had to go to the upstream tokenizer.
        reason: why another path ran than was asked for; "" where it did.
    """

    begin: int
    end: int
    ids: Tensor
    activations: Any
    path: str
    num_upstream: int
    reason: str


@dataclass(slots=True)
class Run:
    """What is left to do of a call, and how many rows the embedder bears at once.

    Attributes:
        batch: all rows.
        counts: int64[B], ids of each.
        least_width: every row is padded to so many ids at least.
        max_ids, max_rows: of a micro-batch.
        begin: the first row that has not been given out.
        reason: why another path runs than was asked for.
        width: letters of every row; 0 where rows differ, or are padded, or there are none.
    """

    batch: Batch
    counts: NDArray[np.int64]
    least_width: int
    max_ids: int
    max_rows: int
    begin: int = 0
    reason: str = ""
    width: int = field(init=False)

    def __post_init__(self) -> None:
        width, num_letters = int(self.counts.max(initial=0)), len(self.batch.data)
        is_even = width >= self.least_width and width * len(self.counts) == num_letters
        self.width = width if is_even else 0

    def next_rows(self, begin: int, group: int) -> int:
        """The row behind the next micro-batches, so many at most."""
        return next_rows(self.counts, begin, self.least_width, self.max_ids, self.max_rows, group)

    def end_before(self, begin: int, row: int) -> int:
        """The end of the last micro-batch from `begin` on that is over before a row."""
        while (end := self.next_rows(begin, 1)) <= row:
            begin = end
        return begin

    def most_rows(self, width: int) -> int:
        """Rows of so many ids that are embedded at once."""
        return min(self.max_rows, max(1, self.max_ids // max(1, width)))

    def rows_at_once(self) -> int:
        """Rows of the next micro-batch at most."""
        return self.next_rows(self.begin, 1) - self.begin

    def halve(self, num_rows: int, error: RuntimeError) -> None:
        """Half as many rows at once from now on."""
        self.max_rows = max(1, num_rows // 2)
        _log.warning("%d rows are too many at once (%s): now %d", num_rows, error, self.max_rows)


def is_too_large(error: RuntimeError) -> bool:
    """Whether an embedder says that it was given too much at once."""
    message = str(error).lower()
    return any(words in message for words in TOO_LARGE)
