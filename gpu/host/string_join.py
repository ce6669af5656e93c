"""Strings that are joined in pinned memory while chunks of them are on their way already."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu.host.copy_pool import Copy, CopyPool
from vocabularies.batch.batch import Batch
from vocabularies.batch.string_join import Memory

Bytes = NDArray[np.uint8]


class Joining:
    """The copy that joins the strings of a batch, which is complete behind the `with` block.

    None: there is nothing to wait for.
    """

    __slots__ = ("_batch", "_copy", "_memory", "_staging")

    def __init__(self, batch: Batch, memory: Memory, staging: CopyPool) -> None:
        self._batch, self._memory, self._staging = batch, memory, staging
        self._copy: Copy | None = None

    def __enter__(self) -> Copy | None:
        self._batch.join_in(self._memory, self._begin)
        return self._copy

    def _begin(self, texts: tuple[str, ...], offsets: NDArray[np.int64], target: Bytes) -> None:
        self._copy = self._staging.start_gather(texts, offsets, target)

    def __exit__(self, *_: object) -> None:
        if self._copy is not None:
            self._copy.wait(len(self._batch.data))
