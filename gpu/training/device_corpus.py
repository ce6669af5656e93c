"""What learning a vocabulary lays into a device's memory: the corpus, and a table of pairs.

NumPy only, but for the one piece of memory at the end; knows no kernel.
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

__all__ = ["MAX_IDS", "Allocation", "Arrays", "check_room", "corpus_arrays", "fields_of_corpus"]
__all__ += ["fields_of_pairs"]

MAX_IDS = constant("NO_MERGE")
"""Tokens have 16 bits, and one of them is no token."""
MAX_SLOTS = (1 << 31) - 2
"""Slots of a corpus with spans or counts: places have 31 bits."""
READ_BEHIND = constant("TRAIN_TILE") + 32
"""Tokens behind the last one that kernels may read."""
Arrays = Mapping[str, Sequence[NDArray[Any]]]


def corpus_arrays(layout: Layout, options: TrainingOptions, first: Ids) -> Arrays:
    """A corpus by the fields of TrainJob, of which some are several arrays, one behind the other.

    2 bytes a token; where spans or counts say what an occurrence counts by, 4 more, 8 a slot for
    counts, and 12 a slot for each different weight of spans.

    Raises:
        VocabularyError: places do not fit into 31 bits, or what `span_scores` refuses.
    """
    scores, counts = span_scores(layout, options), layout.slot_counts
    levels = [] if scores is None else scores.levels
    stands = first != GONE
    is_new = bool(stands.all())
    tokens = first if is_new else first[stands]
    is_short = tokens.dtype == np.int16
    arrays = {"tokens": [tokens.view(np.uint16) if is_short else tokens.astype(np.uint16)]}
    if not levels and counts is None:
        return arrays
    if len(first) > MAX_SLOTS:
        message = f"{len(first)} letters and barriers; with motifs or counts a GPU has {MAX_SLOTS}"
        raise VocabularyError.at("corpus", message)
    places = np.arange(len(first), dtype=np.uint32) if is_new else np.flatnonzero(stands)
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


def fields_of_corpus(arrays: Arrays, num_tiles: int) -> dict[str, int]:
    """Bytes of the job, of the corpus, whose tokens lie there twice, and of what a merge needs."""
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


def fields_of_pairs(capacity: int, has_spans: bool, is_placed: bool) -> dict[str, int]:
    """Bytes of the pairs of so many ids: 8 for each pair, 24 with spans, and some for each id."""
    table = 8 * capacity * capacity
    num_sums = constant("SUMS_OF_PLACED") if is_placed else 1
    return {
        "frequencies": table,
        **({"bonuses": table, "penalties": table} if has_spans else {}),
        "lengths": 4 * capacity,
        "neighbours": 2 * 8 * capacity * num_sums,
        "row_is_stale": 4 * capacity,
        "row_scores": 8 * capacity,
        "row_rights": 4 * capacity,
    }


def check_room(room: int, corpus: Mapping[str, int], pairs: Mapping[str, int]) -> None:
    """Raises OutOfMemory, which says what is asked for, where there is not so much."""
    for_corpus, for_pairs = sum(corpus.values()), sum(pairs.values())
    if for_corpus + for_pairs > room:
        message = f"{for_corpus:,} bytes for the corpus and {for_pairs:,} for the pairs of ids"
        raise OutOfMemory(f"learning takes {message}; of the GPU's memory there are {room:,}")


class Allocation:
    """One piece of device memory.

    Attributes:
        begin, size: where it lies, and its bytes.
        places: where each field lies.

    Raises:
        OutOfMemory: there is not so much.
    """

    def __init__(self, device: Device, sizes: dict[str, int]) -> None:
        places, self.size = cut(sizes, 0)
        self._device, self.begin = device, device.allocate(self.size)
        self.places = {name: self.begin + place for name, place in places.items()}

    def free(self) -> None:
        """Give it back."""
        self._device.free(self.begin)
