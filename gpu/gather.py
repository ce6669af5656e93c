"""Rows of a table by id on a CUDA device, at the speed at which its memory is written.

Stands in for `torch.nn.Embedding` where that does nothing but take rows of its weights.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpu.kernels import source_of

__all__ = ["RowGather", "gathered"]

WORD_BYTES = 16  # A row must be a multiple of this, and begin at one.
THREADS = 128  # GATHER_BLOCK of gather_rows.cuh.
BLOCK_WORDS = 2 * THREADS  # GATHER_WORDS of each.


class RowGather:
    """The kernel of cuda/gather_rows.cu on one device."""

    def __init__(self, number: int) -> None:
        """Compile it; CuPy keeps the machine code on disk.

        Raises:
            ImportError: CuPy is not installed.
        """
        import cupy

        self._cupy: Any = cupy
        self._number = number
        with cupy.cuda.Device(number):
            source = source_of("gather_rows.cu")
            module = cupy.RawModule(code=source, options=("-std=c++17",), backend="nvrtc")
            self._function = module.get_function("gather_rows").kernel

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
        sizes = ids.numel(), np.uint32(row_words), np.uint32(ids.element_size())
        num_blocks = -(-ids.numel() * row_words // BLOCK_WORDS)
        # CuPy reads nothing of a stream but its address; its own wrapper differs between versions.
        stream = SimpleNamespace(ptr=torch.cuda.current_stream(weight.device).cuda_stream)
        with self._cupy.cuda.Device(self._number):
            self._function((num_blocks, 1, 1), (THREADS, 1, 1), (*addresses, *sizes), stream=stream)
        return rows


@functools.cache
def _row_gather(number: int) -> RowGather | str:
    """The gather of a device, compiled once in a process; or why there is none."""
    try:
        return RowGather(number)
    except (ImportError, RuntimeError, OSError) as error:
        return f"the kernel cannot be used: {error}"


def gathered(embed_tokens: Any, device: torch.device) -> tuple[Callable[[Tensor], Any], str]:
    """An embedder that gives the same rows faster where that is possible, and what it is.

    The kernel takes over for a `torch.nn.Embedding` on CUDA, call by call: where gradients, hooks,
    `max_norm` or the weights' layout ask for torch, torch is called.
    """
    if type(embed_tokens) is not torch.nn.Embedding or device.type != "cuda":
        return embed_tokens, "the embedder itself"
    gather = _row_gather(device.index)
    if isinstance(gather, str):
        return embed_tokens, f"the embedder itself; {gather}"

    def embed(ids: Tensor) -> Any:
        if not _takes_rows_only(embed_tokens, ids):
            return embed_tokens(ids)
        return gather(ids.contiguous(), embed_tokens.weight.detach())

    return embed, "gather_rows, the embedder itself where it does more"


def _takes_rows_only(embedding: torch.nn.Embedding, ids: Tensor) -> bool:
    weight = embedding.weight
    if embedding.max_norm is not None or embedding._forward_hooks or embedding._forward_pre_hooks:
        return False
    if (torch.is_grad_enabled() and weight.requires_grad) or weight.device != ids.device:
        return False
    row_bytes = weight.shape[1] * weight.element_size()
    is_aligned = row_bytes % WORD_BYTES == weight.data_ptr() % WORD_BYTES == 0
    return bool(is_aligned and weight.is_contiguous())
