"""Sequences to embeddings without a tokenizer's help: DNATok's layer, for torch.

On a CUDA device bytes are copied and looked up on a stream of their own while the rows before them
are embedded. Nothing that a stream may still read is written again: the ids of each micro-batch are
a new tensor, and torch's allocators are told which streams use it. Knows no tokenizer:
`tokenizer_discovery` says what one does.

Source: Niktab and Patel, DNATok, Algorithm 2.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpu.embedding.fused_embedding import EmbeddedRows, letter_embedder
from gpu.embedding.micro_batch import MAX_AHEAD, Part, Run, is_too_large
from gpu.embedding.row_gather import gathered
from gpu.embedding.sequence_ids import LookedUp, RowIds, Way
from gpu.embedding.tokenizer_discovery import Discovery
from gpu.embedding.upstream_tokenizer import SequenceRefused

__all__ = ["MAX_IDS", "EmbeddingLayer", "Part"]

MAX_IDS = 1 << 20
"""Ids of a micro-batch: some kernels index with 32 bits."""

GROUP = 4  # Micro-batches of equal rows looked up at once: the host's work for each is less.
STAGED_AHEAD = 2  # Groups looked up ahead: with one, the host would wait for its look-up.
NO_LOCK = "bytes, at once"
Path = Literal["auto", "ids", "bytes"]
FALLBACKS = {"bytes": ("bytes", "ids", "upstream"), "ids": ("ids", "upstream")}
_log = logging.getLogger(__name__)
_cuda: Any = torch.cuda  # Partly without types.


class EmbeddingLayer:
    """Feeds an embedder with sequences; several iterators of one layer may be in use at once."""

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
    ) -> None:
        """Put the tables on the device.

        Args:
            embed_tokens: called with ids [b, T'] on the device. A faster kernel stands in for a
                `torch.nn.Embedding` on CUDA whose weights need no gradient, see `row_gather`.
            discovery: what is known of the tokenizer, see `tokenizer_discovery.discover`.
            device: where the embedder is; None: the GPU if there is one, else the CPU.
            max_rows: rows of a micro-batch at most (B_emb); None: as many as `max_ids` allows.
            max_ids: ids of a micro-batch at most (M), padding included; a single row may have more.
            ids_dtype: int64 or int32, what the embedder gets.
            staging_dtype: int64 or int32, what the path "ids" copies to the device.
            pipelined: copy and look up on a second stream where the device is a GPU.

        Raises:
            TypeError: the embedder cannot be called, or the discovery is none.
            ValueError: an argument is out of range, or the embedder has fewer rows than ids.
        """
        if not callable(embed_tokens):
            raise TypeError(f"the embedder, a {type(embed_tokens).__name__}, cannot be called")
        if not hasattr(discovery, "use_ids_path"):
            named = type(discovery).__name__
            raise TypeError(f"the discovery is a {named}, and not what `discover` returns")
        if max_ids < 1 or (max_rows is not None and max_rows < 1):
            raise ValueError(f"max_ids is {max_ids}, max_rows {max_rows}; the least is 1")
        self.device, self.discovery = device_of(device), discovery
        self.max_rows, self.max_ids = max_rows or max_ids, max_ids
        self.embed_tokens, self.embedded_by = gathered(embed_tokens, self.device)
        num_ids = getattr(embed_tokens, "num_embeddings", None)
        self._ids = RowIds(discovery, self.device, ids_dtype, staging_dtype, num_ids)
        self._at_once = letter_embedder(embed_tokens, discovery.rule, self.device, self._ids)
        self._side = _side_stream(self.device) if pipelined else None
        if self.device.type == "cuda":
            _cuda.synchronize(self.device)  # The side stream does not wait for the tables.

    def embed_from_strings(self, sequences: Any, path: Path = "auto") -> Iterator[Part]:
        """Embed every row, in order, one micro-batch after the other.

        Args:
            sequences: as for `inputs.as_batch`. Pinned memory is copied from where it lies, and
                must stay as it is until the parts made of it are there.
            path: "bytes" looks ids up on the device, "ids" on the host; "auto" takes "bytes" on a
                GPU, else "ids".

        Returns:
            Parts whose rows follow each other, none twice and none left out. Rows are padded to
            the longest one of the micro-batches that are looked up together, and at least to
            `token_len`. Everything is computed on the stream that is current when a part is taken.

        Raises:
            TypeError, ValueError: these are no sequences, or the path is none of these.
            SequenceRefused: the upstream tokenizer refuses a row that only it knows; when its part
                would be the next.
            RuntimeError: of the embedder, when no path and no size is left to try.
        """
        batch, least_width = self._ids.batch(sequences), self.discovery.token_len or 0
        run = Run(batch, self._ids.counts(batch), least_width, self.max_ids, self.max_rows)
        return self._parts(run, self._paths(path))

    def ids_from_strings(self, sequences: Any, path: Path = "auto") -> Tensor:
        """The ids of every row at once: [B, T'] on the device, padded on the left.

        The tensor goes to other libraries through DLPack without a copy. Arguments and errors as
        for `embed_from_strings`.
        """
        batch = self._ids.batch(sequences)
        way, _, _ = self._paths(path)[0].partition(",")
        return self._receive(self._ids.look_up(batch, cast("Way", way)), 0)[0]

    def _paths(self, path: Path) -> list[str]:
        """What is tried, one after the other."""
        if path not in ("auto", "ids", "bytes"):
            raise ValueError(f"path is {path!r}, neither auto nor ids nor bytes")
        if self.discovery.rule is None:
            return ["upstream"]
        if path == "auto":
            path = "bytes" if self.device.type == "cuda" else "ids"
        paths = [*([] if self._side is None else [f"{path}, pipelined"]), *FALLBACKS[path]]
        return paths if self.discovery.upstream is not None else paths[:-1]

    def _parts(self, run: Run, paths: list[str]) -> Iterator[Part]:
        if paths[0].startswith("bytes") and self._is_at_once(run):
            paths = [NO_LOCK, *paths]
        while True:
            path = paths[0]
            stream = self._embedded if path == NO_LOCK else self._stream
            try:
                for part in stream(run, path):
                    run.begin = part.end  # Before it is given out: it never comes again.
                    yield part
                return
            except RuntimeError as error:
                if is_too_large(error) and (most := run.rows_at_once()) > 1:
                    run.halve(most, error)
                    continue
                if len(paths) == 1:
                    raise
                paths = paths[1:]
                run.reason = f"{path} stopped at row {run.begin}: {error}"
                _log.warning("%s; going on with %s", run.reason, paths[0])

    def _is_at_once(self, run: Run) -> bool:
        """Whether one kernel looks letters up and embeds them, and nothing else runs.

        Where something does, a call that waits for its embeddings would wait for that as well.
        """
        if self._at_once is None or not self._at_once.is_complete or not run.width:
            return False
        return bool(_cuda.current_stream(self.device).query())

    def _embedded(self, run: Run, path: str) -> Iterator[Part]:
        """The parts of rows that one kernel embeds; others among them are looked up first."""
        assert self._at_once is not None
        for begin, end, embedded in EmbeddedRows(self._at_once, run, self.embed_tokens):
            if embedded is not None:
                yield Part(begin, end, embedded.ids, embedded.activations, path, 0, run.reason)
                continue
            looked_up = self._ids.look_up(run.batch.part(begin, end), "bytes")
            yield from self._embed(run, *self._receive(looked_up, begin), begin, "bytes")

    def _stream(self, run: Run, path: str) -> Iterator[Part]:
        """The parts from run.begin on; look-ups on the side stream run ahead of the embedding.

        An error of a look-up comes when the parts before it have been given out.
        """
        way, _, is_beside = path.partition(",")
        staged: deque[LookedUp | RuntimeError] = deque()
        in_flight: deque[Any] = deque()
        begin = staged_end = run.begin
        while begin < len(run.batch):
            if not staged:
                staged_end = self._stage(run, staged_end, way, is_beside, staged)
            try:
                ids, rows = self._receive(staged.popleft(), begin)
            except SequenceRefused as refused:
                staged_end = run.end_before(begin, refused.row)
                if staged_end == begin:
                    raise
                before = run.batch.part(begin, staged_end)  # Whose parts come first.
                staged = deque([self._ids.look_up(before, cast("Way", way))])
                continue
            for part in self._embed(run, ids, rows, begin, path):
                begin = part.end
                if is_beside:
                    self._keep_near(in_flight)
                    while staged_end < len(run.batch) and len(staged) < STAGED_AHEAD:
                        staged_end = self._stage(run, staged_end, way, is_beside, staged)
                yield part

    def _embed(
        self, run: Run, ids: Tensor, upstream: NDArray[np.int64], begin: int, path: str
    ) -> Iterator[Part]:
        """The parts of rows from `begin` on; `upstream` of these have been to the tokenizer."""
        first, upstream = begin, upstream + begin
        while begin - first < len(ids):
            some = ids[begin - first : begin - first + run.most_rows(ids.shape[1])]
            try:
                activations = self.embed_tokens(some)
            except RuntimeError as error:
                if not is_too_large(error) or len(some) == 1:
                    raise
                run.halve(len(some), error)
                continue
            end = begin + len(some)
            num_upstream = int(np.count_nonzero((begin <= upstream) & (upstream < end)))
            yield Part(begin, end, some, activations, path, num_upstream, run.reason)
            begin = end

    def _stage(
        self,
        run: Run,
        begin: int,
        way: str,
        is_beside: str,
        staged: deque[LookedUp | RuntimeError],
    ) -> int:
        """Start the look-up of the next group; the row behind it."""
        side = self._side if is_beside else None
        if begin == run.begin and side is not None and _cuda.current_stream(self.device).query():
            side = None  # Nothing runs that the look-up could be beside.
        end = run.next_rows(begin, GROUP)
        try:
            looked_up = self._ids.look_up(run.batch.part(begin, end), cast("Way", way), side)
            staged.append(looked_up)
        except RuntimeError as error:
            staged.append(error)
        return end

    def _receive(
        self, staged: LookedUp | RuntimeError, begin: int
    ) -> tuple[Tensor, NDArray[np.int64]]:
        """Ids that the current stream may use, and whose memory is kept until it has done so."""
        if isinstance(staged, RuntimeError):
            raise staged
        try:
            ids, rows = self._ids.finish(staged)
        except SequenceRefused as refused:
            raise SequenceRefused(begin + refused.row, refused.problem) from refused
        if staged.is_beside:
            stream = _cuda.current_stream(self.device)
            stream.wait_event(staged.done)
            cast("Any", ids).record_stream(stream)
        return ids, rows

    def _keep_near(self, in_flight: deque[Any]) -> None:
        """Wait for an earlier embedding, so that the host is never far ahead of the device."""
        in_flight.append(_cuda.current_stream(self.device).record_event())
        if len(in_flight) > MAX_AHEAD:
            in_flight.popleft().synchronize()


def device_of(device: torch.device | str | None) -> torch.device:
    """A device with its number; None: the GPU if there is one, else the CPU."""
    default = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.empty(0, device=device or default).device


def _side_stream(device: torch.device) -> Any:
    """A stream for look-ups; None on a CPU.

    Of higher priority, or its small kernels would wait for all blocks of the embedder's.
    """
    return _cuda.Stream(device, priority=-1) if device.type == "cuda" else None
