"""Looks up the ids of rows in a rule's tables by torch, on any torch device.

Everything runs on the current stream. This module uses no upstream tokenizer and no embedder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpu.embedding.letter_rule import NEEDS_UPSTREAM, LetterRule

PIECE_BYTES = 1 << 16
"""Letters that NumPy looks up at a time."""


@dataclass(slots=True, eq=False)
class LookUpResult:
    """Holds the ids of some rows; a device may still be computing them.

    Attributes:
        ids: [b, width], padded on the left. Rows with a byte whose code is NEEDS_UPSTREAM have
            arbitrary ids.
        has_unknown: tells, once the ids are complete, whether any byte has that code; None where
            the rule has an id for every byte.
        host: host memory that the device reads until then.
    """

    ids: Tensor
    has_unknown: Callable[[], bool] | None = None
    host: list[NDArray[Any]] = field(default_factory=list)


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """Copy an array to a device without waiting; on the CPU a writable array is not copied.

    Pinned memory is copied to the device directly, other memory through pinned memory. torch reuses
    a pinned block only after the copies that read it.
    """
    is_cuda = device.type == "cuda"
    if array.flags.writeable and array.flags.c_contiguous:
        host = torch.from_numpy(array)
        if not is_cuda or host.is_pinned():
            return host.to(device, non_blocking=True)
    host = torch.empty(array.shape, dtype=_torch_dtype(array.dtype), pin_memory=is_cuda)
    np.copyto(host.numpy(), array)
    return host.to(device, non_blocking=True)


def _torch_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    torch_dtype: torch.dtype = getattr(torch, dtype.name)
    return torch_dtype


class TorchLookUp:
    """Holds the tables of a rule on one device and looks up in them."""

    def __init__(
        self,
        rule: LetterRule,
        pad_id: int,
        device: torch.device,
        dtype: torch.dtype,
        memory: Callable[[int], NDArray[np.uint8]] | None = None,
    ) -> None:
        """Copy the tables to the device.

        Args:
            rule: the tables.
            pad_id: the id of the padding.
            device: where ids are looked up.
            dtype: int32 or int64, that of the ids.
            memory: allocates uint8[N] for the codes of letters on a CPU; None: NumPy does.
        """

        def table(ids: NDArray[np.int32] | None, dtype: torch.dtype = dtype) -> Any:
            return None if ids is None else torch.tensor(ids, dtype=dtype, device=device)

        self.rule = rule
        self.pad_id = pad_id
        self.device = device
        self._memory = memory
        # The digits of a word spell a number that may not fit into 32 bits.
        self._codes = table(rule.codes, dtype if rule.word_ids is None else torch.int64)
        self._host_codes = self._codes.numpy() if device.type == "cpu" else None
        self._word_ids = table(rule.word_ids)
        self._letter_ids = table(rule.letter_ids)

    def __call__(
        self, data: NDArray[np.uint8], offsets: NDArray[np.int64], width: int
    ) -> LookUpResult:
        """Look up the ids of some rows.

        Args:
            data: uint8[N], the rows joined.
            offsets: int64[b + 1], where each row begins.
            width: ids of each row, padding included; no row may have more.
        """
        lengths = offsets[1:] - offsets[:-1]
        if not len(data):
            shape = len(lengths), width
            dtype = self._codes.dtype if self._word_ids is None else self._word_ids.dtype
            return LookUpResult(torch.full(shape, self.pad_id, dtype=dtype, device=self.device))
        d_data = to_device(data, self.device)
        is_total = self.rule.is_total
        host: list[NDArray[Any]] = []
        least: Any = None
        if self._host_codes is not None:
            codes, least = self._look_up_on_host(self._host_codes, data)
            host.append(codes)
            d_codes = torch.from_numpy(codes)
        else:
            d_codes = self._codes.index_select(0, d_data.int())
            if not is_total:
                least = d_codes.amin().to("cpu", non_blocking=True)
        if self._word_ids is None and int(lengths.min()) * len(lengths) == len(data):
            d_ids = d_codes.view(len(lengths), -1)
            if width > d_ids.shape[1]:
                left = width - d_ids.shape[1]
                d_ids = torch.nn.functional.pad(d_ids, (left, 0), value=self.pad_id)
        else:
            d_ids = self._right_aligned(d_data, d_codes, offsets, width)
        return LookUpResult(d_ids, None if is_total else lambda: int(least) == NEEDS_UPSTREAM, host)

    def _look_up_on_host(
        self, table: NDArray[Any], data: NDArray[np.uint8]
    ) -> tuple[NDArray[Any], int]:
        """Look up the code of every byte; return the codes and the least of them, at most 0.

        NumPy looks up faster than torch. It widens bytes to indices, so it gets pieces that stay in
        the caches.
        """
        num_bytes = len(data) * table.itemsize
        least = 0
        memory = np.empty(num_bytes, np.uint8) if self._memory is None else self._memory(num_bytes)
        codes = memory.view(table.dtype)
        for begin in range(0, len(data), PIECE_BYTES):
            piece = np.take(table, data[begin : begin + PIECE_BYTES])
            codes[begin : begin + len(piece)] = piece
            if not self.rule.is_total:
                least = min(least, int(piece.min()))
        return codes, least

    def _right_aligned(
        self, d_data: Tensor, d_codes: Tensor, offsets: NDArray[np.int64], width: int
    ) -> Tensor:
        """Look up ids [b, width]; column c of a row of n ids has id c - (width - n), or padding."""
        rule = self.rule
        last = len(d_data) - 1
        lengths = np.diff(offsets)
        counts = rule.count_ids(lengths)
        d_begins = to_device(offsets[:-1, None], self.device)
        d_columns = torch.arange(width, device=self.device)
        d_numbers = d_columns - to_device(width - counts[:, None], self.device)
        d_places = (d_begins + d_numbers * rule.stride).clamp_(0, last)
        if self._word_ids is None:
            d_ids = d_codes[d_places]
        else:
            d_words = torch.zeros_like(d_places)
            for i in range(rule.k):
                d_words = d_words * rule.base + d_codes[(d_places + i).clamp_(max=last)]
            d_ids = self._word_ids[d_words.clamp_(0, len(self._word_ids) - 1)]
        if self._letter_ids is not None:
            d_rest = to_device((offsets[1:] - counts)[:, None], self.device) + d_numbers
            d_letters = self._letter_ids[d_data[d_rest.clamp_(0, last)].int()]
            d_is_word = d_numbers < to_device(rule.count_words(lengths)[:, None], self.device)
            d_ids = torch.where(d_is_word, d_ids, d_letters)
        return d_ids.masked_fill_(d_numbers < 0, self.pad_id)
