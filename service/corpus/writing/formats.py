"""The formats of shards: the ids that each holds, and its writer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from service.corpus.writing import megatron
from service.corpus.writing.shard_files import ShardWriter

MAX_UINT16_IDS = 1 << 16


class MakeWriter(Protocol):
    """Makes the writer of one shard."""

    def __call__(
        self, folder: Path, name: str, id_dtype: type[np.integer[Any]], is_digested: bool
    ) -> ShardWriter:
        """Open the files of a shard under temporary names."""


@dataclass(frozen=True, slots=True)
class Format:
    """A format of shards.

    Attributes:
        make_writer: makes the writer of a shard.
        max_uint16_ids: the largest vocabulary whose ids are written as uint16, not int32.
        has_mask: whether it holds a loss mask.
        suffix: the end of the name of a shard's main file.
    """

    make_writer: MakeWriter
    max_uint16_ids: int = MAX_UINT16_IDS
    has_mask: bool = False
    suffix: str = ""

    def id_dtype(self, num_ids: int) -> type[np.integer[Any]]:
        """Choose the type of the ids of a vocabulary."""
        return np.uint16 if num_ids <= self.max_uint16_ids else np.int32


FORMATS = {
    "megatron": Format(megatron.MegatronWriter, megatron.MAX_UINT16_IDS, suffix=".bin"),
}
