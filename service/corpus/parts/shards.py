"""Cuts rows into shards, and saves a checkpoint after each shard."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from service.corpus.documents import Rows
from service.corpus.job import Job
from service.corpus.parts.checkpoint import Checkpoint, Cursor, Shard
from service.corpus.writing.formats import FORMATS
from service.corpus.writing.shard_files import ShardPlan, ShardWriter
from service.corpus.writing.shuffled import ShuffledWriter

MAX_SHARDS = 1 << 32
SEED_STEP = 0x2545F4914F6CDD1D  # Odd, so that each shard of a seed has another one.


class Shards:
    """Writes the rows of one part as shards.

    Args:
        job: the job.
        part: the number of the part.
        folder: the folder of the shards.
        id_dtype: the dtype of the ids.
        checkpoint: the progress, to which each shard is added.
        save: saves the checkpoint.

    Attributes:
        cursor: the place of the first document whose ids are not all written.
    """

    def __init__(
        self,
        job: Job,
        part: int,
        folder: Path,
        id_dtype: type[np.integer[Any]],
        checkpoint: Checkpoint,
        save: Callable[[], None],
    ) -> None:
        self.cursor = checkpoint.cursor
        self._job = job
        self._part = part
        self._folder = folder
        self._id_dtype = id_dtype
        self._checkpoint = checkpoint
        self._save = save
        self._writer: ShardWriter | None = None
        self._num_documents = self._num_rows = self._num_tokens = 0

    def write(self, rows: Rows) -> None:
        """Write rows; a shard ends before a row that would exceed its size.

        Raises:
            OSError: the disk is full, or fails.
        """
        begin = 0
        while begin < len(rows):
            room = self._job.shard_tokens - self._num_tokens
            most = int(rows.offsets[begin]) + room
            end = int(np.searchsorted(rows.offsets, most, side="right")) - 1
            if end <= begin:
                if self._num_rows:
                    self.finish()
                    continue
                end = begin + 1  # One row alone is too long.
            self._write(rows if (begin, end) == (0, len(rows)) else rows.part(begin, end))
            begin = end

    def _write(self, rows: Rows) -> None:
        if self._writer is None:
            self._writer = self._open()
        self._writer.write(rows)
        self._num_rows += len(rows)
        self._num_documents += int(rows.num_documents[-1])
        self._num_tokens += len(rows.ids)
        self.cursor = Cursor(
            int(rows.next_inputs[-1]), int(rows.next_places[-1]), int(rows.next_skips[-1])
        )

    @property
    def name(self) -> str:
        """The name of the current shard."""
        number = len(self._checkpoint.shards)
        return f"{self._job.prefix}_{self._part:05d}_{number:05d}"

    def _open(self) -> ShardWriter:
        job = self._job
        plan = ShardPlan(
            self._folder,
            self.name,
            self._id_dtype,
            job.is_digested,
            has_mask=job.has_mask,
            vocabulary=job.vocabulary,
        )
        writer = FORMATS[job.format].make_writer(plan)
        if job.shuffle is None:
            return writer
        number = self._part * MAX_SHARDS + len(self._checkpoint.shards)
        return ShuffledWriter(plan, writer, job.shuffle + number * SEED_STEP)

    def finish(self) -> None:
        """End the current shard, if there is one, and save a checkpoint.

        Raises:
            OSError: the disk is full, or fails.
        """
        if self._writer is None:
            return
        files = self._writer.finish()
        self._writer = None
        shard = Shard(self.name, self._num_documents, self._num_rows, self._num_tokens, files)
        self._checkpoint.shards.append(shard)
        self._checkpoint.cursor = self.cursor
        self._num_documents = self._num_rows = self._num_tokens = 0
        self._save()

    def abandon(self) -> None:
        """Remove the current shard."""
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None
