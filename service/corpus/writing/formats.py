"""Lists the formats of shards, with the type of ids and the writer of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from service.core.extras import check_installed
from service.corpus.writing import flat, mds, megatron
from service.corpus.writing.shard_files import ShardPlan, ShardWriter

MAX_UINT16_IDS = 1 << 16


def _parquet(plan: ShardPlan) -> ShardWriter:
    check_installed("Parquet and Arrow", "arrow")
    from service.corpus.writing import tables

    return tables.parquet_writer(plan)


def _arrow(plan: ShardPlan) -> ShardWriter:
    check_installed("Parquet and Arrow", "arrow")
    from service.corpus.writing import tables

    return tables.arrow_writer(plan)


@dataclass(frozen=True, slots=True)
class Format:
    """A format of shards.

    Attributes:
        make_writer: makes the writer of a shard; it opens the files under temporary names.
        max_uint16_ids: the size of the largest vocabulary whose ids are written as uint16 instead
            of int32.
        has_mask: whether the format supports a loss mask.
        max_shard_tokens: the most ids of a shard.
    """

    make_writer: Callable[[ShardPlan], ShardWriter]
    max_uint16_ids: int = MAX_UINT16_IDS
    has_mask: bool = False
    max_shard_tokens: int = (1 << 63) - 1

    def id_dtype(self, num_ids: int) -> type[np.integer[Any]]:
        """Return the type of ids for a vocabulary of a size."""
        return np.uint16 if num_ids <= self.max_uint16_ids else np.int32


FORMATS = {
    "megatron": Format(megatron.MegatronWriter, megatron.MAX_UINT16_IDS),
    "datatrove": Format(flat.DatatroveWriter, has_mask=True),
    "parquet": Format(_parquet, 0, has_mask=True),
    "arrow": Format(_arrow, 0, has_mask=True),
    "mds": Format(mds.MdsWriter, has_mask=True, max_shard_tokens=mds.MAX_SHARD_TOKENS),
    "npy": Format(flat.NpyWriter),
    "llm.c": Format(flat.LlmcWriter, max_shard_tokens=flat.MAX_LLMC_TOKENS),
    "raw": Format(flat.RawWriter),
}
