"""Gathers rows of a table by id on a CUDA device.

The kernel replaces a `torch.nn.Embedding` that only selects rows of its weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.modules import module as _modules

from gpu.embedding.pinned_text import current_stream
from gpu.embedding.torch_kernels import TorchKernels, load_torch_kernels

WORD_BYTES = 16
"""Bytes that a kernel copies at once; rows begin at a multiple of it and are multiples of it."""

THREADS = 128
"""Threads of a block: GATHER_BLOCK of embedding/gather_rows.cuh."""

BLOCK_WORDS = 2 * THREADS
"""Words that a block copies: GATHER_WORDS for each thread."""


class GatherFields(NamedTuple):
    """The fields of Gather in embedding/gather_rows.cuh, in order."""

    ids: int
    table: int
    output: int
    num_ids: int
    row_words: int
    id_bytes: int


class RowGather:
    """Launches the kernel of cuda/embedding/gather_rows.cu on one device."""

    def __init__(self, kernels: TorchKernels) -> None:
        self._kernels = kernels

    def __call__(self, ids: Tensor, weight: Tensor) -> Tensor:
        """Gather the rows of weight [V, D] at ids [...] into a new tensor [..., D].

        The kernel runs on the current stream. Ids are int32 or int64 and must be below V. A row of
        weight is a multiple of 16 bytes and begins at one. Both tensors are contiguous and on this
        device.
        """
        rows = torch.empty((*ids.shape, weight.shape[1]), dtype=weight.dtype, device=weight.device)
        if not rows.numel():
            return rows
        fields = GatherFields(
            ids=ids.data_ptr(),
            table=weight.data_ptr(),
            output=rows.data_ptr(),
            num_ids=ids.numel(),
            row_words=weight.shape[1] * weight.element_size() // WORD_BYTES,
            id_bytes=ids.element_size(),
        )
        num_blocks = -(-fields.num_ids * fields.row_words // BLOCK_WORDS)
        stream = current_stream(weight.device)
        self._kernels.launch("gather_rows", num_blocks, THREADS, stream, fields)
        return rows


class ChosenEmbedder(NamedTuple):
    """The function that embeds ids, and its description in words."""

    embed: Callable[[Tensor], Any]
    description: str


def choose_embedder(embed_tokens: Any, device: torch.device) -> ChosenEmbedder:
    """Choose the kernel in place of an embedder where it gives the same rows.

    The kernel replaces a `torch.nn.Embedding` on CUDA. Each call with gradients, hooks, `max_norm`
    or weights in another layout still goes to torch.
    """
    if type(embed_tokens) is not torch.nn.Embedding or device.type != "cuda":
        return ChosenEmbedder(embed_tokens, "the embedder itself")
    kernels = load_torch_kernels(device.index, "embedding/gather_rows.cu", "gather_rows")
    if isinstance(kernels, str):
        return ChosenEmbedder(embed_tokens, f"the embedder itself; {kernels}")
    gather = RowGather(kernels)

    def embed(ids: Tensor) -> Any:
        if not takes_rows_only(embed_tokens, ids.device):
            return embed_tokens(ids)
        return gather(ids.contiguous(), embed_tokens.weight)

    return ChosenEmbedder(embed, "gather_rows, the embedder itself where it does more")


def takes_rows_only(embedding: torch.nn.Embedding, device: torch.device) -> bool:
    """Return whether an embedding only selects rows, in a layout that the kernel can read."""
    weight = embedding.weight
    if embedding.max_norm is not None or _has_hooks(embedding):
        return False
    if type(weight) not in (torch.nn.Parameter, Tensor) or weight.device != device:
        return False  # Quantized weights, and weights spread over devices, have no rows.
    if torch.is_grad_enabled() and weight.requires_grad:
        return False
    row_bytes = weight.shape[1] * weight.element_size()
    is_aligned = row_bytes % WORD_BYTES == weight.data_ptr() % WORD_BYTES == 0
    return bool(is_aligned and weight.is_contiguous())


def _has_hooks(embedding: torch.nn.Embedding) -> bool:
    """Return whether calling the embedding also runs hooks, or a `forward` that replaces its own.

    The library accelerate replaces `forward`, for example.
    """
    own = embedding._forward_hooks or embedding._forward_pre_hooks or "forward" in vars(embedding)
    of_all = _modules._global_forward_hooks or _modules._global_forward_pre_hooks
    return bool(own or of_all)
