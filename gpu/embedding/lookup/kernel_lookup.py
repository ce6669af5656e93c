"""Looks up the ids of rows by kernels on a CUDA device, on the current stream.

Ids are laid out as `torch_lookup` lays them out. Where all rows are as long as the matrix is wide,
the kernel reads pinned text over PCIe; else text is copied to the device first. Text that is not
pinned is staged in pinned memory by several threads, and read or copied piece by piece meanwhile.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from gpu.embedding.letter_rule import LetterRule
from gpu.embedding.lookup.torch_lookup import LookUpResult, to_device
from gpu.embedding.pinned_text import TextMemory, allocate_pinned, current_stream
from gpu.embedding.row_layout import RowLayout
from gpu.embedding.torch_kernels import TorchKernels, load_torch_kernels

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]
THREADS = 256
"""Threads of a block: LOOK_UP_BLOCK of embedding/look_up_rows.cuh."""

FLAT_BYTES = 16 * THREADS
"""Letters that a block of look_up_flat reads."""

NUM_MARKS = 1 << 14
"""The number of marks; a batch shares its mark with the batch this many batches before it."""

_batch_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Mark:
    """The memory word in which kernels report that a batch has a letter without a code.

    Attributes:
        address: address of an int64 in pinned memory.
        number: the number of the batch, which kernels write there.
    """

    address: int
    number: int

    def is_set(self) -> bool:
        """Return whether kernels of this batch, or of a much later one, reported such a letter."""
        return bool(get_batch_marks()[self.number % NUM_MARKS] >= self.number)


def next_mark() -> Mark:
    """Make the mark of a new batch."""
    number = next(_batch_numbers)
    return Mark(get_batch_marks().ctypes.data + 8 * (number % NUM_MARKS), number)


@functools.cache
def get_batch_marks() -> Int64s:
    """Return the process's marks, int64[NUM_MARKS] in pinned memory.

    The memory is never freed, because a kernel may still write to a mark after its batch has been
    dropped.
    """
    marks = allocate_pinned(8 * NUM_MARKS).view(np.int64)
    marks[:] = 0
    return marks


class LookUpFields(NamedTuple):
    """The fields of LookUp in embedding/look_up_rows.cuh, in order."""

    text: int
    begins: int
    ids: int
    unknown: int
    codes: int
    word_ids: int
    letter_ids: int
    num_bytes: int
    num_rows: int
    width: int
    num_words: int
    k: int
    stride: int
    base: int
    added_ids: int
    num_prefix: int
    num_suffix: int
    pads_left: int
    pad_id: int
    id_bytes: int
    number: int


class KernelLookUp:
    """The tables of a rule on one CUDA device; looks up ids in them by kernels."""

    def __init__(
        self,
        kernels: TorchKernels,
        rule: LetterRule,
        layout: RowLayout,
        device: torch.device,
        dtype: torch.dtype,
        texts: TextMemory,
    ) -> None:
        """Copy the tables to the device.

        Args:
            kernels: look_up_flat and look_up_rows.
            rule: the tables.
            layout: where the ids of a row stand.
            device: the device of the kernels.
            dtype: int32 or int64, that of the ids.
            texts: the memory that text is staged in.
        """
        self.rule = rule
        self.layout = layout
        self.device = device
        self.dtype = dtype
        self._kernels = kernels
        self._texts = texts
        self._id_bytes = torch.empty(0, dtype=dtype).element_size()
        self._codes = torch.tensor(rule.codes, dtype=torch.int32, device=device)
        self._word_ids = self._copy_table(rule.word_ids)
        self._letter_ids = self._copy_table(rule.letter_ids)
        self._added_ids = self._copy_table(np.array(layout.begin_end_tokens.ids, np.int32))

    def _copy_table(self, table: NDArray[np.int32] | None) -> torch.Tensor | None:
        """Copy a table to the device; None stays None."""
        return None if table is None else torch.tensor(table, dtype=torch.int32, device=self.device)

    def __call__(self, data: Bytes, offsets: Int64s, width: int) -> LookUpResult:
        """Look up ids as TorchLookUp does."""
        num_rows = len(offsets) - 1
        ids = torch.empty((num_rows, width), dtype=self.dtype, device=self.device)
        if not ids.numel() and not len(data):
            return LookUpResult(ids)
        mark = next_mark()
        result = LookUpResult(ids, None if self.rule.is_total else mark.is_set)
        # No row has more ids than the matrix is wide; equal sizes mean that all rows are that long,
        # and that nothing is added.
        if self.rule.word_ids is None and num_rows * width == len(data) > 0:
            self._look_up_flat(data, width, result, mark)
        else:
            self._look_up_rows(data, offsets, width, result, mark)
        return result

    def _look_up_flat(self, data: Bytes, width: int, result: LookUpResult, mark: Mark) -> None:
        """Look up rows as long as the matrix is wide, piece by piece from pinned memory."""
        stream = current_stream(self.device)
        for piece in self._texts.pieces(data, result.host):
            fields = self._make_fields(
                mark,
                text=piece.address,
                begins=0,
                ids=result.ids.data_ptr() + piece.begin * self._id_bytes,
                num_bytes=piece.num_bytes,
                num_rows=0,
                width=width,
            )
            num_blocks = -(-piece.num_bytes // FLAT_BYTES)
            self._kernels.launch("look_up_flat", num_blocks, THREADS, stream, fields)

    def _look_up_rows(
        self, data: Bytes, offsets: Int64s, width: int, result: LookUpResult, mark: Mark
    ) -> None:
        """Copy rows of any lengths to the device and look up all of them by one kernel."""
        stream = current_stream(self.device)
        d_data = torch.empty(len(data), dtype=torch.uint8, device=self.device)
        for piece in self._texts.pieces(data, result.host) if len(data) else ():
            target = d_data.data_ptr() + piece.begin
            self._kernels.copy_in(target, piece.address, piece.num_bytes, stream)
        d_begins = to_device(offsets, self.device)
        num_rows = len(offsets) - 1
        fields = self._make_fields(
            mark,
            text=d_data.data_ptr(),
            begins=d_begins.data_ptr(),
            ids=result.ids.data_ptr(),
            num_bytes=len(data),
            num_rows=num_rows,
            width=width,
        )
        num_blocks = -(-max(len(data), num_rows * width) // THREADS)
        self._kernels.launch("look_up_rows", num_blocks, THREADS, stream, fields)

    def _make_fields(
        self,
        mark: Mark,
        *,
        text: int,
        begins: int,
        ids: int,
        num_bytes: int,
        num_rows: int,
        width: int,
    ) -> LookUpFields:
        """Make the argument of a kernel from addresses and sizes."""
        rule, added = self.rule, self.layout.begin_end_tokens
        return LookUpFields(
            text=text,
            begins=begins,
            ids=ids,
            unknown=mark.address,
            codes=self._codes.data_ptr(),
            word_ids=0 if self._word_ids is None else self._word_ids.data_ptr(),
            letter_ids=0 if self._letter_ids is None else self._letter_ids.data_ptr(),
            num_bytes=num_bytes,
            num_rows=num_rows,
            width=width,
            num_words=0 if rule.word_ids is None else len(rule.word_ids),
            k=rule.k,
            stride=rule.stride,
            base=rule.base,
            added_ids=0 if self._added_ids is None else self._added_ids.data_ptr(),
            num_prefix=len(added.prefix),
            num_suffix=len(added.suffix),
            pads_left=int(self.layout.padding_side == "left"),
            pad_id=self.layout.pad_id,
            id_bytes=self._id_bytes,
            number=mark.number,
        )


def make_kernel_look_up(
    rule: LetterRule,
    layout: RowLayout,
    device: torch.device,
    dtype: torch.dtype,
    texts: TextMemory,
) -> KernelLookUp | None:
    """Make the look-up by kernels; None if they cannot be loaded, so torch must be used."""
    kernels = load_torch_kernels(
        device.index, "embedding/look_up_rows.cu", "look_up_flat", "look_up_rows"
    )
    if isinstance(kernels, str):
        return None
    return KernelLookUp(kernels, rule, layout, device, dtype, texts)
