"""Ids of rows by look-up on a CUDA device, each batch by one kernel, on the current stream.

What `torch_lookup` says of ids holds here. Text in pinned memory is read over the bus by the kernel
where all rows are as long as the matrix is wide; else it is copied first. Other text is staged in
pinned memory by several threads, and read or copied piece by piece meanwhile.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
import torch
from numpy.typing import NDArray

from gpu.embedding.letter_rule import LetterRule
from gpu.embedding.pinned_text import TextMemory, current_stream, page_locked
from gpu.embedding.torch_kernels import RowKernels, row_kernels
from gpu.embedding.torch_lookup import Found, to_device

__all__ = ["KernelLookUp", "Mark", "kernel_look_up", "next_mark"]

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]
THREADS = 256  # LOOK_UP_BLOCK of embedding/look_up_rows.cuh,
FLAT_BYTES = 16 * THREADS  # and what a block of look_up_flat reads.
NUM_MARKS = 1 << 14
_numbers = count(1)


@dataclass(slots=True, eq=False)
class _Call:
    """One batch: its ids, the stream, and where it is told that a letter has no code."""

    found: Found
    stream: int
    mark: Mark


class KernelLookUp:
    """The tables of a rule on one CUDA device."""

    def __init__(
        self,
        kernels: RowKernels,
        rule: LetterRule,
        pad_id: int,
        device: torch.device,
        dtype: torch.dtype,
        texts: TextMemory,
    ) -> None:
        """Copy the tables; ids come as `dtype`, int32 or int64."""
        self.rule, self.pad_id, self.device, self.dtype = rule, pad_id, device, dtype
        self._kernels, self._texts = kernels, texts
        tables = (rule.codes, rule.word_ids, rule.letter_ids)
        self._tables = [
            None if table is None else torch.tensor(table, dtype=torch.int32, device=device)
            for table in tables
        ]
        self._places = [0 if table is None else table.data_ptr() for table in self._tables]
        num_words = 0 if rule.word_ids is None else len(rule.word_ids)
        id_bytes = torch.empty(0, dtype=dtype).element_size()
        self._numbers = (num_words, rule.k, rule.stride, rule.base, pad_id, id_bytes)
        self._id_bytes = id_bytes

    def __call__(self, data: Bytes, offsets: Int64s, width: int) -> Found:
        """As `LookUp`."""
        num_rows = len(offsets) - 1
        ids = torch.empty((num_rows, width), dtype=self.dtype, device=self.device)
        if not len(data):
            return Found(ids.fill_(self.pad_id))
        # No row has more ids than the matrix is wide, so that all have as many if it has no more.
        is_flat = self.rule.word_ids is None and num_rows * width == len(data)
        stream = current_stream(self.device)
        mark = next_mark()
        found = Found(ids, None if self.rule.is_total else mark.is_set)
        call = _Call(found, stream, mark)
        run = self._flat if is_flat else self._rows
        run(data, offsets, width, call)
        return found

    def _flat(self, data: Bytes, _: Int64s, width: int, call: _Call) -> None:
        ids = call.found.ids.data_ptr()
        for place, begin, end in self._texts.pieces(data, call.found.host):
            size, at = end - begin, ids + begin * self._id_bytes
            blocks = -(-size // FLAT_BYTES)
            self._launch("look_up_flat", blocks, call, (place, 0, at), (size, 0, width))

    def _rows(self, data: Bytes, offsets: Int64s, width: int, call: _Call) -> None:
        d_data = torch.empty(len(data), dtype=torch.uint8, device=self.device)
        for place, begin, end in self._texts.pieces(data, call.found.host):
            self._kernels.copy_in(d_data.data_ptr() + begin, place, end - begin, call.stream)
        d_begins, num_rows = to_device(offsets, self.device), len(offsets) - 1
        blocks = -(-max(len(data), num_rows * width) // THREADS)
        places = d_data.data_ptr(), d_begins.data_ptr(), call.found.ids.data_ptr()
        self._launch("look_up_rows", blocks, call, places, (len(data), num_rows, width))

    def _launch(
        self, kernel: str, blocks: int, call: _Call, places: Sequence[int], sizes: Sequence[int]
    ) -> None:
        """Run a kernel on text, begins and ids, of so many bytes and rows of a width."""
        mark = call.mark
        fields = (*places, mark.address, *self._places, *sizes, *self._numbers, mark.number)
        self._kernels.launch(kernel, blocks, THREADS, call.stream, *fields)


@dataclass(frozen=True, slots=True)
class Mark:
    """Where kernels leave the number of a batch that has a letter without a code."""

    address: int
    number: int

    def is_set(self) -> bool:
        """Whether they have left it, once they are done; or a much later batch has in its place."""
        return bool(marks_of_batches()[self.number % NUM_MARKS] >= self.number)


def next_mark() -> Mark:
    """That of a new batch."""
    number = next(_numbers)
    return Mark(marks_of_batches().ctypes.data + 8 * (number % NUM_MARKS), number)


@functools.cache
def marks_of_batches() -> Int64s:
    """int64[NUM_MARKS] in pinned memory, where kernels leave the numbers of batches.

    A batch gives its place to another when so many have followed it. Never freed: a kernel may
    write here when nobody asks any more.
    """
    marks = page_locked(8 * NUM_MARKS).view(np.int64)
    marks[:] = 0
    return marks


def kernel_look_up(
    rule: LetterRule, pad_id: int, device: torch.device, dtype: torch.dtype, texts: TextMemory
) -> KernelLookUp | None:
    """The look-up by kernels; None where there are none, and torch must do it."""
    names = "look_up_flat", "look_up_rows"
    kernels = row_kernels(device.index, "embedding/look_up_rows.cu", *names)
    if isinstance(kernels, str):
        return None
    return KernelLookUp(kernels, rule, pad_id, device, dtype, texts)
