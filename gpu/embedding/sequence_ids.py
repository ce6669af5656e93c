"""Computes the ids of sequences on a torch device, by look-up and by the upstream tokenizer.

The tokenizer encodes only rows that the tables have no ids for. This module uses no embedder and no
micro-batches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpu.embedding.inputs import as_batch
from gpu.embedding.kernel_lookup import KernelLookUp, make_kernel_look_up
from gpu.embedding.letter_rule import NEEDS_UPSTREAM
from gpu.embedding.pinned_text import TextMemory, copy_pool
from gpu.embedding.tokenizer_discovery import Discovery
from gpu.embedding.torch_lookup import TorchLookUp, to_device
from gpu.embedding.upstream_tokenizer import Ragged, SequenceRefused
from vocabularies.batch.batch import DEFAULT_OPTIONS, Batch

NO_ROWS = np.zeros(0, np.int64)
IdSource = Literal["bytes", "ids", "upstream"]
"""Where ids come from: look-up on the device, look-up on the host and a copy, or the tokenizer."""


@dataclass(frozen=True, slots=True, eq=False)
class PendingIds:
    """Holds rows whose look-up has been started, perhaps on another stream.

    Attributes:
        batch: the rows.
        counts: int64[B], the number of ids of each by the tables.
        ids: [B, T'] on the device; None where the upstream tokenizer encodes all rows.
        has_unknown: tells, once `done` has passed, whether a byte has no code; None where every
            byte has one.
        done: the event after the look-up; None on a CPU.
        is_on_side_stream: whether the look-up runs on another stream than the embedding.
    """

    batch: Batch
    counts: NDArray[np.int64]
    ids: Tensor | None
    has_unknown: Callable[[], bool] | None
    done: Any
    is_on_side_stream: bool = False


class FinishedIds(NamedTuple):
    """Holds the ids of a batch of rows.

    Attributes:
        ids: [B, T'] on the device, each row padded on the left to the longest one and at least to
            `token_len`.
        upstream_rows: int64[r], the rows that the upstream tokenizer encoded.
    """

    ids: Tensor
    upstream_rows: NDArray[np.int64]


class SequenceIds:
    """Computes ids on one device, by the rule and the tokenizer of a discovery.

    Attributes:
        discovery: the rule and the tokenizer.
        device: where the ids are.
        dtype: int64 or int32, that of the ids.
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
        """Copy the tables to the device.

        Args:
            discovery: what was found out about the tokenizer.
            device: where the ids are used.
            ids_dtype: int64 or int32, that of the ids.
            staging_dtype: int64 or int32, that of ids which are looked up on the host and copied.
            num_ids: every id must be below this number; None: there is no bound.

        Raises:
            ValueError: a dtype is another one, or a table has an id that is too large.
        """
        for dtype in (ids_dtype, staging_dtype):
            if dtype not in (torch.int32, torch.int64):
                raise ValueError(f"ids are int32 or int64, not {dtype}")
        self.discovery = discovery
        self.device = device
        self.dtype = ids_dtype
        self._num_ids = num_ids
        self.texts = TextMemory() if device.type == "cuda" else None
        rule, pad_id = discovery.rule, discovery.pad_id
        self._check_largest(max(pad_id, 0 if rule is None else rule.largest_id))
        self._look_up: dict[str, TorchLookUp | KernelLookUp] = {}
        if rule is not None:
            by_kernels = None
            if self.texts is not None:
                by_kernels = make_kernel_look_up(rule, pad_id, device, ids_dtype, self.texts)
            self._look_up["bytes"] = by_kernels or TorchLookUp(rule, pad_id, device, ids_dtype)
            staged = staging_dtype if device.type == "cuda" else ids_dtype
            memory = None if self.texts is None else self.texts.take
            self._look_up["ids"] = TorchLookUp(rule, pad_id, torch.device("cpu"), staged, memory)

    def make_batch(self, sequences: Any) -> Batch:
        """Join sequences, on a GPU in pinned memory; see `inputs.as_batch`."""
        if self.texts is None:
            return as_batch(sequences)
        return as_batch(sequences, self.texts.take, copy_pool().gather)

    def _check_largest(self, largest: int) -> None:
        """Raise a ValueError where an id is beyond the embedder's rows."""
        if self._num_ids is not None and largest >= self._num_ids:
            raise ValueError(f"the embedder has {self._num_ids} rows, and an id is {largest}")

    def count_ids(self, batch: Batch) -> NDArray[np.int64]:
        """Count the ids of each row by the tables, int64[B]; without a rule, its bytes."""
        lengths = batch.offsets[1:] - batch.offsets[:-1]
        return lengths if self.discovery.rule is None else self.discovery.rule.count_ids(lengths)

    def look_up(self, batch: Batch, source: IdSource, side: Any = None) -> PendingIds:
        """Start the look-up of a batch without waiting, on the current stream or a side stream."""
        if side is not None:
            with torch.cuda.stream(side):
                return self._start(batch, source, side)
        return self._start(batch, source, None)

    def _start(self, batch: Batch, source: IdSource, side: Any) -> PendingIds:
        """Start the look-up on the current stream, which is `side` unless that is None."""
        counts = self.count_ids(batch)
        if source == "upstream" or self.discovery.rule is None:
            return PendingIds(batch, counts, ids=None, has_unknown=None, done=None)
        width = max(self.discovery.token_len or 0, int(counts.max(initial=0)))
        result = self._look_up[source](batch.data, batch.offsets, width)
        ids = result.ids
        if source == "ids":
            ids = to_device(ids.numpy(), self.device)
        ids = ids.to(self.dtype)
        if self.texts is None:
            return PendingIds(batch, counts, ids, result.has_unknown, done=None)
        done = (side or torch.cuda.current_stream(self.device)).record_event()
        self.texts.keep(batch.data, done)
        for memory in result.host:
            self.texts.hold(memory, done)
        return PendingIds(batch, counts, ids, result.has_unknown, done, side is not None)

    def finish(self, looked_up: PendingIds) -> FinishedIds:
        """Wait until it is known whether all bytes have codes, and encode the rows that need it.

        The current stream must wait for `looked_up.done` before it reads the ids.

        Raises:
            SequenceRefused: the upstream tokenizer refuses a row.
            ValueError: the upstream tokenizer gives an id that is too large.
        """
        batch = looked_up.batch
        ids = looked_up.ids
        rule = self.discovery.rule
        if ids is None or rule is None:
            rows = np.arange(len(batch))
            no_ids = np.zeros((len(batch), 0), np.int64)
            return FinishedIds(self._encode_rows(batch, no_ids, looked_up.counts, rows), rows)
        if looked_up.has_unknown is None:
            return FinishedIds(ids, NO_ROWS)
        if looked_up.done is not None:
            looked_up.done.synchronize()
        if not looked_up.has_unknown():
            return FinishedIds(ids, NO_ROWS)
        places = np.flatnonzero(rule.codes[batch.data] == NEEDS_UPSTREAM)
        rows = np.unique(np.searchsorted(batch.offsets, places, side="right") - 1)
        if not len(rows):  # A much later batch has set the mark.
            return FinishedIds(ids, NO_ROWS)
        host_ids = ids.cpu().numpy()
        return FinishedIds(self._encode_rows(batch, host_ids, looked_up.counts, rows), rows)

    def _encode_rows(
        self, batch: Batch, ids: NDArray[Any], counts: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> Tensor:
        """Encode some rows by the upstream tokenizer and insert their ids; return [b, T']."""
        upstream = self.discovery.upstream
        assert upstream is not None, "without an upstream tokenizer the tables know every byte"
        try:
            encoded = upstream(batch.select(rows.tolist(), DEFAULT_OPTIONS))
        except SequenceRefused as refused:
            raise SequenceRefused(int(rows[refused.row]), refused.problem) from refused
        self._check_largest(int(encoded.ids.max(initial=0)))
        answer = insert_rows(
            ids,
            counts,
            rows,
            encoded,
            least_width=self.discovery.token_len or 0,
            pad_id=self.discovery.pad_id,
        )
        return to_device(answer, self.device).to(self.dtype)


def insert_rows(
    ids: NDArray[Any],
    counts: NDArray[np.int64],
    rows: NDArray[np.int64],
    upstream: Ragged,
    least_width: int,
    pad_id: int,
) -> NDArray[Any]:
    """Replace some rows of a matrix of ids by rows of other lengths; return [b, T'].

    Args:
        ids: [b, T''], padded on the left.
        counts: int64[b], the number of ids of each row.
        rows: int64[r], the rows that are replaced.
        upstream: the new ids of these rows.
        least_width: T' is the length of the longest row, and at least this.
        pad_id: the id of the padding.
    """
    counts = counts.copy()
    counts[rows] = np.diff(upstream.offsets)
    width = max(least_width, int(counts.max(initial=0)))
    answer = np.full((len(ids), width), pad_id, ids.dtype)
    kept = min(width, ids.shape[1])
    answer[:, width - kept :] = ids[:, ids.shape[1] - kept :]
    columns = np.arange(width)
    answer[rows] = pad_id
    row, column = np.nonzero(columns >= (width - counts[rows])[:, None])
    answer[rows[row], column] = upstream.ids
    return answer
