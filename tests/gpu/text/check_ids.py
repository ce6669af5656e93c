"""Checks the ids of the emulated device against those of the reference."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from gpu.batch.transfer import fetch, launch, pack_rows, status_of
from gpu.engine import GpuEngine
from gpu.kernels.families import encode_kernels
from gpu.kernels.job import STATUS
from tests.support.emulation.device import EmulatedDevice
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference.tokenizer import encode


@contextmanager
def engine() -> Iterator[GpuEngine]:
    """Make an engine on the emulated device, and close it at the end."""
    made = GpuEngine(EmulatedDevice(), 1 << 27)
    try:
        yield made
    finally:
        made.close()


def check_pieces(made: GpuEngine, vocabulary: Vocabulary, texts: list[str]) -> None:
    """Check that every text, which is one piece, has the ids of the reference."""
    data = np.frombuffer("".join(texts).encode(), np.uint8)
    offsets = np.cumsum([0, *(len(text.encode()) for text in texts)]).astype(np.int64)
    ids, ends = made.encode_ids(vocabulary, data, offsets)
    for i, text in enumerate(texts):
        assert ids[ends[i] : ends[i + 1]].tolist() == encode(vocabulary, text).ids, text


@dataclass
class Cut:
    """The numbers of long pieces, of those that were merged whole, and of the bytes of these."""

    pieces: int
    whole: int
    whole_bytes: int


def check_long_pieces(vocabulary: Vocabulary, texts: list[str]) -> Cut:
    """Check that every text, which is one piece, has the ids of the reference."""
    made = GpuEngine(EmulatedDevice(), 1 << 27)
    data = np.frombuffer("".join(texts).encode(), np.uint8)
    offsets = np.cumsum([0, *(len(text.encode()) for text in texts)]).astype(np.int64)
    with (
        made.resources.residents.using(vocabulary) as resident,
        made.resources.workspaces.lend(len(data), len(texts)) as workspace,
    ):
        pack_rows(workspace, resident, data, offsets, made.resources.processors)
        launch(
            workspace,
            encode_kernels(resident.family, num_rounds=resident.num_rounds),
            made.resources.processors,
        )
        ids = fetch(workspace, "ids", np.int32, int(status_of(workspace)[STATUS["NUM_IDS"]]))
        ends = fetch(workspace, "id_offsets", np.int64, len(offsets))
        counts = fetch(workspace, "window_counts", np.uint64, 4).tolist()
    made.close()
    for i, text in enumerate(texts):
        assert ids[ends[i] : ends[i + 1]].tolist() == encode(vocabulary, text).ids, text[:200]
    whole_bytes, whole = counts[1] & (1 << 40) - 1, counts[1] >> 40
    return Cut(counts[0] >> 40, whole, whole_bytes)
