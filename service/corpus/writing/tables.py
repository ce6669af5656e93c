"""Writes rows as Parquet or Arrow: a column input_ids, list<int32>, and loss_mask, list<uint8>."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from service.corpus.documents import Rows
from service.corpus.writing.shard_files import PartialFile, ShardPlan, WrittenFile, publish

GROUP_TOKENS = 1 << 20
"""A row group ends with the row that brings it to this number of ids."""


class _Sink:
    """Adapts a file of a shard to the methods that pyarrow calls."""

    def __init__(self, file: PartialFile) -> None:
        self._file = file
        self.closed = False
        self.is_abandoned = False

    def write(self, data: Any) -> int:
        """Write bytes, unless the file was abandoned."""
        if not self.is_abandoned:
            self._file.write(np.frombuffer(data, np.uint8))
        return len(data)

    def flush(self) -> None:
        """Do nothing, as the file is flushed when it is complete."""

    def close(self) -> None:
        """Do nothing, as the file is closed when it is complete."""


class TableWriter:
    """Writes one shard: NAME.parquet with zstd compression, or NAME.arrow.

    Args:
        plan: the parameters of the shard.
    """

    def __init__(self, plan: ShardPlan, suffix: str) -> None:
        fields = [pa.field("input_ids", pa.list_(pa.int32()), nullable=False)]
        if plan.has_mask:
            fields.append(pa.field("loss_mask", pa.list_(pa.uint8()), nullable=False))
        self._schema = pa.schema(fields)
        self._file = plan.open(suffix)
        self._sink = _Sink(self._file)
        try:  # The begin of the file is written at once.
            self._writer = self._open(suffix)
        except BaseException:
            self._sink.is_abandoned = True
            self._file.abandon()
            raise
        self._parts: list[Rows] = []
        self._num_tokens = 0

    def _open(self, suffix: str) -> Any:
        sink = pa.PythonFile(self._sink, mode="w")
        if suffix == ".parquet":
            return pq.ParquetWriter(sink, self._schema, compression="zstd")
        return pa.ipc.new_file(sink, self._schema)

    def write(self, rows: Rows) -> None:
        """Append rows to the shard."""
        begin = 0
        while begin < len(rows):
            wanted = int(rows.offsets[begin]) + GROUP_TOKENS - self._num_tokens
            end = min(len(rows), int(np.searchsorted(rows.offsets, wanted, side="left")))
            end = max(end, begin + 1)
            part = rows.part(begin, end)
            self._parts.append(part)
            self._num_tokens += len(part.ids)
            if self._num_tokens >= GROUP_TOKENS:
                self._write_group()
            begin = end

    def _write_group(self) -> None:
        if not self._parts:
            return
        rows = self._parts[0] if len(self._parts) == 1 else None  # Then nothing is copied.
        lengths = np.concatenate([np.diff(part.offsets) for part in self._parts])
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
        ids = rows.ids if rows else np.concatenate([part.ids for part in self._parts])
        ids = ids.astype(np.int32, copy=False)
        arrays = [pa.ListArray.from_arrays(offsets, pa.array(ids))]
        if len(self._schema) > 1:
            mask = np.concatenate([part.mask for part in self._parts if part.mask is not None])
            arrays.append(pa.ListArray.from_arrays(offsets, pa.array(mask)))
        self._writer.write(pa.record_batch(arrays, schema=self._schema))
        self._parts, self._num_tokens = [], 0

    def finish(self) -> list[WrittenFile]:
        """Write the last row group, and rename the file to its final name."""
        self._write_group()
        self._writer.close()
        return publish(self._file)

    def abandon(self) -> None:
        """Remove the files of the shard; pyarrow closes its writer when it is collected."""
        self._parts = []
        self._sink.is_abandoned = True
        self._file.abandon()


def parquet_writer(plan: ShardPlan) -> TableWriter:
    """Make the writer of a shard of Parquet."""
    return TableWriter(plan, ".parquet")


def arrow_writer(plan: ShardPlan) -> TableWriter:
    """Make the writer of a shard of Arrow, in the file format."""
    return TableWriter(plan, ".arrow")
