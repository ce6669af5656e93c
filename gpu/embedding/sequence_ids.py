"""Computes the ids of sequences on a torch device, by look-up and by the upstream tokenizer.

The tokenizer encodes only rows that the tables have no ids for. This module uses no embedder and no
micro-batches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpu.embedding.inputs import as_batch
from gpu.embedding.letter_rule import NEEDS_UPSTREAM
from gpu.embedding.lookup.kernel_lookup import KernelLookUp, make_kernel_look_up
from gpu.embedding.lookup.run_lookup import RunLookUp
from gpu.embedding.lookup.torch_lookup import TorchLookUp, to_device
from gpu.embedding.pinned_text import TextMemory, copy_pool, record_event
from gpu.embedding.row_layout import RowLayout
from gpu.embedding.tokenizer_discovery import Discovery
from gpu.embedding.upstream_tokenizer import SequenceRefused
from vocabularies.batch.batch import DEFAULT_OPTIONS, Batch
from vocabularies.batch.ragged import ragged_indices

NO_ROWS = np.zeros(0, np.int64)
IdSource = Literal["bytes", "ids", "upstream"]
"""Where ids come from: look-up on the device, look-up on the host and a copy, or the tokenizer."""


@dataclass(frozen=True, slots=True, eq=False)
class PendingIds:
    """Rows whose look-up has been started, possibly on another stream.

    Attributes:
        batch: the rows.
        counts: int64[B], the number of ids of each by the tables, begin and end tokens included.
        ids: [B, T'] on the device; None if the upstream tokenizer encodes all rows.
        has_unknown: whether a byte has no code, valid once `done` has passed; None if every
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
    """The ids of a batch of rows.

    Attributes:
        ids: [B, T'] on the device, laid out as the RowLayout says.
        counts: int64[B] on the host, the ids of each row, begin and end tokens included.
        upstream_rows: int64[r], the rows that the upstream tokenizer encoded.
    """

    ids: Tensor
    counts: NDArray[np.int64]
    upstream_rows: NDArray[np.int64]


class _NewRows(NamedTuple):
    """Rows that replace looked-up ones.

    Attributes:
        rows: int64[r], their numbers.
        ids: [T] on the device, one row after another.
        counts: int64[r], the ids of each.
        has_begin_end_tokens: whether the ids include begin and end tokens.
    """

    rows: NDArray[np.int64]
    ids: Tensor
    counts: NDArray[np.int64]
    has_begin_end_tokens: bool


class SequenceIds:
    """Computes ids on one device, by the rule and the tokenizer of a discovery.

    Attributes:
        discovery: the rule and the tokenizer.
        layout: where the ids of a row stand.
        device: where the ids are.
        dtype: int64 or int32, that of the ids.
        texts: pinned memory for text; None on a CPU.
    """

    def __init__(
        self,
        discovery: Discovery,
        layout: RowLayout,
        device: torch.device,
        ids_dtype: torch.dtype,
        staging_dtype: torch.dtype,
        num_ids: int | None,
        *,
        add_special_tokens: bool = False,
    ) -> None:
        """Copy the tables to the device.

        Args:
            discovery: the rule and the tokenizer.
            layout: where the ids of a row stand.
            device: where the ids are used.
            ids_dtype: int64 or int32, that of the ids.
            staging_dtype: int64 or int32, that of ids which are looked up on the host and copied.
            num_ids: every id must be below this number; None: there is no bound.
            add_special_tokens: whether rows that the tokenizer encodes have begin and end tokens,
                as those of the layout.

        Raises:
            ValueError: a dtype is another one, or a table has an id that is too large.
        """
        for dtype in (ids_dtype, staging_dtype):
            if dtype not in (torch.int32, torch.int64):
                raise ValueError(f"dtype is {dtype}; it must be int32 or int64")
        self.discovery = discovery
        self.device = device
        self.dtype = ids_dtype
        self._num_ids = num_ids
        self.texts = TextMemory() if device.type == "cuda" else None
        self.layout = layout
        self._upstream = discovery.with_special_tokens if add_special_tokens else discovery.upstream
        self._look_up: dict[str, TorchLookUp | KernelLookUp] = {}
        self._run_look_up: RunLookUp | None = None
        rule, added = discovery.rule, layout.begin_end_tokens
        self._check_largest(max(layout.pad_id, *added.ids, 0 if rule is None else rule.largest_id))
        if rule is None:
            return
        by_kernels = None
        if self.texts is not None:
            by_kernels = make_kernel_look_up(rule, layout, device, ids_dtype, self.texts)
        self._look_up["bytes"] = by_kernels or TorchLookUp(rule, layout, device, ids_dtype)
        staged = staging_dtype if device.type == "cuda" else ids_dtype
        memory = None if self.texts is None else self.texts.take
        self._look_up["ids"] = TorchLookUp(rule, layout, torch.device("cpu"), staged, memory)
        # On a CPU an engine is five times as fast as torch.
        if rule.runs is not None and (device.type == "cuda" or not discovery.has_engine):
            self._run_look_up = RunLookUp(rule, rule.runs, device, ids_dtype)

    def make_batch(self, sequences: Any) -> Batch:
        """Join sequences, on a GPU in pinned memory; see `inputs.as_batch`."""
        if self.texts is None:
            return as_batch(sequences)
        return as_batch(sequences, self.texts.take, copy_pool().gather)

    def _check_largest(self, largest: int) -> None:
        """Raise a ValueError where an id is beyond the embedder's rows."""
        if self._num_ids is not None and largest >= self._num_ids:
            raise ValueError(f"the embedder has {self._num_ids} rows, but an id is {largest}")

    def count_ids(self, batch: Batch) -> NDArray[np.int64]:
        """Count the ids of each row by the tables, int64[B], begin and end tokens included.

        Without a rule each byte counts as one.
        """
        lengths = batch.offsets[1:] - batch.offsets[:-1]
        rule = self.discovery.rule
        counts = lengths if rule is None else rule.count_ids(lengths)
        num_added = len(self.layout.begin_end_tokens.ids)
        return counts + num_added if num_added else counts

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
        width = self.layout.find_width(counts)
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
        """Wait for the look-up, and encode the rows with bytes that have no codes by the tokenizer.

        The current stream must wait for `looked_up.done` before it reads the ids. Rows that are
        looked up or encoded here are written on the current stream.

        Raises:
            SequenceRefused: the upstream tokenizer refuses a row.
            ValueError: the upstream tokenizer gives an id that is too large.
        """
        batch, ids, counts = looked_up.batch, looked_up.ids, looked_up.counts
        if ids is None or self.discovery.rule is None:
            rows = np.arange(len(batch))
            no_ids = torch.empty((len(batch), 0), dtype=self.dtype, device=self.device)
            return self._replace_rows(no_ids, np.zeros_like(counts), [self._encode(batch, rows)])
        unknown = self._find_unknown_rows(looked_up)
        by_runs = np.zeros(len(unknown), np.bool_)
        if self._run_look_up is not None and len(unknown):
            by_runs = self._find_covered_rows(batch, unknown)
        num_added = len(self.layout.begin_end_tokens.ids)
        pieces = np.flatnonzero(self._are_in_pieces(counts - num_added))
        new = []
        if by_runs.any():
            runs = self._encode_runs(batch, np.setdiff1d(unknown[by_runs], pieces))
            in_pieces = runs.rows[self._are_in_pieces(runs.counts)]
            if len(in_pieces):  # They have more ids than the words of their length.
                runs = self._encode_runs(batch, np.setdiff1d(runs.rows, in_pieces))
                pieces = np.union1d(pieces, in_pieces)
            new.append(runs)
        upstream = np.union1d(unknown[~by_runs], pieces)
        if len(upstream):
            new.append(self._encode(batch, upstream))
        if not new:
            return FinishedIds(ids, counts, NO_ROWS)
        if looked_up.is_on_side_stream:
            # The looked-up ids are read here, and their memory is given back before that is done.
            stream = torch.cuda.current_stream(self.device)
            stream.wait_event(looked_up.done)
            cast("Any", ids).record_stream(stream)
        return self._replace_rows(ids, counts, new)

    def _find_unknown_rows(self, looked_up: PendingIds) -> NDArray[np.int64]:
        """Wait for a look-up; find the rows, int64[r], with bytes that have no codes."""
        if looked_up.has_unknown is None:
            return NO_ROWS
        if looked_up.done is not None:
            looked_up.done.synchronize()
        if not looked_up.has_unknown():
            return NO_ROWS
        rule, batch = self.discovery.rule, looked_up.batch
        assert rule is not None
        # There are none where a much later batch has set the mark.
        places = np.flatnonzero(rule.codes[batch.data] == NEEDS_UPSTREAM)
        rows: NDArray[np.int64] = np.unique(
            np.searchsorted(batch.offsets, places, side="right") - 1
        )
        return rows

    def _find_covered_rows(self, batch: Batch, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Find the rows, none of them empty, for which the tables have ids, bool[r]."""
        rule = self.discovery.rule
        assert rule is not None
        part = select_rows(batch, rows)
        covered: NDArray[np.bool_] = np.logical_and.reduceat(
            rule.covers[part.data], part.offsets[:-1]
        )
        return covered

    def _are_in_pieces(self, counts: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Find the rows with too many ids for one pair of begin and end tokens."""
        max_ids = self.layout.begin_end_tokens.max_ids
        return np.zeros(len(counts), np.bool_) if max_ids is None else counts >= max_ids

    def _encode_runs(self, batch: Batch, rows: NDArray[np.int64]) -> _NewRows:
        """Look up rows with letters, such as N, after which a new sequence of words begins."""
        assert self._run_look_up is not None
        part = select_rows(batch, rows)
        looked_up = self._run_look_up(part.data, part.offsets)
        return _NewRows(rows, looked_up.ids, looked_up.counts, has_begin_end_tokens=False)

    def _encode(self, batch: Batch, rows: NDArray[np.int64]) -> _NewRows:
        """Encode rows by the upstream tokenizer."""
        assert self._upstream is not None, "without an upstream tokenizer the tables know all bytes"
        try:
            encoded = self._upstream(select_rows(batch, rows))
        except SequenceRefused as refused:
            raise SequenceRefused(int(rows[refused.row]), refused.problem) from refused
        self._check_largest(int(encoded.ids.max(initial=0)))
        ids = to_device(encoded.ids, self.device)
        if self.texts is not None:  # An engine lends its pinned memory while the array lives.
            self.texts.hold(encoded.ids.view(np.uint8), record_event(self.device))
        return _NewRows(
            rows, ids.to(self.dtype), np.diff(encoded.offsets), has_begin_end_tokens=True
        )

    def _replace_rows(
        self, ids: Tensor, counts: NDArray[np.int64], new: list[_NewRows]
    ) -> FinishedIds:
        """Put new rows in the place of looked-up ones, in a matrix as wide as the longest row."""
        layout = self.layout
        added = layout.begin_end_tokens
        counts = counts.copy()
        for part in new:
            counts[part.rows] = part.counts + (0 if part.has_begin_end_tokens else len(added.ids))
        width = layout.find_width(counts)
        answer = torch.full((len(ids), width), layout.pad_id, dtype=self.dtype, device=self.device)
        kept = min(width, ids.shape[1])
        if layout.padding_side == "left":
            answer[:, width - kept :] = ids[:, ids.shape[1] - kept :]
        else:
            answer[:, :kept] = ids[:, :kept]
        for part in new:
            begins = layout.find_begins(counts[part.rows], width)
            answer[to_device(part.rows, self.device)] = layout.pad_id
            if not part.has_begin_end_tokens:
                self._put_begin_end_tokens(answer, part.rows, begins, part.counts)
                begins = begins + len(added.prefix)
            columns = to_device(ragged_indices(begins, part.counts), self.device)
            answer[to_device(np.repeat(part.rows, part.counts), self.device), columns] = part.ids
        upstream = [part.rows for part in new if part.has_begin_end_tokens]
        return FinishedIds(answer, counts, upstream[0] if upstream else NO_ROWS)

    def _put_begin_end_tokens(
        self,
        answer: Tensor,
        rows: NDArray[np.int64],
        begins: NDArray[np.int64],
        counts: NDArray[np.int64],
    ) -> None:
        """Put the begin and end tokens around rows that begin at some columns."""
        added = self.layout.begin_end_tokens
        d_rows = to_device(rows, self.device)
        for number, token_id in enumerate(added.ids):
            is_behind = number >= len(added.prefix)
            columns = begins + number + (counts if is_behind else 0)
            answer[d_rows, to_device(columns, self.device)] = token_id


def select_rows(batch: Batch, rows: NDArray[np.int64]) -> Batch:
    """Make a batch of some rows, in order; nothing is copied where these are all."""
    if len(rows) == len(batch):
        return batch
    return batch.select(rows.tolist(), DEFAULT_OPTIONS)
