"""Learning a vocabulary on a device: `vocabularies.training.merger.Merger` in device memory.

For each merge kernels read the whole corpus, find the occurrences of the pair and write what stays
(cuda/training/merge.cuh); the pairs are a table of all ids by all ids
(cuda/training/pair_table.cuh). The merges, their figures and the
states that a training is continued from are those of CpuMerger.
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
    check_room,
    corpus_arrays,
    fields_of_corpus,
    fields_of_pairs,
)
from vocabularies.errors import VocabularyError
from vocabularies.training.layout import Layout
from vocabularies.training.merger import Ids, MakeMerger, Merge
from vocabularies.training.options import TrainingOptions
from vocabularies.training.pair_table import UNIT
from vocabularies.training.segmentation import BARRIER, GONE

__all__ = ["DeviceMerger", "merger_on"]

NO_MERGE, REPORT_WORDS = constant("NO_MERGE"), constant("REPORT_WORDS")
NUM_TOKENS, MERGED = constant("REPORT_NUM_TOKENS"), constant("REPORT_MERGED")
BEST = slice(constant("REPORT_LEFT"), constant("REPORT_LEFT") + len(Merge._fields))
WORD_MASK = (1 << 64) - 1
PLACED_AT_ONCE = 1 << 20
DOUBLED = (("tokens", "merged_tokens"), ("places", "merged_places"))


def merger_on(device: Device, memory_share: float = 1.0) -> MakeMerger:
    """What `vocabularies.training.train.train` takes to learn on a device; see DeviceMerger."""

    def make(
        layout: Layout, options: TrainingOptions, first: Ids, lengths: list[int]
    ) -> DeviceMerger:
        return DeviceMerger(device, layout, options, first, lengths, memory_share=memory_share)

    return make


class DeviceMerger:
    """A corpus in device memory; see vocabularies.training.merger.Merger.

    Args:
        device: where it lies.
        layout, options: what is learnt from, and how.
        first: int16 or int32[slots], `Segmentation.first`.
        lengths: letters of each id so far.
        tile_threads: threads of a block that have tokens; fewer than all only in tests.
        memory_share: part of the device's free memory that may be taken.

    Raises:
        VocabularyError: more ids than tokens of 16 bits have, or what `corpus_arrays` refuses.
        OutOfMemory: the device has not so much memory; the message says how much is asked for.
    """

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
        if options.vocabulary_size > MAX_IDS:
            message = f"{options.vocabulary_size}; on a GPU {MAX_IDS} are possible"
            raise VocabularyError.at("vocabulary_size", message)
        arrays = corpus_arrays(layout, options, first)
        self._is_placed, self._has_spans = "places" in arrays, "level_steps" in arrays
        self._tile = tile_threads * constant("TRAIN_ITEMS")
        capacity = max(options.vocabulary_size, len(lengths))
        sizes = fields_of_corpus(arrays, -(-len(arrays["tokens"][0]) // self._tile))
        pairs = fields_of_pairs(capacity, self._has_spans, self._is_placed)
        check_room(int(device.info.free_bytes * memory_share), sizes, pairs)
        self._device, self._processors = device, device.info.processors
        self._num_slots, self._dtype, self._lengths = len(first), first.dtype, lengths
        self._num_first = _count(arrays)
        self._stream = device.stream()
        self._pinned = device.allocate_pinned(TRAIN_JOB.itemsize + 8 * REPORT_WORDS)
        self._pinned[:] = 0
        self._job = self._pinned[: TRAIN_JOB.itemsize].view(TRAIN_JOB)[0]
        self._report = self._pinned[TRAIN_JOB.itemsize :].view(np.uint64)
        self._corpus = self._pairs = None
        try:
            self._corpus = Allocation(device, sizes)
            self._put_corpus(arrays, self._corpus)
            self._set(num_slots=self._num_slots, tile_threads=tile_threads, **_rule(options))
            self._count_pairs(capacity)
        except BaseException:
            self.close()
            raise

    _corpus: Allocation | None
    _pairs: Allocation | None

    def _put_corpus(self, arrays: Arrays, memory: Allocation) -> None:
        for name, parts in arrays.items():
            place = memory.places[name]
            for array in parts:
                self._copy_in(place, array)
                place += array.nbytes
        self._stream.clear(memory.places["report"], 8 * REPORT_WORDS)
        num_levels = len(arrays["level_steps"][0]) if self._has_spans else 0
        self._set(num_tokens=len(arrays["tokens"][0]), num_levels=num_levels)
        self._set(**{name: at for name, at in memory.places.items() if name != "job"})

    def _count_pairs(self, capacity: int) -> None:
        """Count all pairs into a new table for so many ids."""
        if self._pairs is not None:
            pairs, self._pairs = self._pairs, None
            pairs.free()
        sizes = fields_of_pairs(capacity, self._has_spans, self._is_placed)
        self._pairs = Allocation(self._device, sizes)
        places = self._pairs.places
        self._stream.clear(self._pairs.begin, self._pairs.size)
        self._copy_in(places["lengths"], np.array(self._lengths, np.uint32))
        self._copy_in(places["row_is_stale"], np.ones(capacity, np.uint32))
        self._set(capacity=capacity, merged=len(self._lengths) - 1, **places)
        self._put_job()
        self._launch("count_pairs", self._num_places)
        self._find_best()

    @property
    def num_tokens(self) -> int:
        """Tokens now, each as often as its sequence counts."""
        return self._num_first - int(self._report[MERGED])

    @property
    def first(self) -> Ids:
        """`Segmentation.first`: each id where its token begins."""
        ids = np.empty(self._num_places, np.uint16)
        self._stream.copy_out(ids.ctypes.data, int(self._job["tokens"]), ids.nbytes)
        self._stream.synchronize()
        lengths = np.ones(NO_MERGE + 1, np.int64)
        lengths[: len(self._lengths)] = self._lengths
        first, end = np.full(self._num_slots, GONE, self._dtype), 0
        # Tokens are as many as letters at first, and a place has eight bytes.
        for begin in range(0, len(ids), PLACED_AT_ONCE):
            part = ids[begin : begin + PLACED_AT_ONCE]
            ends = end + lengths[part].cumsum()
            first[ends - lengths[part]] = np.where(part == NO_MERGE, BARRIER, part.astype(np.int32))
            end = int(ends[-1])
        return first

    def best(self) -> Merge | None:
        """The pair of the highest score."""
        merge = Merge(*self._report[BEST].view(np.int64).tolist())
        return None if merge.left == NO_MERGE else merge

    def merge(self, merge: Merge, merged_id: int) -> None:
        """Merge the pair that `best` has just given."""
        capacity = int(self._job["capacity"])
        if merged_id >= capacity:
            self._count_pairs(_larger(capacity))
        self._lengths.append(self._lengths[merge.left] + self._lengths[merge.right])
        self._set(left=merge.left, right=merge.right, merged=merged_id)
        self._put_job()
        size = self._num_places
        self._stream.clear(int(self._job["tile_states"]), 8 * (-(-size // self._tile) + 1))
        if merge.left == merge.right:
            self._launch("find_repeats", size)
            self._launch("enter_repeats", 1)
        self._launch("merge_placed" if self._is_placed else "merge_tokens", size)
        self._launch("update_pairs", merged_id + 1)
        self._find_best()
        turned = {to: int(self._job[name]) for pair in DOUBLED for name, to in (pair, pair[::-1])}
        self._set(num_tokens=int(self._report[NUM_TOKENS]), **turned)

    def _find_best(self) -> None:
        self._launch("best_of_rows", len(self._lengths))
        self._launch("best_pair", 1)
        report = self._report
        self._stream.copy_out(report.ctypes.data, int(self._job["report"]), report.nbytes)
        self._stream.synchronize()

    @property
    def _num_places(self) -> int:
        """Tokens and barriers."""
        return int(self._job["num_tokens"])

    def _set(self, **fields: int) -> None:
        for name, value in fields.items():
            self._job[name] = value

    def _copy_in(self, place: int, array: NDArray[Any]) -> None:
        """Copy an array; it may be forgotten at once."""
        self._stream.copy_in(place, array.ctypes.data, array.nbytes)
        self._stream.synchronize()

    def _put_job(self) -> None:
        assert self._corpus is not None
        self._stream.copy_in(self._corpus.begin, self._pinned.ctypes.data, TRAIN_JOB.itemsize)

    def _launch(self, kernel: str, size: int) -> None:
        assert self._corpus is not None
        blocks = num_blocks(kernel, size, self._processors)
        self._stream.launch(kernel, blocks, self._corpus.begin)

    def close(self) -> None:
        """Give all memory back."""
        for memory in (self._pairs, self._corpus):
            if memory is not None:
                memory.free()
        self._pairs = self._corpus = None
        if len(self._pinned):
            self._device.free_pinned(self._pinned)
            self._pinned = self._pinned[:0]


def _count(arrays: Arrays) -> int:
    """Tokens, each as often as its sequence counts."""
    is_token = arrays["tokens"][0] != NO_MERGE
    if "slot_counts" not in arrays:
        return int(np.count_nonzero(is_token))
    return int(arrays["slot_counts"][0][arrays["places"][0][is_token]].sum())


def _rule(options: TrainingOptions) -> dict[str, int]:
    """How pairs are scored, by the fields of TrainJob."""
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


def _larger(capacity: int) -> int:
    """Room for more ids than were asked for, where a compression is to be reached as well."""
    if capacity == MAX_IDS:
        message = f"{MAX_IDS} ids, and the compression is not reached; a GPU has room for no more"
        raise VocabularyError.at("stop", message)
    return min(MAX_IDS, 2 * capacity)
