"""Writes the MDS format of MosaicML's streaming: the column `tokens`, and with a mask `loss_mask`.

    u32 S, u32[S + 1] places of samples, JSON of the columns, the samples
    a sample:  u32 for the size of each column, then of each a byte for the type of its length, the
               length, and the items

Empty rows are skipped, because the format has none. `index.json` lists all shards.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from service.corpus.documents import Rows
from service.corpus.writing.shard_files import ShardPlan, WrittenFile, publish
from service.runtime.atomic_files import Store

INDEX = "index.json"
MAX_BYTES = (1 << 32) - 1
MAX_SHARD_TOKENS = 200_000_000
"""The most ids of a shard: even rows of one id, with 21 bytes each, stay below MAX_BYTES."""
ONE_AXIS = 1 << 2
LENGTH_TYPES = (("<BB", 1 << 8, 0), ("<BH", 1 << 16, 1), ("<BI", 1 << 32, 2))
"""For each integer type: its struct format, its largest length, and its number in MDS."""


def columns(id_dtype: type[np.integer[Any]], has_mask: bool) -> dict[str, str]:
    """Return the encodings of the columns by name, in the order of the names."""
    tokens = {"tokens": f"ndarray:{np.dtype(id_dtype).name}"}
    return {"loss_mask": "ndarray:uint8", **tokens} if has_mask else tokens


def describe_columns(id_dtype: type[np.integer[Any]], has_mask: bool) -> dict[str, Any]:
    """Return the entry of a shard in `index.json`."""
    encodings = columns(id_dtype, has_mask)
    return {
        "version": 2,
        "format": "mds",
        "compression": None,
        "hashes": [],
        "size_limit": None,
        "column_names": list(encodings),
        "column_encodings": list(encodings.values()),
        "column_sizes": [None] * len(encodings),
    }


class MdsWriter:
    """Writes one shard: NAME.mds.

    Args:
        plan: the parameters of the shard.
    """

    def __init__(self, plan: ShardPlan) -> None:
        described = describe_columns(plan.id_dtype, plan.has_mask)
        self._config = json.dumps(described, sort_keys=True).encode()
        self._file = plan.open(".mds")
        self._sizes = plan.spool("sizes", np.uint32)
        self._samples = plan.spool("samples", np.uint8)

    def write(self, rows: Rows) -> None:
        """Append rows to the shard."""
        parts: list[bytes | memoryview] = []
        sizes = []
        offsets = rows.offsets.tolist()
        for begin, end in pairwise(offsets):
            if begin == end:
                continue
            items = [rows.ids[begin:end].data.cast("B")]
            if rows.mask is not None:
                items.insert(0, rows.mask[begin:end].data.cast("B"))
            head = pack_length(end - begin)
            lengths = [len(head) + len(item) for item in items]
            parts.append(struct.pack(f"<{len(items)}I", *lengths))
            for item in items:
                parts += (head, item)
            sizes.append(4 * len(items) + sum(lengths))
        self._samples.write(np.frombuffer(b"".join(parts), np.uint8))
        self._sizes.write(np.array(sizes, np.uint32))

    def finish(self) -> list[WrittenFile]:
        """Write the offsets before the samples, and rename the file to its final name.

        Raises:
            ValueError: the file is too large for its offsets.
        """
        num_samples = self._sizes.num_items
        begin = 4 + 4 * (num_samples + 1) + len(self._config)
        if begin + self._samples.num_items > MAX_BYTES:
            raise ValueError("a shard of MDS has at most 4 GiB; give a smaller --shard-tokens")
        self._file.write(struct.pack("<2I", num_samples, begin))
        place = begin
        for sizes in self._sizes.read():
            ends = place + np.cumsum(sizes, dtype=np.int64)
            self._file.write(ends.astype(np.uint32))
            place = int(ends[-1])
        self._file.write(self._config)
        for samples in self._samples.read():
            self._file.write(samples)
        self._remove_spools()
        return publish(self._file)

    def abandon(self) -> None:
        """Remove the files of the shard."""
        self._file.abandon()
        self._remove_spools()

    def _remove_spools(self) -> None:
        self._sizes.remove()
        self._samples.remove()


def pack_length(length: int) -> bytes:
    """Encode the shape of a one-dimensional array like `streaming`."""
    for form, limit, number in LENGTH_TYPES:
        if length < limit:
            return struct.pack(form, ONE_AXIS | number, length)
    raise ValueError(f"a row has {length} ids, more than MDS can store")


def count_samples(path: Path) -> int:
    """Return the number of samples of a shard."""
    with open(path, "rb") as file:
        (num_samples,) = struct.unpack("<I", file.read(4))
    return int(num_samples)


def write_index(
    folder: Path, described: dict[str, Any], files: Sequence[tuple[WrittenFile, int]]
) -> None:
    """Write the index of all shards with the number of samples of each."""
    shards = [
        {
            **described,
            "samples": num_samples,
            "raw_data": {"basename": file.name, "bytes": file.size, "hashes": {}},
            "zip_data": None,
        }
        for file, num_samples in files
    ]
    content = json.dumps({"version": 2, "shards": shards}, sort_keys=True)
    Store(folder).write(INDEX, content.encode())
