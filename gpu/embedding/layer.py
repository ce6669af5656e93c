"""Computes embeddings of sequences without a tokenizer: DNATok's layer, for torch.

On a CUDA device, bytes are copied and looked up on a second stream while the rows before them are
embedded. Memory that a stream may still read is not written again: the ids of each micro-batch are
a new tensor, and torch's allocators know which streams use it. `tokenizer_discovery` finds the
tables in which ids are looked up.

Source: Niktab and Patel, DNATok, Algorithm 2.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from gpu.embedding.fused_embedding import FusedMicroBatches, make_letter_embedder
from gpu.embedding.inputs import read_blocks
from gpu.embedding.micro_batch import (
    MAX_AHEAD,
    MicroBatchPlan,
    Part,
    is_too_large,
    make_attention_mask,
)
from gpu.embedding.row_changes import RowChanges
from gpu.embedding.row_gather import choose_embedder
from gpu.embedding.row_layout import NO_BEGIN_END_TOKENS, SIDES, PaddingSide, RowLayout
from gpu.embedding.sequence_ids import FinishedIds, IdSource, PendingIds, SequenceIds
from gpu.embedding.tokenizer_discovery import Discovery
from gpu.embedding.upstream_tokenizer import SequenceRefused
from vocabularies.batch.batch import Batch
from vocabularies.sequences.augmentation import Augmentation

MAX_IDS = 1 << 20
"""The largest number of ids of a micro-batch; some kernels index with 32 bits."""

GROUP = 4
"""Micro-batches of equal rows that are looked up together, which saves work of the host."""

STAGED_AHEAD = 2
"""Groups that are looked up ahead; with one, the host would wait for its look-up."""

Path = Literal["auto", "ids", "bytes"]
_FALLBACKS: dict[IdSource, tuple[IdSource, ...]] = {
    "bytes": ("bytes", "ids", "upstream"),
    "ids": ("ids", "upstream"),
}
_log = logging.getLogger(__name__)
_cuda: Any = torch.cuda  # torch.cuda is partly without types.


class _Route(NamedTuple):
    """One way to embed rows.

    Attributes:
        source: where ids come from.
        mode: "pipelined": look-ups run on a side stream at the same time as the embedding; "at
            once": one kernel looks up and embeds; "": each look-up is followed by its embedding.
    """

    source: IdSource
    mode: Literal["", "pipelined", "at once"] = ""

    @property
    def path(self) -> str:
        """The text of `Part.path`."""
        return f"{self.source}, {self.mode}" if self.mode else self.source


_FUSED = _Route("bytes", "at once")


class EmbeddingLayer:
    """Embeds sequences by an embedder; several iterators of one layer may be in use at once."""

    def __init__(
        self,
        embed_tokens: Callable[[Tensor], Any],
        discovery: Discovery,
        *,
        device: torch.device | str | None = None,
        max_rows: int | None = None,
        max_ids: int = MAX_IDS,
        ids_dtype: torch.dtype = torch.int64,
        staging_dtype: torch.dtype = torch.int32,
        pipelined: bool = True,
        add_special_tokens: bool = False,
        padding_side: PaddingSide | None = "left",
    ) -> None:
        """Copy the tables to the device.

        Args:
            embed_tokens: called with ids [b, T'] on the device. A faster kernel replaces a
                `torch.nn.Embedding` on CUDA whose weights need no gradient, see `row_gather`.
            discovery: the result of `tokenizer_discovery.discover` for the tokenizer.
            device: where the embedder is; None: the GPU if there is one, else the CPU.
            max_rows: the largest number of rows of a micro-batch (B_emb); None: as many as
                `max_ids` allows.
            max_ids: the largest number of ids of a micro-batch (M), including padding; a single row
                may have more.
            ids_dtype: the dtype of the ids that the embedder gets, int64 or int32.
            staging_dtype: the dtype of the ids that path "ids" copies to the device, int64 or
                int32.
            pipelined: whether to copy and look up on a second stream of a GPU.
            add_special_tokens: whether rows have the tokenizer's begin and end tokens.
            padding_side: the side on which rows are padded; None: the tokenizer's.

        Raises:
            TypeError: the embedder cannot be called, or `discovery` is not a Discovery.
            ValueError: an argument is out of range, or an id is beyond the embedder's rows.
        """
        if not callable(embed_tokens):
            raise TypeError(f"the embedder, a {type(embed_tokens).__name__}, cannot be called")
        if not hasattr(discovery, "use_ids_path"):
            kind = type(discovery).__name__
            raise TypeError(f"the discovery is a {kind}; it must be what `discover` returns")
        if max_ids < 1 or (max_rows is not None and max_rows < 1):
            raise ValueError(
                f"max_ids is {max_ids} and max_rows {max_rows}; both must be at least 1"
            )
        if padding_side not in (*SIDES, None):
            raise ValueError(f"padding_side is {padding_side!r}; it must be left, right or None")
        self.device = device_of(device)
        self.discovery = discovery
        self.max_rows = max_rows or max_ids
        self.max_ids = max_ids
        chosen = choose_embedder(embed_tokens, self.device)
        self.embed_tokens = chosen.embed
        self.embedded_by = chosen.description
        added = discovery.begin_end_tokens if add_special_tokens else NO_BEGIN_END_TOKENS
        self._has_rule = discovery.rule is not None and added is not None
        self.padding_side = padding_side or discovery.padding_side
        self._sequence_ids = SequenceIds(
            discovery,
            RowLayout(
                discovery.pad_id,
                added or NO_BEGIN_END_TOKENS,
                self.padding_side,
                discovery.token_len or 0,
            ),
            self.device,
            ids_dtype,
            staging_dtype,
            num_ids=getattr(embed_tokens, "num_embeddings", None),
            add_special_tokens=add_special_tokens,
        )
        self._fused = make_letter_embedder(
            embed_tokens, discovery.rule, self.device, self._sequence_ids
        )
        self._side_stream = _make_side_stream(self.device) if pipelined else None
        if self.device.type == "cuda":
            _cuda.synchronize(self.device)  # The side stream reads the tables.

    def embed_from_strings(
        self,
        sequences: Any,
        path: Path = "auto",
        *,
        augmentation: Augmentation | None = None,
        reverse_complement: bool | ArrayLike = False,
    ) -> Iterator[Part]:
        """Embed every row, in order, one micro-batch after the other.

        Args:
            sequences: see `inputs.as_batch`. Pinned memory is not copied on the host, so it must
                not change until the parts made of it have been given out.
            path: "bytes" looks ids up on the device, "ids" on the host; "auto" is "bytes" on a GPU,
                else "ids".
            augmentation: crops rows and substitutes letters at random before they are encoded.
            reverse_complement: whether the reverse complements of the augmented rows are encoded;
                or bool[B], for each row.

        Returns:
            The parts, in the order of the rows; each row is in one part. Rows are padded to the
            longest row of the micro-batches that are looked up together, and at least to
            `token_len`. Each part is computed on the stream that is current when the part is
            requested. A generator of rows is read block by block (`inputs.read_blocks`), when parts
            are requested.

        Raises:
            TypeError: `inputs.as_batch` does not support the form of the sequences.
            ValueError: the path is unknown, `inputs.as_batch` refuses the sequences, or the number
                of values of `reverse_complement` is not the number of rows.
            SequenceRefused: the upstream tokenizer refuses a row; raised after the parts before it.
            RuntimeError: the embedder raises it, and no other path and no smaller micro-batch
                works.
        """
        routes = self._list_routes(path)
        changes = RowChanges(augmentation, reverse_complement)
        if not isinstance(sequences, Iterator):
            return self._embed_batch(self._make_batch(sequences, changes), routes)
        return self._embed_blocks(sequences, changes, routes)

    def ids_from_strings(
        self,
        sequences: Any,
        path: Path = "auto",
        *,
        augmentation: Augmentation | None = None,
        reverse_complement: bool | ArrayLike = False,
    ) -> Tensor:
        """Compute the ids of all rows at once, [B, T'] on the device, padded.

        Other libraries can take the tensor through DLPack without a copy. Arguments and errors are
        those of `embed_from_strings`.
        """
        changes = RowChanges(augmentation, reverse_complement)
        return self._compute_ids(sequences, path, changes).ids

    def inputs_from_strings(
        self,
        sequences: Any,
        path: Path = "auto",
        *,
        augmentation: Augmentation | None = None,
        reverse_complement: bool | ArrayLike = False,
    ) -> dict[str, Tensor]:
        """Compute `input_ids` and `attention_mask` of all rows, the arguments of a model.

        Both are [B, T'] on the device. Arguments and errors are those of `embed_from_strings`.
        """
        changes = RowChanges(augmentation, reverse_complement)
        finished = self._compute_ids(sequences, path, changes)
        mask = make_attention_mask(finished.ids, finished.counts, self.padding_side)
        return {"input_ids": finished.ids, "attention_mask": mask}

    def _compute_ids(self, sequences: Any, path: Path, changes: RowChanges) -> FinishedIds:
        """Compute the ids of all rows at once."""
        source = self._list_routes(path)[0].source
        batch = self._make_batch(sequences, changes)
        return self._receive(self._sequence_ids.look_up(batch, source), 0)

    def _make_batch(self, sequences: Any, changes: RowChanges) -> Batch:
        """Join sequences and change their letters."""
        return changes.apply(self._sequence_ids.make_batch(sequences))

    def _embed_batch(self, batch: Batch, routes: list[_Route]) -> Iterator[Part]:
        """Embed the rows of a batch by the first route that does not fail."""
        plan = MicroBatchPlan(
            batch,
            self._sequence_ids.count_ids(batch),
            least_width=self.discovery.token_len or 0,
            max_ids=self.max_ids,
            max_rows=self.max_rows,
        )
        return self._embed_parts(plan, routes)

    def _embed_blocks(
        self, rows: Iterator[Any], changes: RowChanges, routes: list[_Route]
    ) -> Iterator[Part]:
        """Embed the rows of an iterator block by block; parts number rows from the first one."""
        begin = 0
        for block in read_blocks(rows):
            here = changes.part(begin, begin + len(block))
            try:
                batch = self._make_batch(block, here)
                for part in self._embed_batch(batch, list(routes)):
                    yield replace(part, begin=part.begin + begin, end=part.end + begin)
            except SequenceRefused as refused:
                raise SequenceRefused(begin + refused.row, refused.problem) from refused
            begin += len(block)
        changes.check(begin)

    def _list_routes(self, path: Path) -> list[_Route]:
        """List the routes of a path: the first one, and those that follow where it fails."""
        if path not in ("auto", "ids", "bytes"):
            raise ValueError(f"path is {path!r}; it must be auto, ids or bytes")
        if not self._has_rule:
            return [_Route("upstream")]
        if path == "auto":
            path = "bytes" if self.device.type == "cuda" else "ids"
        routes = [_Route(source) for source in _FALLBACKS[path]]
        if self._side_stream is not None:
            routes.insert(0, _Route(path, "pipelined"))
        return routes if self.discovery.upstream is not None else routes[:-1]

    def _embed_parts(self, plan: MicroBatchPlan, routes: list[_Route]) -> Iterator[Part]:
        """Embed the rows of a plan by the first route that does not fail.

        A micro-batch that is too large is halved; any other RuntimeError leads to the next route.
        """
        if routes[0].source == "bytes" and self._may_fuse(plan):
            routes = [_FUSED, *routes]
        while True:
            route = routes[0]
            embed = self._embed_fused if route == _FUSED else self._embed_looked_up
            try:
                for part in embed(plan, route):
                    plan.begin = part.end  # Set before the part is given out, so it comes once.
                    yield part
                return
            except RuntimeError as error:
                if is_too_large(error) and (num_rows := plan.count_next_rows()) > 1:
                    plan.halve(num_rows, error)
                    continue
                if len(routes) == 1:
                    raise
                routes = routes[1:]
                plan.reason = f"{route.path} stopped at row {plan.begin}: {error}"
                _log.warning("%s; going on with %s", plan.reason, routes[0].path)

    def _may_fuse(self, plan: MicroBatchPlan) -> bool:
        """Return whether one kernel can look up and embed rows, and the current stream is idle.

        On a busy stream the fused kernel, for which the caller waits, would wait for other work.
        """
        if self._fused is None or not self._fused.is_usable or not plan.width:
            return False
        return bool(_cuda.current_stream(self.device).query())

    def _embed_fused(self, plan: MicroBatchPlan, route: _Route) -> Iterator[Part]:
        """Embed rows by the fused kernel; where a letter has no code, look the rows up instead."""
        assert self._fused is not None
        for begin, end, result in FusedMicroBatches(self._fused, plan, self.embed_tokens):
            if result is not None:
                yield Part(
                    begin,
                    end,
                    result.ids,
                    plan.counts[begin:end],
                    self.padding_side,
                    result.activations,
                    route.path,
                    num_upstream=0,
                    reason=plan.reason,
                )
                continue
            pending = self._sequence_ids.look_up(plan.batch.part(begin, end), "bytes")
            yield from self._embed_ids(plan, self._receive(pending, begin), begin, "bytes")

    def _embed_looked_up(self, plan: MicroBatchPlan, route: _Route) -> Iterator[Part]:
        """Embed the rows from plan.begin on; look-ups on the side stream run ahead.

        An error of a look-up is raised after the parts before it.
        """
        is_pipelined = route.mode == "pipelined"
        staged: deque[PendingIds | RuntimeError] = deque()
        in_flight: deque[Any] = deque()
        begin = staged_end = plan.begin
        while begin < len(plan.batch):
            if not staged:
                staged_end = self._stage(plan, staged_end, route, staged)
            try:
                finished = self._receive(staged.popleft(), begin)
            except SequenceRefused as refused:
                staged_end = plan.find_end_before(begin, refused.row)
                if staged_end == begin:
                    raise
                # The parts before the refused row come first.
                before = plan.batch.part(begin, staged_end)
                staged = deque([self._sequence_ids.look_up(before, route.source)])
                continue
            for part in self._embed_ids(plan, finished, begin, route.path):
                begin = part.end
                if is_pipelined:
                    self._limit_in_flight(in_flight)
                    while staged_end < len(plan.batch) and len(staged) < STAGED_AHEAD:
                        staged_end = self._stage(plan, staged_end, route, staged)
                yield part

    def _embed_ids(
        self, plan: MicroBatchPlan, finished: FinishedIds, first: int, path: str
    ) -> Iterator[Part]:
        """Embed the ids of the rows from `first` on; a micro-batch that is too large is halved."""
        ids = finished.ids
        upstream_rows = finished.upstream_rows + first
        begin = first
        while begin - first < len(ids):
            num_rows = plan.count_rows(ids.shape[1])
            micro_batch = ids[begin - first : begin - first + num_rows]
            try:
                activations = self.embed_tokens(micro_batch)
            except RuntimeError as error:
                if not is_too_large(error) or len(micro_batch) == 1:
                    raise
                plan.halve(len(micro_batch), error)
                continue
            end = begin + len(micro_batch)
            is_inside = (begin <= upstream_rows) & (upstream_rows < end)
            yield Part(
                begin,
                end,
                micro_batch,
                finished.counts[begin - first : end - first],
                self.padding_side,
                activations,
                path,
                num_upstream=int(np.count_nonzero(is_inside)),
                reason=plan.reason,
            )
            begin = end

    def _stage(
        self,
        plan: MicroBatchPlan,
        begin: int,
        route: _Route,
        staged: deque[PendingIds | RuntimeError],
    ) -> int:
        """Start the look-up of the next group, append it to `staged`, and return its end."""
        side = self._side_stream if route.mode == "pipelined" else None
        if begin == plan.begin and side is not None and _cuda.current_stream(self.device).query():
            side = None  # An idle stream has nothing that the first look-up could run beside.
        end = plan.find_end(begin, GROUP)
        try:
            pending = self._sequence_ids.look_up(plan.batch.part(begin, end), route.source, side)
            staged.append(pending)
        except RuntimeError as error:
            staged.append(error)
        return end

    def _receive(self, staged: PendingIds | RuntimeError, begin: int) -> FinishedIds:
        """Finish the look-up of rows from `begin` on, so that the current stream can use the ids.

        Raises:
            RuntimeError: the look-up failed when it was started.
            SequenceRefused: the upstream tokenizer refuses a row, which is counted from row 0.
        """
        if isinstance(staged, RuntimeError):
            raise staged
        try:
            finished = self._sequence_ids.finish(staged)
        except SequenceRefused as refused:
            raise SequenceRefused(begin + refused.row, refused.problem) from refused
        if staged.is_on_side_stream:
            stream = _cuda.current_stream(self.device)
            stream.wait_event(staged.done)
            cast("Any", finished.ids).record_stream(stream)
        return finished

    def _limit_in_flight(self, in_flight: deque[Any]) -> None:
        """Note the last embedding, and wait for the one that was MAX_AHEAD before it."""
        in_flight.append(_cuda.current_stream(self.device).record_event())
        if len(in_flight) > MAX_AHEAD:
            in_flight.popleft().synchronize()


def device_of(device: torch.device | str | None) -> torch.device:
    """Return a device with its number; None: the GPU if there is one, else the CPU."""
    default = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.empty(0, device=device or default).device


def _make_side_stream(device: torch.device) -> Any:
    """Make a stream for look-ups; None on a CPU.

    It has a higher priority, so that its small kernels do not wait for all blocks of the embedder.
    """
    return _cuda.Stream(device, priority=-1) if device.type == "cuda" else None
