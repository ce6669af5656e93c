"""Ids of sequences on a torch device: looked up, and asked for where only the tokenizer knows them.

Knows no embedder and no micro-batches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpu.embedding.inputs import as_batch
from gpu.embedding.kernel_lookup import KernelLookUp, kernel_look_up
from gpu.embedding.letter_rule import ELSEWHERE
from gpu.embedding.pinned_text import TextMemory, staging
from gpu.embedding.tokenizer_discovery import Discovery
from gpu.embedding.torch_lookup import LookUp, to_device
from gpu.embedding.upstream_tokenizer import Ragged, SequenceRefused
from vocabularies.batch.batch import DEFAULT_OPTIONS, Batch

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
        has_unknown: whether a byte has no code, once `done` has passed; None where all have.
        done: an event of the stream that fills them; None where there is nothing to wait for.
        is_beside: this is not the stream on which the rows go on.
    """

    batch: Batch
    counts: NDArray[np.int64]
    ids: Tensor | None
    has_unknown: Callable[[], bool] | None
    done: Any
    is_beside: bool = False


class RowIds:
    """The ids that a discovery means, on one device.

    Attributes:
        dtype: int64 or int32, what they are there.
        texts: pinned memory for text; None on a CPU.
    """

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
        self.dtype, self._num_ids = ids_dtype, num_ids
        self.texts = TextMemory() if device.type == "cuda" else None
        rule, pad_id = discovery.rule, discovery.pad_id
        self._check(max(pad_id, 0 if rule is None else rule.largest_id))
        self._look_up: dict[str, LookUp | KernelLookUp] = {}
        if rule is not None:
            by_kernels = None
            if self.texts is not None:
                by_kernels = kernel_look_up(rule, pad_id, device, ids_dtype, self.texts)
            self._look_up["bytes"] = by_kernels or LookUp(rule, pad_id, device, ids_dtype)
            staged = staging_dtype if device.type == "cuda" else ids_dtype
            memory = None if self.texts is None else self.texts.take
            self._look_up["ids"] = LookUp(rule, pad_id, torch.device("cpu"), staged, memory)

    def batch(self, sequences: Any) -> Batch:
        """Anything that holds sequences, as `torch_lookup` takes it best; see `inputs.as_batch`."""
        if self.texts is None:
            return as_batch(sequences)
        return as_batch(sequences, self.texts.take, staging().gather)

    def _check(self, largest: int) -> None:
        if self._num_ids is not None and largest >= self._num_ids:
            raise ValueError(f"the embedder has {self._num_ids} rows, and an id is {largest}")

    def counts(self, batch: Batch) -> NDArray[np.int64]:
        """int64[B]: how many ids the rows have by the tables, or bytes where there are none."""
        lengths = batch.offsets[1:] - batch.offsets[:-1]
        return lengths if self.discovery.rule is None else self.discovery.rule.counts(lengths)

    def look_up(self, batch: Batch, way: Way, side: Any = None) -> LookedUp:
        """Start the look-up of a batch without waiting for it, on the current stream or another."""
        if side is not None:
            with torch.cuda.stream(side):
                return self._start(batch, way, side)
        return self._start(batch, way, None)

    def _start(self, batch: Batch, way: Way, side: Any) -> LookedUp:
        counts = self.counts(batch)
        if way == "upstream" or self.discovery.rule is None:
            return LookedUp(batch, counts, None, None, None)
        width = max(self.discovery.token_len or 0, int(counts.max(initial=0)))
        found = self._look_up[way](batch.data, batch.offsets, width)
        ids, has_unknown = found.ids, found.has_unknown
        if way == "ids":
            ids = to_device(ids.numpy(), self.device)
        ids = ids.to(self.dtype)
        if self.texts is None:
            return LookedUp(batch, counts, ids, has_unknown, None)
        done = (side or torch.cuda.current_stream(self.device)).record_event()
        self.texts.keep(batch.data, done)
        for memory in found.host:
            self.texts.hold(memory, done)
        return LookedUp(batch, counts, ids, has_unknown, done, side is not None)

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
        if looked_up.has_unknown is None:
            return ids, NO_ROWS
        if looked_up.done is not None:
            looked_up.done.synchronize()
        if not looked_up.has_unknown():
            return ids, NO_ROWS
        places = np.flatnonzero(rule.codes[batch.data] == ELSEWHERE)
        rows = np.unique(np.searchsorted(batch.offsets, places, side="right") - 1)
        if not len(rows):  # A much later batch had such a byte.
            return ids, NO_ROWS
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
        return to_device(patched(ids, counts, rows, new, least, pad_id), self.device).to(self.dtype)


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
