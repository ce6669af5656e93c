"""Plans the micro-batches of one call of the layer, and holds the embeddings of each.

Nothing here uses streams or devices.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpu.embedding.row_layout import PaddingSide
from vocabularies.batch.batch import Batch

MAX_AHEAD = 3
"""Micro-batches whose embedding may be outstanding; bounds the memory of their ids."""

TOO_LARGE = ("out of memory", "canuse32bitindexmath", "conv1d index", "can't allocate memory")
"""Words in the errors of embedders for which a batch is too large, in lower case."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Neighbouring rows and their embeddings.

    Attributes:
        begin: the first row.
        end: the row after the last one.
        ids: [end - begin, T'] on the device, padded; the layer does not write to it.
        counts: int64[end - begin] on the host, the ids of each row, without padding.
        padding_side: the side of a row that is padded.
        activations: the result of `embed_tokens` for these ids.
        path: how the ids were found: "bytes", "ids" or "upstream"; with ", pipelined" where copies
            and look-ups ran beside the embedding, with ", at once" where one kernel did both.
        num_upstream: the number of rows that the upstream tokenizer encoded.
        reason: why a path other than the chosen one ran; "" where the chosen one ran.
    """

    begin: int
    end: int
    ids: Tensor
    counts: NDArray[np.int64]
    padding_side: PaddingSide
    activations: Any
    path: str
    num_upstream: int
    reason: str

    @property
    def attention_mask(self) -> Tensor:
        """1 for each id of a row and 0 for padding, int64[end - begin, T'] on the device."""
        return make_attention_mask(self.ids, self.counts, self.padding_side)


def make_attention_mask(
    ids: Tensor, counts: NDArray[np.int64], padding_side: PaddingSide
) -> Tensor:
    """Make the mask of ids [b, T'], int64[b, T'], from the ids of each row, int64[b]."""
    width = ids.shape[1]
    if int(counts.min(initial=width)) == width:
        return torch.ones_like(ids, dtype=torch.int64)
    columns = torch.arange(width, device=ids.device)
    d_counts = torch.from_numpy(counts).to(ids.device)[:, None]
    is_id = columns >= width - d_counts if padding_side == "left" else columns < d_counts
    return is_id.long()


@dataclass(slots=True)
class MicroBatchPlan:
    """The remaining rows of a call, and how many of them are embedded at once.

    Attributes:
        batch: all rows.
        counts: int64[B], the ids of each row.
        least_width: the lowest number of ids to which every row is padded.
        max_ids: ids of a micro-batch at most; a single row may have more.
        max_rows: rows of a micro-batch at most.
        begin: the first row that has not been returned yet.
        reason: why a path other than the chosen one runs.
        width: the number of letters of every row; 0 if rows differ or are padded, or if there are
            none.
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
        width = int(self.counts.max(initial=0))
        is_even = width * len(self.counts) == len(self.batch.data)
        self.width = width if is_even and width >= self.least_width else 0

    def find_end(self, begin: int, group: int = 1) -> int:
        """Find the row after the next `group` micro-batches that begin at a row.

        Rows are padded to the longest of them, so b rows of equal length T' are min(max_rows,
        max(1, max_ids // T')), as in DNATok's Algorithm 2. A group ends early at a row that is
        longer than the first one.
        """
        first = max(int(self.counts[begin]), self.least_width, 1)
        num_rows = max(1, min(self.max_rows, self.max_ids // first))
        nearest = self.counts[begin : begin + group * num_rows]
        if int(nearest.max()) <= first:
            return begin + len(nearest)
        nearest = nearest[:num_rows]
        widths = np.maximum(np.maximum.accumulate(nearest), self.least_width)
        # Both factors grow from row to row, so the rows that fit come first.
        fits = widths * np.arange(1, len(nearest) + 1) <= self.max_ids
        return begin + max(1, int(np.count_nonzero(fits)))

    def find_end_before(self, begin: int, row: int) -> int:
        """Find the end of the last micro-batch from `begin` on that ends before a row."""
        while (end := self.find_end(begin)) <= row:
            begin = end
        return begin

    def count_rows(self, width: int) -> int:
        """Count the rows of `width` ids that are embedded at once."""
        return min(self.max_rows, max(1, self.max_ids // max(1, width)))

    def count_next_rows(self) -> int:
        """Count the rows of the next micro-batch."""
        return self.find_end(self.begin) - self.begin

    def halve(self, num_rows: int, error: RuntimeError) -> None:
        """Embed at most half of `num_rows` at once from now on, because of an error."""
        self.max_rows = max(1, num_rows // 2)
        _log.warning("%d rows are too many at once (%s): now %d", num_rows, error, self.max_rows)


def is_too_large(error: RuntimeError) -> bool:
    """Return whether an error means that a micro-batch is too large for the embedder."""
    message = str(error).lower()
    return any(words in message for words in TOO_LARGE)
