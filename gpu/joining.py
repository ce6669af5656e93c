"""Strings that are joined in pinned memory while chunks of them are on their way already."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from gpu.staging import Copy, Staging
from vocabularies.batch import Batch
from vocabularies.text_joining import Memory

__all__ = ["joining"]

Bytes = NDArray[np.uint8]


@contextmanager
def joining(batch: Batch, memory: Memory, staging: Staging) -> Iterator[Copy | None]:
    """The copy that joins the strings of a batch, which is complete behind the `with` block.

    None: there is nothing to wait for.
    """
    copies: list[Copy] = []

    def begin(texts: tuple[str, ...], offsets: NDArray[np.int64], target: Bytes) -> None:
        copies.append(staging.start_gather(texts, offsets, target))

    batch.join_in(memory, begin if staging.gathers else None)
    try:
        yield copies[0] if copies else None
    finally:
        for copy in copies:
            copy.wait(len(batch.data))
