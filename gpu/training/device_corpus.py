"""Lays out the device memory of a training: the corpus and a table of pairs.

Sizes and arrays are made with NumPy; only `Allocation` uses a device. No kernel is launched here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.errors import OutOfMemory
from gpu.kernels.job import TRAIN_JOB, constant
from gpu.memory.workspace_layout import cut
from gpu.runtime.device import Device
from vocabularies.errors import VocabularyError
from vocabularies.training.layout import Layout
from vocabularies.training.merger import Ids, span_scores
from vocabularies.training.options import TrainingOptions
from vocabularies.training.segmentation import GONE

MAX_IDS = constant("NO_MERGE")
"""The largest number of ids: tokens have 16 bits, and NO_MERGE is not an id."""

MAX_SLOTS = (1 << 31) - 2
"""The largest number of slots of a corpus with spans or counts: places have 31 bits."""

READ_BEHIND = constant("TRAIN_TILE") + 32
"""Tokens after the last one that kernels may read."""

Arrays = Mapping[str, Sequence[NDArray[Any]]]
"""Fields of TrainJob by name; the arrays of a field lie one after the other on the device."""


def build_corpus_arrays(layout: Layout, options: TrainingOptions, first: Ids) -> Arrays:
    """Build the arrays of a corpus, by the fields of TrainJob.

    The arrays need 2 bytes for each token. If there are spans or counts, they need 4 more bytes for
    each token, 8 bytes for each slot for counts, and 12 bytes for each slot and each different
    weight of spans.

    Args:
        layout: the corpus.
        options: the options of the training.
        first: int16 or int32[slots], `Segmentation.first`.

    Raises:
        VocabularyError: places do not fit into 31 bits, or `span_scores` refuses the weights.
    """
    scores, counts = span_scores(layout, options), layout.slot_counts
    levels = [] if scores is None else scores.levels
    has_token = first != GONE
    is_full = bool(has_token.all())
    tokens = first if is_full else first[has_token]
    is_short = tokens.dtype == np.int16
    arrays = {"tokens": [tokens.view(np.uint16) if is_short else tokens.astype(np.uint16)]}
    if not levels and counts is None:
        return arrays
    if len(first) > MAX_SLOTS:
        message = f"has {len(first)} letters and barriers; a GPU can train on {MAX_SLOTS}"
        raise VocabularyError.at("corpus", message)
    places = np.arange(len(first), dtype=np.uint32) if is_full else np.flatnonzero(has_token)
    arrays["places"] = [places.astype(np.uint32, copy=False)]
    if counts is not None:
        arrays["slot_counts"] = [counts]
    if levels:
        arrays["span_tables"] = [
            np.ascontiguousarray(table, np.int32)
            for level in levels
            for table in (level.reach, level.next_cut, level.last_cut)
        ]
        arrays["level_steps"] = [np.array([level.step for level in levels], np.uint64)]
    return arrays


def compute_corpus_sizes(arrays: Arrays, num_tiles: int) -> dict[str, int]:
    """Compute the bytes of each field for the job, the corpus and the scratch of a merge.

    There are two copies of tokens and places: before and after a merge.
    """
    sizes = {name: sum(array.nbytes for array in parts) for name, parts in arrays.items()}
    sizes["tokens"] += 2 * READ_BEHIND
    merged = {f"merged_{name}": sizes[name] for name in ("tokens", "places") if name in sizes}
    return {
        "job": TRAIN_JOB.itemsize,
        "report": 8 * constant("REPORT_WORDS"),
        **sizes,
        **merged,
        "run_begins": 8 * num_tiles,
        "tile_states": 8 * (num_tiles + 1),
    }


def compute_pair_sizes(capacity: int, has_spans: bool, has_places: bool) -> dict[str, int]:
    """Compute the bytes of each field of the table of pairs.

    Args:
        capacity: ids that the table has room for; a pair takes 8 bytes, 24 with spans.
        has_spans: whether pairs have bonuses and penalties.
        has_places: whether tokens have places, so that neighbours have several sums each.
    """
    table = 8 * capacity * capacity
    num_sums = constant("SUMS_OF_PLACED") if has_places else 1
    span_tables = {"bonuses": table, "penalties": table} if has_spans else {}
    return {
        "frequencies": table,
        **span_tables,
        "lengths": 4 * capacity,
        "neighbours": 2 * 8 * capacity * num_sums,
        "row_is_stale": 4 * capacity,
        "row_scores": 8 * capacity,
        "row_rights": 4 * capacity,
    }


def check_memory(free_bytes: int, corpus: Mapping[str, int], pairs: Mapping[str, int]) -> None:
    """Check that the fields of a corpus and of its pairs, in bytes, fit into free memory.

    Raises:
        OutOfMemory: they do not fit; the message says how much memory they need.
    """
    corpus_bytes, pair_bytes = sum(corpus.values()), sum(pairs.values())
    if corpus_bytes + pair_bytes > free_bytes:
        message = f"{corpus_bytes:,} bytes for the corpus and {pair_bytes:,} for the pairs of ids"
        raise OutOfMemory(f"training needs {message}; the GPU has {free_bytes:,} bytes free")


class Allocation:
    """Owns one block of device memory that is divided into fields.

    Attributes:
        begin: address of the block.
        size: its bytes.
        places: address of each field.
    """

    def __init__(self, device: Device, sizes: dict[str, int]) -> None:
        """Allocate a block for fields of the given sizes in bytes.

        Raises:
            OutOfMemory: the device has too little memory.
        """
        places, self.size = cut(sizes, 0)
        self._device = device
        self.begin = device.allocate(self.size)
        self.places = {name: self.begin + place for name, place in places.items()}

    def free(self) -> None:
        """Free the block."""
        self._device.free(self.begin)
