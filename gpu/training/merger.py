"""Merges pairs of tokens in device memory: a `vocabularies.training.merger.Merger` for the GPU.

For each merge, kernels read the whole corpus, find the occurrences of the pair and write the
tokens that remain (cuda/training/merge.cuh). The counts of pairs are a matrix, indexed by the left
and the right id (cuda/training/pair_table.cuh). Merges, their figures and saved states equal those
of CpuMerger.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.kernels.catalog import num_blocks
from gpu.kernels.job import TRAIN_JOB, constant
from gpu.runtime.device import Device
from gpu.training.device_corpus import (
    MAX_IDS,
    Allocation,
    Arrays,
    build_corpus_arrays,
    check_memory,
    compute_corpus_sizes,
    compute_pair_sizes,
)
from vocabularies.errors import VocabularyError
from vocabularies.training.layout import Layout
from vocabularies.training.merger import Ids, MakeMerger, Merge
from vocabularies.training.options import TrainingOptions
from vocabularies.training.pair_table import UNIT
from vocabularies.training.segmentation import BARRIER, GONE

NO_MERGE = constant("NO_MERGE")
REPORT_WORDS = constant("REPORT_WORDS")
NUM_TOKENS = constant("REPORT_NUM_TOKENS")
MERGED = constant("REPORT_MERGED")
BEST = slice(constant("REPORT_LEFT"), constant("REPORT_LEFT") + len(Merge._fields))
"""The words of a report that hold the best pair and its figures."""

WORD_MASK = (1 << 64) - 1
PLACED_AT_ONCE = 1 << 20
"""Tokens whose places the host computes at a time; bounds the memory for it."""


def merger_on(device: Device, memory_share: float = 1.0) -> MakeMerger:
    """Return the `make_merger` argument of `vocabularies.training.train.train` for a device.

    The merger may use up to the share `memory_share` of the device's free memory; see DeviceMerger.
    """

    def make(
        layout: Layout, options: TrainingOptions, first: Ids, lengths: list[int]
    ) -> DeviceMerger:
        return DeviceMerger(device, layout, options, first, lengths, memory_share=memory_share)

    return make


class DeviceMerger:
    """A Merger (`vocabularies.training.merger`) for a corpus in device memory."""

    _corpus: Allocation | None
    _pairs: Allocation | None

    def __init__(
        self,
        device: Device,
        layout: Layout,
        options: TrainingOptions,
        first: Ids,
        lengths: list[int],
        tile_threads: int = constant("BLOCK"),
        memory_share: float = 1.0,
    ) -> None:
        """Copy the corpus to the device and count its pairs.

        Args:
            device: holds the corpus and runs the kernels.
            layout: the corpus.
            options: how it is learnt from.
            first: int16 or int32[slots], `Segmentation.first`.
            lengths: letters of each id so far.
            tile_threads: threads of a block that have tokens; fewer than all only in tests.
            memory_share: the share of the device's free memory that may be used, 0 to 1.

        Raises:
            VocabularyError: there are more ids than 16 bits have, or `build_corpus_arrays` refuses
                the corpus.
            OutOfMemory: the device has too little memory; the message says how much is needed.
        """
        if options.vocabulary_size > MAX_IDS:
            message = f"is {options.vocabulary_size}; a GPU can train at most {MAX_IDS}"
            raise VocabularyError.at("vocabulary_size", message)
        arrays = build_corpus_arrays(layout, options, first)
        self._has_places = "places" in arrays
        self._has_spans = "level_steps" in arrays
        self._tile_tokens = tile_threads * constant("TRAIN_ITEMS")
        capacity = max(options.vocabulary_size, len(lengths))
        num_tiles = -(-len(arrays["tokens"][0]) // self._tile_tokens)
        corpus_sizes = compute_corpus_sizes(arrays, num_tiles)
        pair_sizes = compute_pair_sizes(capacity, self._has_spans, self._has_places)
        check_memory(int(device.info.free_bytes * memory_share), corpus_sizes, pair_sizes)
        self._device = device
        self._processors = device.info.processors
        self._num_slots = len(first)
        self._first_dtype = first.dtype
        self._lengths = lengths
        self._num_initial_tokens = _count_tokens(arrays)
        self._stream = device.stream()
        self._pinned = device.allocate_pinned(TRAIN_JOB.itemsize + 8 * REPORT_WORDS)
        self._pinned[:] = 0
        self._job = self._pinned[: TRAIN_JOB.itemsize].view(TRAIN_JOB)[0]
        self._report = self._pinned[TRAIN_JOB.itemsize :].view(np.uint64)
        self._corpus = None
        self._pairs = None
        try:
            self._corpus = Allocation(device, corpus_sizes)
            self._copy_corpus(arrays, self._corpus)
            scoring = _scoring_fields(options)
            self._set_fields(num_slots=self._num_slots, tile_threads=tile_threads, **scoring)
            self._count_pairs(capacity)
        except BaseException:
            self.close()
            raise

    def _copy_corpus(self, arrays: Arrays, memory: Allocation) -> None:
        """Copy the arrays of a corpus to their fields and enter the addresses in the job."""
        for name, parts in arrays.items():
            place = memory.places[name]
            for array in parts:
                self._copy_in(place, array)
                place += array.nbytes
        self._stream.clear(memory.places["report"], 8 * REPORT_WORDS)
        num_levels = len(arrays["level_steps"][0]) if self._has_spans else 0
        self._set_fields(num_tokens=len(arrays["tokens"][0]), num_levels=num_levels)
        self._set_fields(**{name: at for name, at in memory.places.items() if name != "job"})

    def _count_pairs(self, capacity: int) -> None:
        """Replace the table of pairs by one with room for `capacity` ids and count all pairs."""
        if self._pairs is not None:
            pairs, self._pairs = self._pairs, None
            pairs.free()
        sizes = compute_pair_sizes(capacity, self._has_spans, self._has_places)
        self._pairs = Allocation(self._device, sizes)
        places = self._pairs.places
        self._stream.clear(self._pairs.begin, self._pairs.size)
        self._copy_in(places["lengths"], np.array(self._lengths, np.uint32))
        self._copy_in(places["row_is_stale"], np.ones(capacity, np.uint32))
        self._set_fields(capacity=capacity, merged=len(self._lengths) - 1, **places)
        self._copy_job()
        self._launch("count_pairs", self._num_tokens_and_barriers)
        self._find_best()

    @property
    def num_tokens(self) -> int:
        """The number of tokens now, each counted as often as its sequence."""
        return self._num_initial_tokens - int(self._report[MERGED])

    @property
    def first(self) -> Ids:
        """The id of the token that begins in each slot; see `Segmentation.first`."""
        ids = np.empty(self._num_tokens_and_barriers, np.uint16)
        self._stream.copy_out(ids.ctypes.data, int(self._job["tokens"]), ids.nbytes)
        self._stream.synchronize()
        lengths = np.ones(NO_MERGE + 1, np.int64)
        lengths[: len(self._lengths)] = self._lengths
        first = np.full(self._num_slots, GONE, self._first_dtype)
        end = 0
        for begin in range(0, len(ids), PLACED_AT_ONCE):
            part = ids[begin : begin + PLACED_AT_ONCE]
            ends = end + lengths[part].cumsum()
            first[ends - lengths[part]] = np.where(part == NO_MERGE, BARRIER, part.astype(np.int32))
            end = int(ends[-1])
        return first

    def best(self) -> Merge | None:
        """Return the pair with the highest score; None if no pair may be merged."""
        merge = Merge(*self._report[BEST].view(np.int64).tolist())
        return None if merge.left == NO_MERGE else merge

    def merge(self, merge: Merge, merged_id: int) -> None:
        """Replace every occurrence of the pair that `best` returned by `merged_id`."""
        capacity = int(self._job["capacity"])
        if merged_id >= capacity:
            self._count_pairs(_double_capacity(capacity))
        self._lengths.append(self._lengths[merge.left] + self._lengths[merge.right])
        self._set_fields(left=merge.left, right=merge.right, merged=merged_id)
        self._copy_job()
        num_tokens = self._num_tokens_and_barriers
        num_tiles = -(-num_tokens // self._tile_tokens)
        self._stream.clear(int(self._job["tile_states"]), 8 * (num_tiles + 1))
        if merge.left == merge.right:
            self._launch("find_repeats", num_tokens)
            self._launch("enter_repeats", 1)
        self._launch("merge_placed" if self._has_places else "merge_tokens", num_tokens)
        self._launch("update_pairs", merged_id + 1)
        self._find_best()
        self._swap_fields("tokens", "merged_tokens")
        if self._has_places:
            self._swap_fields("places", "merged_places")
        self._set_fields(num_tokens=int(self._report[NUM_TOKENS]))

    def _find_best(self) -> None:
        """Find the best pair on the device and wait for its report."""
        self._launch("best_of_rows", len(self._lengths))
        self._launch("best_pair", 1)
        report = self._report
        self._stream.copy_out(report.ctypes.data, int(self._job["report"]), report.nbytes)
        self._stream.synchronize()

    @property
    def _num_tokens_and_barriers(self) -> int:
        """The length of the field `tokens`."""
        return int(self._job["num_tokens"])

    def _set_fields(self, **fields: int) -> None:
        """Set fields of the host's copy of the job."""
        for name, value in fields.items():
            self._job[name] = value

    def _swap_fields(self, one: str, other: str) -> None:
        """Exchange two fields of the host's copy of the job."""
        self._set_fields(**{one: int(self._job[other]), other: int(self._job[one])})

    def _copy_in(self, place: int, array: NDArray[Any]) -> None:
        """Copy an array to a device address and wait for it."""
        self._stream.copy_in(place, array.ctypes.data, array.nbytes)
        self._stream.synchronize()

    def _copy_job(self) -> None:
        """Copy the job to the device, in the order of the stream."""
        assert self._corpus is not None
        self._stream.copy_in(self._corpus.begin, self._pinned.ctypes.data, TRAIN_JOB.itemsize)

    def _launch(self, kernel: str, size: int) -> None:
        """Run a kernel on the job, for `size` elements."""
        assert self._corpus is not None
        blocks = num_blocks(kernel, size, self._processors)
        self._stream.launch(kernel, blocks, self._corpus.begin)

    def close(self) -> None:
        """Free all memory of the device and the host; may be called twice."""
        for memory in (self._pairs, self._corpus):
            if memory is not None:
                memory.free()
        self._pairs = None
        self._corpus = None
        if len(self._pinned):
            self._device.free_pinned(self._pinned)
            self._pinned = self._pinned[:0]


def _count_tokens(arrays: Arrays) -> int:
    """Count the tokens of a corpus, each as often as its sequence."""
    is_token = arrays["tokens"][0] != NO_MERGE
    if "slot_counts" not in arrays:
        return int(np.count_nonzero(is_token))
    return int(arrays["slot_counts"][0][arrays["places"][0][is_token]].sum())


def _scoring_fields(options: TrainingOptions) -> dict[str, int]:
    """Return the fields of TrainJob by which pairs are scored."""
    rule, longest = options.rule, options.max_token_length
    return {
        "unit": UNIT,
        "motif_weight": rule.motif_weight,
        "penalty_weight": rule.penalty_weight,
        "binary": int(rule.binary),
        "lowest": rule.lowest & WORD_MASK,
        "min_frequency": max(1, options.min_frequency),
        "max_length": WORD_MASK if longest is None else longest,
    }


def _double_capacity(capacity: int) -> int:
    """Return twice the capacity, for a training whose compression needs more ids than its size.

    Raises:
        VocabularyError: the capacity is MAX_IDS already.
    """
    if capacity == MAX_IDS:
        message = f"the compression is not reached with {MAX_IDS} ids, the maximum on a GPU"
        raise VocabularyError.at("stop", message)
    return min(MAX_IDS, 2 * capacity)
