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
from gpu.embedding.row_layout import RowLayout

PIECE_BYTES = 1 << 16
"""Letters that NumPy looks up at a time."""


@dataclass(slots=True, eq=False)
class LookUpResult:
    """The ids of some rows; a device may still be computing them.

    Attributes:
        ids: [b, width], laid out as the RowLayout says. Rows with a byte whose code is
            NEEDS_UPSTREAM have arbitrary ids.
        has_unknown: whether any byte has that code, valid once the ids are complete; None if
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
    """The tables of a rule on one device; looks up ids in them."""

    def __init__(
        self,
        rule: LetterRule,
        layout: RowLayout,
        device: torch.device,
        dtype: torch.dtype,
        memory: Callable[[int], NDArray[np.uint8]] | None = None,
    ) -> None:
        """Copy the tables to the device.

        Args:
            rule: the tables.
            layout: where the ids of a row stand.
            device: where ids are looked up.
            dtype: int32 or int64, that of the ids.
            memory: allocates uint8[N] for the codes of letters on a CPU; None: NumPy does.
        """

        def table(ids: NDArray[np.int32] | None, dtype: torch.dtype = dtype) -> Any:
            return None if ids is None else torch.tensor(ids, dtype=dtype, device=device)

        self.rule = rule
        self.layout = layout
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
            codes = self._codes if self._word_ids is None else self._word_ids
            d_ids = torch.empty((len(lengths), 0), dtype=codes.dtype, device=self.device)
            return LookUpResult(self._add_begin_end_tokens(d_ids, width))
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
            d_ids = self._add_begin_end_tokens(d_codes.view(len(lengths), -1), width)
        else:
            d_ids = self._lay_out(d_data, d_codes, offsets, width)
        return LookUpResult(d_ids, None if is_total else lambda: int(least) == NEEDS_UPSTREAM, host)

    def _add_begin_end_tokens(self, d_ids: Tensor, width: int) -> Tensor:
        """Put added ids and padding around rows [b, T] of one length; return [b, width]."""
        added = self.layout.begin_end_tokens
        if added.ids and len(d_ids):
            prefix, suffix = (
                torch.tensor(ids, dtype=d_ids.dtype, device=self.device).expand(len(d_ids), -1)
                for ids in (added.prefix, added.suffix)
            )
            d_ids = torch.cat([prefix, d_ids, suffix], 1)
        if (padding := width - d_ids.shape[1]) <= 0:
            return d_ids
        sides = (padding, 0) if self.layout.padding_side == "left" else (0, padding)
        return torch.nn.functional.pad(d_ids, sides, value=self.layout.pad_id)

    def _look_up_on_host(
        self, table: NDArray[Any], data: NDArray[np.uint8]
    ) -> tuple[NDArray[Any], int]:
        """Look up the code of every byte; return the codes, and the lowest code or 0.

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

    def _lay_out(
        self, d_data: Tensor, d_codes: Tensor, offsets: NDArray[np.int64], width: int
    ) -> Tensor:
        """Look up ids [b, width] of rows of any lengths, with added ids and padding."""
        rule, layout = self.rule, self.layout
        prefix, suffix = layout.begin_end_tokens.prefix, layout.begin_end_tokens.suffix
        last = len(d_data) - 1
        lengths = np.diff(offsets)
        counts = rule.count_ids(lengths)
        d_begins = to_device(offsets[:-1, None], self.device)
        d_counts = to_device(counts[:, None], self.device)
        first = layout.find_begins(counts + len(layout.begin_end_tokens.ids), width) + len(prefix)
        d_numbers = torch.arange(width, device=self.device) - to_device(first[:, None], self.device)
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
        is_padding = (d_numbers < -len(prefix)) | (d_numbers >= d_counts + len(suffix))
        d_ids.masked_fill_(is_padding, layout.pad_id)
        for number, token_id in enumerate(prefix, -len(prefix)):
            d_ids.masked_fill_(d_numbers == number, token_id)
        for number, token_id in enumerate(suffix):
            d_ids.masked_fill_(d_numbers == d_counts + number, token_id)
        return d_ids
