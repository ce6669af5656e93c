"""Letters to ids and rows of an embedding by one kernel, which reads pinned text over the bus.

What `torch_lookup` says of ids holds here. Rows are of one length and have an id for each letter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpu.embedding.kernel_lookup import next_mark
from gpu.embedding.letter_rule import LetterRule
from gpu.embedding.micro_batch import MAX_AHEAD, Run, is_too_large
from gpu.embedding.pinned_text import TextMemory, current_stream, is_pinned, record_event
from gpu.embedding.row_gather import WORD_BYTES, takes_rows_only
from gpu.embedding.sequence_ids import RowIds
from gpu.embedding.torch_kernels import RowKernels, row_kernels

__all__ = ["Embedded", "EmbeddedRows", "LetterEmbedder", "letter_embedder"]

Bytes = NDArray[np.uint8]
_cuda: Any = torch.cuda  # Partly without types.
THREADS = 512  # EMBED_BLOCK of embedding/fused_embedding.cuh,
BLOCK_LETTERS = 64  # and EMBED_LETTERS.


@dataclass(frozen=True, slots=True, eq=False)
class Embedded:
    """Rows whose kernels have been launched.

    Attributes:
        ids: [b, width]; void if a letter has no code, as are the activations.
        activations: [b, width, D].
        next_ids: as `ids`, of the rows behind these; None where they were not asked for.
        has_unknown: whether a letter has no code, once `done` has passed.
        done: an event of the stream that fills all this; the text is read until then.
        stream: its address.
    """

    ids: Tensor
    activations: Any
    next_ids: Tensor | None
    has_unknown: Callable[[], bool]
    done: Any
    stream: int

    def received(self) -> Self | None:
        """Wait until the letters are known, for the current stream; None: one has no code."""
        self.done.synchronize()
        if self.has_unknown():
            return None
        device = self.ids.device
        if current_stream(device) != self.stream:
            stream, own = _cuda.current_stream(device), _cuda.ExternalStream(self.stream, device)
            stream.wait_stream(own)
            for tensor in (self.ids, self.activations):
                tensor.record_stream(stream)
        return self


class LetterEmbedder:
    """The kernel of cuda/embedding/fused_embedding.cu for one rule and one `torch.nn.Embedding`.

    Args:
        kernels: its file's.
        rule: ids of letters.
        embedding: on the device.
        dtype: of the ids, int32 or int64.
        texts: memory that text is staged in.
    """

    def __init__(
        self,
        kernels: RowKernels,
        rule: LetterRule,
        embedding: torch.nn.Embedding,
        dtype: torch.dtype,
        texts: TextMemory,
    ) -> None:
        self._kernels, self._embedding, self._dtype = kernels, embedding, dtype
        self._device, self._texts = embedding.weight.device, texts
        self._codes = torch.tensor(rule.codes, dtype=torch.int32, device=self._device)

    @property
    def is_complete(self) -> bool:
        """Whether the embedding does nothing now but take rows."""
        return takes_rows_only(self._embedding, self._device)

    def __call__(self, data: Bytes, num_rows: int, behind: Bytes | None = None) -> Embedded:
        """Embed letters, as many in each row, on the current stream, without waiting for it.

        Args:
            data: uint8[N], the letters.
            num_rows: of these.
            behind: letters of no more rows as long as these, of which ids alone are wanted; then
                both are pinned. None: there are none.
        """
        device, weight, width = self._device, self._embedding.weight, len(data) // num_rows
        ids = torch.empty((num_rows, width), dtype=self._dtype, device=device)
        activations = torch.empty((*ids.shape, weight.shape[1]), dtype=weight.dtype, device=device)
        next_ids, following = None, (0, 0, 0)
        if behind is not None:
            next_ids = torch.empty((len(behind) // width, width), dtype=self._dtype, device=device)
            following = behind.ctypes.data, next_ids.data_ptr(), len(behind)
        stream, mark, id_bytes = current_stream(device), next_mark(), ids.element_size()
        row_bytes = weight.shape[1] * weight.element_size()
        held: list[Bytes] = []
        for place, begin, end in self._texts.pieces(data, held):
            letters = place, ids.data_ptr() + begin * id_bytes, end - begin
            rule = self._codes.data_ptr(), id_bytes, mark.address, mark.number
            rows = weight.data_ptr(), activations.data_ptr() + begin * row_bytes
            fields = (*letters, *following, *rule, *rows, row_bytes // WORD_BYTES)
            blocks = -(-(end - begin) // BLOCK_LETTERS)
            self._kernels.launch("embed_letters", blocks, THREADS, stream, *fields)
        done = record_event(device)
        self._texts.keep(data, done)
        for memory in held:
            self._texts.hold(memory, done)
        return Embedded(ids, activations, next_ids, mark.is_set, done, stream)


class EmbeddedRows:
    """Rows of one length from run.begin on, a micro-batch at a time; some are under way ahead.

    The kernel of the last micro-batch but one looks the last one's letters up as well. So all text
    has been read, and the last one is given out, while it is being embedded.
    """

    def __init__(
        self, embedder: LetterEmbedder, run: Run, embed_tokens: Callable[[Tensor], Any]
    ) -> None:
        """Rows of `run` by a kernel; ids that are there already by `embed_tokens`."""
        self._embedder, self._run, self._embed_tokens = embedder, run, embed_tokens
        self._width, self._is_pinned = run.width, is_pinned(run.batch.data)

    def __iter__(self) -> Iterator[tuple[int, int, Embedded | None]]:
        """The first row, the one behind the last, and their embeddings.

        None: a letter has no code.
        """
        run, ahead = self._run, deque[tuple[int, Embedded]]()
        begin = ahead_end = run.begin
        while begin < len(run.batch):
            while ahead_end < len(run.batch) and len(ahead) < MAX_AHEAD:
                most = run.most_rows(self._width)
                try:
                    for launched in self._launch(ahead_end, most):
                        ahead.append(launched)
                        ahead_end = launched[0]
                except RuntimeError as error:
                    if not is_too_large(error) or most == 1:
                        raise
                    run.halve(most, error)
            end = ahead[0][0]
            yield begin, end, ahead.popleft()[1].received()
            begin = end

    def _launch(self, begin: int, most: int) -> Iterator[tuple[int, Embedded]]:
        """One micro-batch, or the last two: the row behind each, and its embeddings."""
        data, width, last = self._run.batch.data, self._width, len(self._run.batch)
        end = min(last, begin + most)
        is_last_but_one = self._is_pinned and end < last <= end + most
        behind = data[end * width :] if is_last_but_one else None
        embedded = self._embedder(data[begin * width : end * width], end - begin, behind)
        yield end, embedded
        if embedded.next_ids is not None:
            activations = self._embed_tokens(embedded.next_ids)
            yield last, replace(embedded, ids=embedded.next_ids, activations=activations)


def letter_embedder(
    embed_tokens: Any, rule: LetterRule | None, device: torch.device, row_ids: RowIds
) -> LetterEmbedder | None:
    """That of an embedder; None where it is no `torch.nn.Embedding` on CUDA, or there are words."""
    if rule is None or rule.word_ids is not None or row_ids.texts is None:
        return None
    if type(embed_tokens) is not torch.nn.Embedding or embed_tokens.weight.device != device:
        return None
    kernels = row_kernels(device.index, "embedding/fused_embedding.cu", "embed_letters")
    if isinstance(kernels, str):
        return None
    return LetterEmbedder(kernels, rule, embed_tokens, row_ids.dtype, row_ids.texts)
