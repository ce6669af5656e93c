"""Writes ids as flat arrays: datatrove's .ds, NumPy's .npy, llm.c's .bin, or raw ids."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from service.corpus.documents import Rows
from service.corpus.writing.shard_files import ShardPlan, WrittenFile, publish

NPY_HEADER_BYTES = 128
NPY_MAGIC = b"\x93NUMPY\x01\x00"
LLMC_HEADER_INTS = 256
LLMC_KINDS: dict[type[np.integer[Any]], tuple[int, int]] = {
    np.uint16: (20240520, 1),
    np.int32: (20240801, 7),
}
"""The magic numbers and versions of llm.c's files for GPT-2 and for Llama 3, by the ids' type."""
MAX_LLMC_TOKENS = (1 << 31) - 1
PREFIXES = "kMGTPEZYRQ"


class RawWriter:
    """Writes one shard: NAME.bin with raw ids, as nanoGPT and `numpy.memmap` read them.

    Args:
        plan: the parameters of the shard.
    """

    suffix = ".bin"

    def __init__(self, plan: ShardPlan) -> None:
        self.plan = plan
        self.ids = plan.open(self.suffix)
        self.num_ids = 0

    def write(self, rows: Rows) -> None:
        """Append rows to the shard."""
        self.ids.write(rows.ids)
        self.num_ids += len(rows.ids)

    def finish(self) -> list[WrittenFile]:
        """Rename the file to its final name."""
        return publish(self.ids)

    def abandon(self) -> None:
        """Remove the files of the shard."""
        self.ids.abandon()


class LlmcWriter(RawWriter):
    """Writes one shard for llm.c: NAME.bin, with a header of 256 int32 (three used) and the ids."""

    def __init__(self, plan: ShardPlan) -> None:
        super().__init__(plan)
        self.ids.reserve(4 * LLMC_HEADER_INTS)

    def finish(self) -> list[WrittenFile]:
        """Write the header, and rename the file to its final name.

        Raises:
            ValueError: there are more ids than the header can express.
        """
        if self.num_ids > MAX_LLMC_TOKENS:
            raise ValueError(f"llm.c reads at most {MAX_LLMC_TOKENS} ids from a file")
        magic, version = LLMC_KINDS[self.plan.id_dtype]
        self.ids.write_begin(struct.pack("<3i", magic, version, self.num_ids))
        return super().finish()


class NpyWriter(RawWriter):
    """Writes one shard: NAME.npy with all ids, and NAME.offsets.npy, int64, where each row begins.

    `numpy.load(path, mmap_mode="r")` reads both.
    """

    suffix = ".npy"

    def __init__(self, plan: ShardPlan) -> None:
        super().__init__(plan)
        self.offsets = plan.open(".offsets.npy")
        self.num_offsets = 1
        self.ids.reserve(NPY_HEADER_BYTES)
        self.offsets.reserve(NPY_HEADER_BYTES + 8)  # The first offset is 0.

    def write(self, rows: Rows) -> None:
        """Append rows to the shard."""
        self.offsets.write(rows.offsets[1:] + self.num_ids)
        self.num_offsets += len(rows)
        super().write(rows)

    def finish(self) -> list[WrittenFile]:
        """Write the headers, and rename the files to their final names."""
        self.ids.write_begin(npy_header(np.dtype(self.plan.id_dtype), self.num_ids))
        self.offsets.write_begin(npy_header(np.dtype(np.int64), self.num_offsets))
        return publish(self.ids, self.offsets)

    def abandon(self) -> None:
        """Remove the files of the shard."""
        super().abandon()
        self.offsets.abandon()


def npy_header(dtype: np.dtype[np.generic], num_items: int) -> bytes:
    """Return the header of a .npy file for a one-dimensional array."""
    text = f"{{'descr': '{dtype.str}', 'fortran_order': False, 'shape': ({num_items},), }}"
    size = NPY_HEADER_BYTES - len(NPY_MAGIC) - 2
    return NPY_MAGIC + struct.pack("<H", size) + text.ljust(size - 1).encode() + b"\n"


class DatatroveWriter(RawWriter):
    """Writes one shard for datatrove and nanotron.

    NAME.ds contains the ids, NAME.ds.index the end of each row as u64, NAME.ds.metadata the
    vocabulary and the number of ids, and NAME.ds.loss, if there is a mask, one byte per id.
    """

    suffix = ".ds"

    def __init__(self, plan: ShardPlan) -> None:
        super().__init__(plan)
        self.index = plan.open(".ds.index")
        self.metadata = plan.open(".ds.metadata")
        self.loss = plan.open(".ds.loss") if plan.has_mask else None

    def write(self, rows: Rows) -> None:
        """Append rows to the shard."""
        self.index.write(rows.offsets[1:] + self.num_ids)
        if self.loss is not None and rows.mask is not None:
            self.loss.write(rows.mask)
        super().write(rows)

    def finish(self) -> list[WrittenFile]:
        """Write the metadata, and rename the files to their final names."""
        size = np.dtype(self.plan.id_dtype).itemsize
        lines = (f"{self.plan.vocabulary}|{size}", str(self.num_ids), human_count(self.num_ids))
        self.metadata.write("\n".join(lines).encode())
        loss = [] if self.loss is None else [self.loss]
        return publish(self.ids, *loss, self.metadata, self.index)

    def abandon(self) -> None:
        """Remove the files of the shard."""
        super().abandon()
        for file in (self.index, self.metadata, self.loss):
            if file is not None:
                file.abandon()


def human_count(count: int) -> str:
    """Format a number with three digits and a unit prefix like datatrove: 1234567 is "1.23 MT"."""
    exponent = len(str(count)) - 1
    if round(count, 2 - exponent) >= 10 ** (exponent + 1):
        exponent += 1
    group = exponent // 3
    prefix = PREFIXES[group - 1] if group else ""
    return f"{count / 1000**group:.{2 - exponent % 3}f} {prefix}T"
