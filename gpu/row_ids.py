"""Ids of sequences on a torch device: looked up, and asked for where only the tokenizer knows them.

Knows no embedder and no micro-batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpu.discovery import Discovery
from gpu.letters import ELSEWHERE
from gpu.look_up import LookUp, to_device
from gpu.text_memory import TextMemory
from gpu.upstream import Ragged, SequenceRefused
from vocabularies.batch import DEFAULT_OPTIONS, Batch
from vocabularies.text_joining import Memory

__all__ = ["LookedUp", "RowIds", "Way", "patched"]

NO_ROWS = np.zeros(0, np.int64)
Way = Literal["bytes", "ids", "upstream"]
"""Looked up on the device; looked up on the host and copied; asked from the upstream tokenizer."""


@dataclass(frozen=True, slots=True, eq=False)
class LookedUp:
    """Rows whose look-up has been started, perhaps on another stream.

    Attributes:
        batch: the rows.
        counts: int64[B], ids of each by the tables.
        ids: [B, T'] on the device; None where only the upstream tokenizer gives them.
        least: the least code of a byte, in host memory; None where all are known.
        done: an event of the stream that fills both; None where there is nothing to wait for.
    """

    batch: Batch
    counts: NDArray[np.int64]
    ids: Tensor | None
    least: Tensor | None
    done: Any


class RowIds:
    """The ids that a discovery means, on one device."""

    def __init__(
        self,
        discovery: Discovery,
        device: torch.device,
        ids_dtype: torch.dtype,
        staging_dtype: torch.dtype,
        num_ids: int | None,
    ) -> None:
        """Put the tables on the device.

        Args:
            discovery: what is known of the tokenizer.
            device: where the ids are wanted.
            ids_dtype: int64 or int32, what they are there.
            staging_dtype: int64 or int32, what way "ids" copies there.
            num_ids: every id must be below this; None: any may occur.

        Raises:
            ValueError: a dtype is another one, or a table has a larger id.
        """
        for dtype in (ids_dtype, staging_dtype):
            if dtype not in (torch.int32, torch.int64):
                raise ValueError(f"ids are int32 or int64, not {dtype}")
        self.discovery, self.device = discovery, device
        self._dtype, self._num_ids = ids_dtype, num_ids
        self._texts = TextMemory() if device.type == "cuda" else None
        rule, pad_id = discovery.rule, discovery.pad_id
        self._check(max(pad_id, 0 if rule is None else rule.largest_id))
        self._look_up: dict[str, LookUp] = {}
        if rule is not None:
            self._look_up["bytes"] = LookUp(rule, pad_id, device, ids_dtype)
            staged = staging_dtype if device.type == "cuda" else ids_dtype
            self._look_up["ids"] = LookUp(rule, pad_id, torch.device("cpu"), staged)

    @property
    def text_memory(self) -> Memory | None:
        """Where strings are best joined before `look_up`."""
        return None if self._texts is None else self._texts.take

    def _check(self, largest: int) -> None:
        if self._num_ids is not None and largest >= self._num_ids:
            raise ValueError(f"the embedder has {self._num_ids} rows, and an id is {largest}")

    def counts(self, batch: Batch) -> NDArray[np.int64]:
        """int64[B]: how many ids the rows have by the tables, or bytes where there are none."""
        lengths = batch.offsets[1:] - batch.offsets[:-1]
        return lengths if self.discovery.rule is None else self.discovery.rule.counts(lengths)

    def look_up(self, batch: Batch, way: Way) -> LookedUp:
        """Start the look-up of a batch on the current stream, without waiting for it."""
        counts = self.counts(batch)
        if way == "upstream" or self.discovery.rule is None:
            return LookedUp(batch, counts, None, None, None)
        width = max(self.discovery.token_len or 0, int(counts.max(initial=0)))
        ids, least = self._look_up[way](batch.data, batch.offsets, width)
        if way == "ids":
            ids = to_device(ids.numpy(), self.device)
        if least is not None:
            least = least.to("cpu", non_blocking=True)
        ids = ids.to(self._dtype)
        if self._texts is None:
            return LookedUp(batch, counts, ids, least, None)
        done = torch.cuda.current_stream(self.device).record_event()
        self._texts.keep(batch.data, done)
        return LookedUp(batch, counts, ids, least, done)

    def finish(self, looked_up: LookedUp) -> tuple[Tensor, NDArray[np.int64]]:
        """The ids of the rows, and which of them came from the upstream tokenizer.

        Waits until it is known that the tables know every byte; where they do not, those rows are
        encoded here and now.

        Returns:
            [B, T'] on the device, each row padded on the left to the longest one and at least to
            `token_len`; and int64[r], rows of the batch. The current stream must wait for `done`.

        Raises:
            SequenceRefused: the upstream tokenizer refuses a row.
            ValueError: it gives an id that is too large.
        """
        batch, ids, rule = looked_up.batch, looked_up.ids, self.discovery.rule
        if ids is None or rule is None:
            rows, nothing = np.arange(len(batch)), np.zeros((len(batch), 0), np.int64)
            return self._with_upstream(batch, nothing, looked_up.counts, rows), rows
        if looked_up.least is None:
            return ids, NO_ROWS
        if looked_up.done is not None:
            looked_up.done.synchronize()
        if int(looked_up.least) != ELSEWHERE:
            return ids, NO_ROWS
        places = np.flatnonzero(rule.codes[batch.data] == ELSEWHERE)
        rows = np.unique(np.searchsorted(batch.offsets, places, side="right") - 1)
        return self._with_upstream(batch, ids.cpu().numpy(), looked_up.counts, rows), rows

    def _with_upstream(
        self, batch: Batch, ids: NDArray[Any], counts: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> Tensor:
        upstream = self.discovery.upstream
        assert upstream is not None, "without an upstream tokenizer the tables know every byte"
        try:
            new = upstream(batch.select(rows.tolist(), DEFAULT_OPTIONS))
        except SequenceRefused as refused:
            raise SequenceRefused(int(rows[refused.row]), refused.problem) from refused
        self._check(int(new[0].max(initial=0)))
        least, pad_id = self.discovery.token_len or 0, self.discovery.pad_id
        return to_device(patched(ids, counts, rows, new, least, pad_id), self.device).to(
            self._dtype
        )


def patched(
    ids: NDArray[Any],
    counts: NDArray[np.int64],
    rows: NDArray[np.int64],
    upstream: Ragged,
    least_width: int,
    pad_id: int,
) -> NDArray[Any]:
    """Ids [b, T'] in which some rows come from the upstream tokenizer.

    Args:
        ids: [b, T''], padded on the left.
        counts: int64[b], ids of each row by the tables.
        rows: int64[r], those that are replaced.
        upstream: their ids and offsets.
        least_width: T' is that of the longest row, and at least this.
        pad_id: id of the padding.
    """
    new_ids, offsets = upstream
    counts = counts.copy()
    counts[rows] = np.diff(offsets)
    width = max(least_width, int(counts.max(initial=0)))
    answer = np.full((len(ids), width), pad_id, ids.dtype)
    kept = min(width, ids.shape[1])
    answer[:, width - kept :] = ids[:, ids.shape[1] - kept :]
    columns = np.arange(width)
    answer[rows] = pad_id
    row, column = np.nonzero(columns >= (width - counts[rows])[:, None])
    answer[rows[row], column] = new_ids
    return answer
