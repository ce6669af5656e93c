r"""Writes the same .bin and .idx files as Megatron-LM's own `IndexedDatasetBuilder`.

    .bin  the ids
    .idx  "MMIDIDX\0\0", 1 as u64, a code of the ids' type as u8, S and D as u64,
          int32[S] lengths, int64[S] places in .bin, int64[D] numbers of the first sequence of each
          document, and of the one behind the last

Each document is one sequence; an empty document has none.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from service.corpus.documents import Rows
from service.corpus.writing.shard_files import ShardPlan, WrittenFile, publish

MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<QBQQ")
CODES: dict[type[np.integer[Any]], int] = {np.int32: 4, np.uint16: 8}
MAX_UINT16_IDS = 65_499
"""The largest vocabulary whose ids Megatron writes as uint16 (`DType.optimal_dtype`)."""


class MegatronWriter:
    """Writes one shard: NAME.bin and NAME.idx.

    Args:
        plan: the parameters of the shard.
    """

    def __init__(self, plan: ShardPlan) -> None:
        self.id_dtype = plan.id_dtype
        self.bin = plan.open(".bin")
        self.idx = plan.open(".idx")
        self.lengths = plan.spool("lengths", np.int32)
        self.num_sequences = 0

    def write(self, rows: Rows) -> None:
        """Append rows to the shard."""
        self.bin.write(rows.ids)
        lengths = np.diff(rows.offsets)
        self.lengths.write(lengths)
        self.num_sequences += int(np.count_nonzero(lengths))

    def finish(self) -> list[WrittenFile]:
        """Write the index, and rename the files to their final names."""
        num_documents = self.lengths.num_items + 1
        self.idx.write(MAGIC)
        code = CODES[self.id_dtype]
        self.idx.write(HEADER.pack(1, code, self.num_sequences, num_documents))
        for lengths in self.lengths.read():
            self.idx.write(lengths[lengths > 0])
        place = 0
        for lengths in self.lengths.read():
            lengths = lengths[lengths > 0].astype(np.int64) * np.dtype(self.id_dtype).itemsize
            ends = place + np.cumsum(lengths)
            self.idx.write(ends - lengths)
            place = int(ends[-1]) if len(ends) else place
        self.idx.write(np.zeros(1, np.int64))
        number = 0
        for lengths in self.lengths.read():
            ends = number + np.cumsum(lengths > 0)
            self.idx.write(ends)
            number = int(ends[-1])
        self.lengths.remove()
        return publish(self.bin, self.idx)

    def abandon(self) -> None:
        """Remove the files of the shard."""
        for file in (self.bin, self.idx):
            file.abandon()
        self.lengths.remove()
