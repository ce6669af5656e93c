"""Looks up the ids of letters and embeds them by one kernel, which reads pinned text over PCIe.

All rows have one length and an id for each letter. Ids equal those of `torch_lookup`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpu.embedding.letter_rule import LetterRule
from gpu.embedding.lookup.kernel_lookup import next_mark
from gpu.embedding.micro_batch import MAX_AHEAD, MicroBatchPlan, is_too_large
from gpu.embedding.pinned_text import TextMemory, current_stream, is_pinned, record_event
from gpu.embedding.row_gather import WORD_BYTES, takes_rows_only
from gpu.embedding.sequence_ids import SequenceIds
from gpu.embedding.torch_kernels import TorchKernels, load_torch_kernels

Bytes = NDArray[np.uint8]
_cuda: Any = torch.cuda  # torch.cuda is partly without types.
THREADS = 512
"""The threads of a block; equals EMBED_BLOCK of embedding/fused_embedding.cuh."""

BLOCK_LETTERS = 64
"""The letters of a block; equals EMBED_LETTERS of embedding/fused_embedding.cuh."""


class EmbedFields(NamedTuple):
    """The fields of Embed in embedding/fused_embedding.cuh, in order."""

    text: int
    ids: int
    num_letters: int
    next_text: int
    next_ids: int
    num_next: int
    codes: int
    id_bytes: int
    unknown: int
    number: int
    table: int
    output: int
    row_words: int


@dataclass(frozen=True, slots=True, eq=False)
class FusedResult:
    """The results of rows whose kernels have been launched.

    Attributes:
        ids: [b, width]; not valid if a letter has no code; the same holds for the activations.
        activations: [b, width, D].
        next_ids: the ids of the rows after these; None if only these were looked up.
        has_unknown: whether a letter has no code; valid once `done` has passed.
        done: the event after the kernels; they read the text until then.
        stream: the address of their stream.
    """

    ids: Tensor
    activations: Any
    next_ids: Tensor | None
    has_unknown: Callable[[], bool]
    done: Any
    stream: int

    def receive(self) -> Self | None:
        """Wait for the kernels and allow the current stream to use the results.

        Returns None if a letter has no code.
        """
        self.done.synchronize()
        if self.has_unknown():
            return None
        device = self.ids.device
        if current_stream(device) != self.stream:
            stream = _cuda.current_stream(device)
            stream.wait_stream(_cuda.ExternalStream(self.stream, device))
            for tensor in (self.ids, self.activations):
                tensor.record_stream(stream)
        return self


class LetterEmbedder:
    """Launches the kernel of cuda/embedding/fused_embedding.cu for one rule and one embedding."""

    def __init__(
        self,
        kernels: TorchKernels,
        rule: LetterRule,
        embedding: torch.nn.Embedding,
        dtype: torch.dtype,
        texts: TextMemory,
    ) -> None:
        """Copy the codes of letters to the device.

        Args:
            kernels: embed_letters.
            rule: the ids of letters.
            embedding: an embedding on the device of the kernels.
            dtype: int32 or int64, that of the ids.
            texts: the memory that text is staged in.
        """
        self._kernels = kernels
        self._embedding = embedding
        self._dtype = dtype
        self._device = embedding.weight.device
        self._texts = texts
        self._codes = torch.tensor(rule.codes, dtype=torch.int32, device=self._device)

    @property
    def is_usable(self) -> bool:
        """Whether the embedding still only selects rows, as the kernel does."""
        return takes_rows_only(self._embedding, self._device)

    def __call__(self, data: Bytes, num_rows: int, behind: Bytes | None = None) -> FusedResult:
        """Embed rows of one length on the current stream without waiting.

        Args:
            data: uint8[N], the letters.
            num_rows: the number of rows in them.
            behind: the letters of the rows after these, which are looked up but not embedded. They
                are at most as many, and both arrays must be pinned. None: there are none.
        """
        device = self._device
        weight = self._embedding.weight
        width = len(data) // num_rows
        ids = torch.empty((num_rows, width), dtype=self._dtype, device=device)
        activations = torch.empty((*ids.shape, weight.shape[1]), dtype=weight.dtype, device=device)
        next_ids = None
        if behind is not None:
            next_ids = torch.empty((len(behind) // width, width), dtype=self._dtype, device=device)
        stream = current_stream(device)
        mark = next_mark()
        id_bytes = ids.element_size()
        row_bytes = weight.shape[1] * weight.element_size()
        held: list[Bytes] = []
        for piece in self._texts.pieces(data, held):
            fields = EmbedFields(
                text=piece.address,
                ids=ids.data_ptr() + piece.begin * id_bytes,
                num_letters=piece.num_bytes,
                next_text=0 if behind is None else behind.ctypes.data,
                next_ids=0 if next_ids is None else next_ids.data_ptr(),
                num_next=0 if behind is None else len(behind),
                codes=self._codes.data_ptr(),
                id_bytes=id_bytes,
                unknown=mark.address,
                number=mark.number,
                table=weight.data_ptr(),
                output=activations.data_ptr() + piece.begin * row_bytes,
                row_words=row_bytes // WORD_BYTES,
            )
            num_blocks = -(-piece.num_bytes // BLOCK_LETTERS)
            self._kernels.launch("embed_letters", num_blocks, THREADS, stream, fields)
        done = record_event(device)
        self._texts.keep(data, done)
        for memory in held:
            self._texts.hold(memory, done)
        return FusedResult(ids, activations, next_ids, mark.is_set, done, stream)


class FusedMicroBatch(NamedTuple):
    """The rows from `begin` to `end` and their result, which is None if a letter has no code."""

    begin: int
    end: int
    result: FusedResult | None


class _Launched(NamedTuple):
    """The number of the row after a micro-batch, and the results of the micro-batch."""

    end: int
    result: FusedResult


class FusedMicroBatches:
    """Embeds the rows of a plan from `plan.begin` on; some micro-batches are computed in advance.

    The kernel of the last micro-batch but one also looks up the letters of the last one. So all
    text has been read when the last micro-batch is yielded, while its embedding is still running.
    """

    def __init__(
        self, embedder: LetterEmbedder, plan: MicroBatchPlan, embed_tokens: Callable[[Tensor], Any]
    ) -> None:
        """Use `embedder` to embed letters, and `embed_tokens` to embed ids that are looked up."""
        self._embedder = embedder
        self._plan = plan
        self._embed_tokens = embed_tokens
        self._is_pinned = is_pinned(plan.batch.data)

    def __iter__(self) -> Iterator[FusedMicroBatch]:
        """Yield the micro-batches in order, each once its letters have been read."""
        plan = self._plan
        ahead: deque[_Launched] = deque()
        begin = ahead_end = plan.begin
        while begin < len(plan.batch):
            while ahead_end < len(plan.batch) and len(ahead) < MAX_AHEAD:
                num_rows = plan.count_rows(plan.width)
                try:
                    for launched in self._launch(ahead_end, num_rows):
                        ahead.append(launched)
                        ahead_end = launched.end
                except RuntimeError as error:
                    if not is_too_large(error) or num_rows == 1:
                        raise
                    plan.halve(num_rows, error)
            first = ahead.popleft()
            yield FusedMicroBatch(begin, first.end, first.result.receive())
            begin = first.end

    def _launch(self, begin: int, num_rows: int) -> Iterator[_Launched]:
        """Launch one micro-batch of `num_rows` at most, or the last two, and yield each."""
        data = self._plan.batch.data
        width = self._plan.width
        last = len(self._plan.batch)
        end = min(last, begin + num_rows)
        is_last_but_one = self._is_pinned and end < last <= end + num_rows
        behind = data[end * width :] if is_last_but_one else None
        result = self._embedder(data[begin * width : end * width], end - begin, behind)
        yield _Launched(end, result)
        if result.next_ids is not None:
            activations = self._embed_tokens(result.next_ids)
            yield _Launched(last, replace(result, ids=result.next_ids, activations=activations))


def make_letter_embedder(
    embed_tokens: Any, rule: LetterRule | None, device: torch.device, sequence_ids: SequenceIds
) -> LetterEmbedder | None:
    """Make the fused kernel for an embedder.

    Returns None if the embedder is not a `torch.nn.Embedding` on this device, the rule has words,
    or the kernel cannot be loaded.
    """
    if rule is None or rule.word_ids is not None or sequence_ids.texts is None:
        return None
    if type(embed_tokens) is not torch.nn.Embedding or embed_tokens.weight.device != device:
        return None
    kernels = load_torch_kernels(device.index, "embedding/fused_embedding.cu", "embed_letters")
    if isinstance(kernels, str):
        return None
    return LetterEmbedder(kernels, rule, embed_tokens, sequence_ids.dtype, sequence_ids.texts)
