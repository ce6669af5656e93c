"""Rows of a table by id on a CUDA device, at the speed at which its memory is written.

Stands in for `torch.nn.Embedding` where that does nothing but take rows of its weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules import module as _modules

from gpu.embedding.pinned_text import current_stream
from gpu.embedding.torch_kernels import RowKernels, row_kernels

__all__ = ["WORD_BYTES", "RowGather", "gathered", "takes_rows_only"]

WORD_BYTES = 16  # A row must be a multiple of this, and begin at one.
THREADS = 128  # GATHER_BLOCK of embedding/gather_rows.cuh.
BLOCK_WORDS = 2 * THREADS  # GATHER_WORDS of each.


class RowGather:
    """The kernel of cuda/embedding/gather_rows.cu on one device."""

    def __init__(self, kernels: RowKernels) -> None:
        self._kernels = kernels

    def __call__(self, ids: Tensor, weight: Tensor) -> Tensor:
        """The rows of weight [V, D] at ids [...], as a new tensor [..., D] on the current stream.

        Ids are int32 or int64 and must be below V; a row of weight is a multiple of 16 bytes and
        begins at one; both are contiguous and on this device.
        """
        rows = torch.empty((*ids.shape, weight.shape[1]), dtype=weight.dtype, device=weight.device)
        if not rows.numel():
            return rows
        row_words = weight.shape[1] * weight.element_size() // WORD_BYTES
        addresses = ids.data_ptr(), weight.data_ptr(), rows.data_ptr()
        sizes = ids.numel(), row_words, ids.element_size()
        num_blocks = -(-ids.numel() * row_words // BLOCK_WORDS)
        stream = current_stream(weight.device)
        self._kernels.launch("gather_rows", num_blocks, THREADS, stream, *addresses, *sizes)
        return rows


def gathered(embed_tokens: Any, device: torch.device) -> tuple[Callable[[Tensor], Any], str]:
    """An embedder that gives the same rows faster where that is possible, and what it is.

    The kernel takes over for a `torch.nn.Embedding` on CUDA, call by call: where gradients, hooks,
    `max_norm` or the weights' layout ask for torch, torch is called.
    """
    if type(embed_tokens) is not torch.nn.Embedding or device.type != "cuda":
        return embed_tokens, "the embedder itself"
    kernels = row_kernels(device.index, "embedding/gather_rows.cu", "gather_rows")
    if isinstance(kernels, str):
        return embed_tokens, f"the embedder itself; {kernels}"
    gather = RowGather(kernels)

    def embed(ids: Tensor) -> Any:
        if not takes_rows_only(embed_tokens, ids.device):
            return embed_tokens(ids)
        return gather(ids.contiguous(), embed_tokens.weight)

    return embed, "gather_rows, the embedder itself where it does more"


def takes_rows_only(embedding: torch.nn.Embedding, device: torch.device) -> bool:
    """Whether an embedding of ids on a device is a kernel's work: rows of weights, no more."""
    weight = embedding.weight
    if embedding.max_norm is not None or _is_watched(embedding):
        return False
    if type(weight) not in (torch.nn.Parameter, Tensor) or weight.device != device:
        return False  # A quantized one, or one that is spread over devices, has no rows.
    if torch.is_grad_enabled() and weight.requires_grad:
        return False
    row_bytes = weight.shape[1] * weight.element_size()
    is_aligned = row_bytes % WORD_BYTES == weight.data_ptr() % WORD_BYTES == 0
    return bool(is_aligned and weight.is_contiguous())


def _is_watched(embedding: torch.nn.Embedding) -> bool:
    """Whether hooks run beside it, or somebody's `forward` instead of it, as accelerate's does."""
    own = embedding._forward_hooks or embedding._forward_pre_hooks or "forward" in vars(embedding)
    of_all = _modules._global_forward_hooks or _modules._global_forward_pre_hooks
    return bool(own or of_all)
