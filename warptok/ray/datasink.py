"""Writes the ids in a Ray data set as shards, in the formats of `warptok corpus`."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from ray.data import Datasink
from ray.data.block import BlockAccessor

from service.core.version import package_version
from service.corpus.documents import Rows
from service.corpus.encoding.encoder import NONE, add_begin_end_tokens, make_rows
from service.corpus.job import SHARD_TOKENS, Job
from service.corpus.parts.checkpoint import MANIFEST, Checkpoint, Cursor, Shard, describe_shard
from service.corpus.parts.shards import Shards
from service.corpus.writing import mds
from service.corpus.writing.formats import FORMATS
from service.runtime.atomic_files import Store
from vocabularies.batch.ragged import offsets_from_lengths
from warptok.errors import InvalidRequest
from warptok.loading import load

if TYPE_CHECKING:
    from ray.data._internal.execution.interfaces import TaskContext
    from ray.data.block import Block
    from ray.data.datasource import WriteResult

MANIFEST_OPTIONS = ("format", "prefix", "shard_tokens", "shuffle", "begin_id", "end_id", "has_mask")


class ShardDatasink(Datasink):
    """Writes a column of ids as shards; for `ray.data.Dataset.write_datasink`.

    Each write task writes the rows of its blocks, in order, to its own shards; those of the fourth
    task are `shard_00003_00000` and so on. A task that Ray repeats replaces its shards by whole
    files of the same names. Ray Data decides which rows a task gets, so the files depend on the
    cluster; those of `warptok corpus --ray` do not.

    Args:
        folder: the folder of the shards, which all nodes share.
        vocabulary: a source as for `warptok.load`; it determines the width of ids, and the manifest
            contains its digest.
        format: "megatron", "datatrove", "parquet", "arrow", "mds", "npy", "llm.c" or "raw".
        column: the column of ids, which are lists of integers; rows that are null are skipped.
        mask_column: the column of loss masks, which are lists of 0 and 1 of the same length as the
            ids; None: no masks.
        begin_id, end_id: ids to add before and after each row that is not empty; None: add none.
        prefix: the first part of the shards' names.
        shard_tokens: the most ids of a shard, unless one row has more; None: the format's default.
        shuffle: the seed with which the rows of each shard are shuffled; None: keep their order.
        min_rows_per_write: the fewest rows of a write task; None: Ray Data chooses.
        has_digests: whether the manifest contains the SHA-256 of each file.

    Raises:
        InvalidRequest: the format is unknown, does not support masks, or limits shards to fewer
            than `shard_tokens` ids; or `begin_id` or `end_id` is not in the vocabulary.
        UnknownVocabulary, OSError: as `warptok.load`.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        vocabulary: Any,
        *,
        format: str = "megatron",
        column: str = "input_ids",
        mask_column: str | None = None,
        begin_id: int | None = None,
        end_id: int | None = None,
        prefix: str = "shard",
        shard_tokens: int | None = None,
        shuffle: int | None = None,
        min_rows_per_write: int | None = None,
        has_digests: bool = True,
    ) -> None:
        if format not in FORMATS:
            raise InvalidRequest(f"format must be one of {', '.join(FORMATS)}", where="format")
        kind = FORMATS[format]
        if mask_column is not None and not kind.has_mask:
            raise InvalidRequest(f"the format {format} has no mask", where="mask_column")
        if shard_tokens is not None and not 0 < shard_tokens <= kind.max_shard_tokens:
            message = f"a shard of {format} has 1 to {kind.max_shard_tokens} ids"
            raise InvalidRequest(message, where="shard_tokens")
        tokenizer = load(vocabulary, device="cpu")
        for name, token_id in (("begin_id", begin_id), ("end_id", end_id)):
            if token_id is not None and not 0 <= token_id < len(tokenizer):
                raise InvalidRequest(f"the vocabulary has {len(tokenizer)} ids", where=name)
        self.folder = Path(os.path.abspath(folder))
        self._num_ids = len(tokenizer)
        self._id_dtype = kind.id_dtype(self._num_ids)
        self._column, self._mask_column = column, mask_column
        self._min_rows = min_rows_per_write
        self._job = Job(
            inputs=(),
            vocabulary=tokenizer.digest,
            format=format,
            prefix=prefix,
            shard_tokens=shard_tokens or min(SHARD_TOKENS, kind.max_shard_tokens),
            begin_id=begin_id,
            end_id=end_id,
            shuffle=shuffle,
            has_mask=mask_column is not None,
            is_digested=has_digests,
        )

    @property
    def min_rows_per_write(self) -> int | None:
        """The fewest rows of a write task; None: Ray Data chooses."""
        return self._min_rows

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        """Make the folder.

        Raises:
            FileExistsError: the folder already has a manifest.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        if (self.folder / MANIFEST).exists():
            raise FileExistsError(f"{self.folder} has shards of another run: {MANIFEST}")

    def write(self, blocks: Iterable[Block], ctx: TaskContext) -> list[Shard]:
        """Write the shards of a task to a temporary folder of this attempt; then move them.

        Raises:
            InvalidRequest: an id is not an integer or not in the vocabulary, or a mask has another
                length than its ids or values other than 0 and 1.
            OSError: the disk is full, or fails.
        """
        attempt = self.folder / f".{uuid.uuid4().hex}.partial"
        attempt.mkdir()
        done = Checkpoint(Cursor(0))
        shards = Shards(self._job, ctx.task_idx, attempt, self._id_dtype, done, lambda: None)
        try:
            for block in blocks:
                shards.write(self._make_rows(BlockAccessor.for_block(block).to_arrow()))
            shards.finish()
            for shard in done.shards:
                for file in shard.files:
                    os.replace(attempt / file.name, self.folder / file.name)
        finally:
            shards.abandon()
            shutil.rmtree(attempt, ignore_errors=True)
        return done.shards

    def _make_rows(self, table: pa.Table) -> Rows:
        if self._mask_column is not None:
            table = table.filter(pc.is_valid(table.column(self._column)))
        column = table.column(self._column).drop_null()
        ids = pc.list_flatten(column).to_numpy()
        if len(ids) and ids.dtype.kind not in "iu":  # Also where one of them is null.
            raise InvalidRequest(
                "the column of ids must have integers without nulls", where=self._column
            )
        if len(ids) and not 0 <= ids.min() <= ids.max() < self._num_ids:
            raise InvalidRequest(f"the vocabulary has {self._num_ids} ids, 0 and on", where="ids")
        lengths = pc.list_value_length(column).to_numpy()
        offsets = offsets_from_lengths(lengths.astype(np.int64))
        count = len(lengths)
        rows = make_rows(ids.astype(np.int32, copy=False), offsets, np.arange(count), count, 0)
        if self._mask_column is not None:
            masks = table.column(self._mask_column)
            if pc.list_value_length(masks).to_pylist() != lengths.tolist():
                raise InvalidRequest(
                    "a mask must be as long as its row of ids", where="mask_column"
                )
            mask = pc.list_flatten(masks).to_numpy()
            if not np.isin(mask, (0, 1)).all():  # Also where one of them is null.
                raise InvalidRequest("a mask must consist of 0 and 1", where="mask_column")
            rows.mask = mask.astype(np.uint8)
        begin_id = NONE if self._job.begin_id is None else self._job.begin_id
        end_id = NONE if self._job.end_id is None else self._job.end_id
        add_begin_end_tokens(rows, begin_id, end_id, self._id_dtype)
        return rows

    def on_write_complete(self, write_result: WriteResult[list[Shard]]) -> None:
        """Write the manifest, and the index if the format has one index for all shards."""
        shards = sorted(
            (shard for written in write_result.write_returns for shard in written),
            key=lambda shard: shard.name,
        )
        if self._job.format == "mds":
            described = mds.describe_columns(self._id_dtype, self._job.has_mask)
            names = [shard.files[0] for shard in shards]
            files = [(file, mds.count_samples(self.folder / file.name)) for file in names]
            mds.write_index(self.folder, described, files)
        content = orjson.dumps(
            self._describe(shards), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
        )
        Store(self.folder).write(MANIFEST, content)

    def _describe(self, shards: list[Shard]) -> Mapping[str, Any]:
        """Make the manifest: those keys of `warptok corpus`'s manifest that apply to a data set."""
        options = self._job.options()
        return {
            "format": self._job.format,
            "id_type": np.dtype(self._id_dtype).name,
            "rows": sum(shard.rows for shard in shards),
            "tokens": sum(shard.tokens for shard in shards),
            "vocabulary": {"digest": self._job.vocabulary, "num_ids": self._num_ids},
            "options": {name: options[name] for name in MANIFEST_OPTIONS},
            "shards": [describe_shard(shard) for shard in shards],
            "versions": {"warptok": package_version()},
        }
