"""Ids of rows by look-up in a rule's tables, on any torch device.

Knows no upstream tokenizer, no embedder and no stream of its own: all runs on the current one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpu.embedding.letter_rule import ELSEWHERE, LetterRule

__all__ = ["Found", "LookUp", "to_device"]

PIECE_BYTES = 1 << 16  # Of letters that NumPy looks up at a time.


@dataclass(slots=True, eq=False)
class Found:
    """Ids of some rows, perhaps still being looked up.

    Attributes:
        ids: [b, width], padded on the left; of a row that has a byte whose code is ELSEWHERE they
            may be anything.
        has_unknown: whether it has such a byte, once the ids are there; None: there can be none.
        host: memory that the device uses meanwhile.
    """

    ids: Tensor
    has_unknown: Callable[[], bool] | None = None
    host: list[NDArray[Any]] = field(default_factory=list)


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """An array on a device, copied there without waiting; no copy on the CPU if it can be written.

    Pinned memory is copied from where it lies, other memory is first copied into pinned memory.
    torch gives a pinned block out again only when the copies that read it are done.
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
    named: torch.dtype = getattr(torch, dtype.name)
    return named


class LookUp:
    """The tables of a rule on one device."""

    def __init__(
        self,
        rule: LetterRule,
        pad_id: int,
        device: torch.device,
        dtype: torch.dtype,
        memory: Callable[[int], NDArray[np.uint8]] | None = None,
    ) -> None:
        """Copy the tables; ids come as `dtype`, int32 or int64.

        On a CPU letters are looked up into `memory`, which gives uint8[N]; None: any will do.
        """

        def table(ids: NDArray[np.int32] | None, dtype: torch.dtype = dtype) -> Any:
            return None if ids is None else torch.tensor(ids, dtype=dtype, device=device)

        self.rule, self.pad_id, self.device, self._memory = rule, pad_id, device, memory
        # Digits of a word are added up to numbers that need not fit into 32 bits.
        self._codes = table(rule.codes, dtype if rule.word_ids is None else torch.int64)
        self._host_codes = self._codes.numpy() if device.type == "cpu" else None
        self._word_ids, self._letter_ids = table(rule.word_ids), table(rule.letter_ids)

    def __call__(self, data: NDArray[np.uint8], offsets: NDArray[np.int64], width: int) -> Found:
        """The ids of some rows.

        Args:
            data: uint8[N], the rows joined.
            offsets: int64[b + 1], where each begins.
            width: ids of each row, padding included; no row may have more.
        """
        lengths = offsets[1:] - offsets[:-1]
        if not len(data):
            shape = len(lengths), width
            dtype = self._codes.dtype if self._word_ids is None else self._word_ids.dtype
            return Found(torch.full(shape, self.pad_id, dtype=dtype, device=self.device))
        d_data, host, is_total = to_device(data, self.device), [], self.rule.is_total
        least: Any = None
        if self._host_codes is not None:
            codes, least = self._look_up_on_host(self._host_codes, data)
            host, d_codes = [codes], torch.from_numpy(codes)
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
        return Found(d_ids, None if is_total else lambda: int(least) == ELSEWHERE, host)

    def _look_up_on_host(
        self, table: NDArray[Any], data: NDArray[np.uint8]
    ) -> tuple[NDArray[Any], int]:
        """The code of every byte, and the least of them, or 0.

        NumPy does this in a tenth of torch's time; its indices are longer than these bytes, so that
        it gets what the caches hold.
        """
        num_bytes, least = len(data) * table.itemsize, 0
        memory = np.empty(num_bytes, np.uint8) if self._memory is None else self._memory(num_bytes)
        codes = memory.view(table.dtype)
        for begin in range(0, len(data), PIECE_BYTES):
            part = np.take(table, data[begin : begin + PIECE_BYTES])
            codes[begin : begin + len(part)] = part
            least = least if self.rule.is_total else min(least, int(part.min()))
        return codes, least

    def _right_aligned(
        self, d_data: Tensor, d_codes: Tensor, offsets: NDArray[np.int64], width: int
    ) -> Tensor:
        """Column c of a row with n ids holds its id c - (width - n), or padding."""
        rule, last, lengths = self.rule, len(d_data) - 1, np.diff(offsets)
        counts = rule.counts(lengths)
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
            d_is_word = d_numbers < to_device(rule.num_words(lengths)[:, None], self.device)
            d_ids = torch.where(d_is_word, d_ids, d_letters)
        return d_ids.masked_fill_(d_numbers < 0, self.pad_id)
