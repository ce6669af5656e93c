"""How a batch is encoded: decided once, by its size, its vocabulary and what its rows ask for.

    letters     every letter is an id: looked up where the text lies
    fast path   a small batch that asks for ids alone: one launch, in one call of C++
    small       a small batch in a workspace of its own: one launch, or several as one recording
    chunks      all others, and what the ways above leave: several chunks in flight

The kernels of a batch, in this order:

    take in       to the device, hard bits where texts begin, rows that are not UTF-8 noted
    special       hard bits around special tokens
    pretokenize   a start bit for every pretoken
    cut           start bits inside pretokens, at borders of their own encoding
    look up       the id of every piece that is a token; lists of the others
    merge         the ids of the others
    compact       ids one after another, and where each row's begin
    frame         begin and end tokens, truncation, spans
    answer        to host memory
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gpu.batch.resources import Resources
from gpu.batch.row_options import NOTHING_ADDED, RowOptions, row_options
from gpu.host.copy_pool import Copy, CopyPool
from gpu.kernels.families import COMPOSED
from gpu.large.encode import count_large, encode_large
from gpu.large.pipeline import Pipeline
from gpu.small import one_launch
from gpu.small.call import encode_small
from gpu.small.one_launch import is_fast, kernel_for, size_of
from gpu.small.zero_copy_letters import fetch_batch
from gpu.text.nfc_check import widen_spans
from gpu.vocabulary.cache import Resident
from vocabularies.batch.batch import Batch, Encoded, RowError
from vocabularies.batch.string_join import Memory
from vocabularies.model.vocabulary import Vocabulary

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]


class Joining:
    """The copy that joins the strings of a batch, which is complete behind the `with` block.

    Chunks of them are on their way already meanwhile. None: there is nothing to wait for.
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


@dataclass(frozen=True, slots=True)
class Plan:
    """Which ways of the above a batch is tried on, in their order; chunks come last.

    Attributes:
        letters: its letters are looked up where they lie.
        fast: it is one call of C++.
        small: it goes through a workspace of its own.
        kernel: does all of it in one launch; "" where there is none.
        validate: rows may not be UTF-8, and must be.
    """

    letters: bool
    fast: bool
    small: bool
    kernel: str
    validate: bool


def plan_of(resources: Resources, resident: Resident, batch: Batch, options: RowOptions) -> Plan:
    """The plan for a batch."""
    letters = bool(resident.family.fetch) and options.is_content
    validate = not (batch.has_texts or resident.family.takes_bytes)
    num_bytes, num_rows = len(batch.data), batch.num_rows
    if options.spans is not None or not resources.workspaces.is_small(num_bytes, num_rows):
        return Plan(letters, fast=False, small=False, kernel="", validate=validate)
    size = size_of(num_bytes, num_rows)
    kernel = "" if options.augmented else kernel_for(resources, resident, size)
    fast = is_fast(kernel, batch, options)
    return Plan(letters, fast, small=True, kernel=kernel, validate=validate)


def encode(pipeline: Pipeline, vocabulary: Vocabulary, batch: Batch) -> Encoded:
    """As `GpuEngine.encode`."""
    batch.check_id_dtype(len(vocabulary.tokens))
    resources = pipeline.resources
    with (
        resources.residents.using(vocabulary) as resident,
        Joining(batch, resources.host_memory, resources.staging) as copy,
    ):
        options = row_options(vocabulary, batch, resident.family)
        plan = plan_of(resources, resident, batch, options)
        if copy is not None and (plan.small or plan.letters):
            copy.wait(len(batch.data))
        encoded = None
        if plan.letters:
            encoded = fetch_batch(resources, resident, batch)
        if encoded is None and plan.small:
            encoded = _encode_small(resources, vocabulary, resident, batch, options, plan)
        if encoded is None:
            encoded = encode_large(
                pipeline, vocabulary, resident, batch, options, validate=plan.validate, copy=copy
            )
        if encoded.spans is not None and resident.family is COMPOSED:
            widen_spans(encoded.spans, encoded.offsets, batch)
        return encoded


def count(
    pipeline: Pipeline, vocabulary: Vocabulary, batch: Batch
) -> tuple[Int64s, dict[int, RowError]]:
    """As `GpuEngine.count`."""
    resources = pipeline.resources
    with (
        resources.residents.using(vocabulary) as resident,
        Joining(batch, resources.host_memory, resources.staging) as copy,
    ):
        options = row_options(vocabulary, batch, resident.family)
        plan = plan_of(resources, resident, batch, options)
        if plan.small:  # One launch, ids and all, takes less than many.
            if copy is not None:
                copy.wait(len(batch.data))
            encoded = _encode_small(resources, vocabulary, resident, batch, options, plan)
            if encoded is not None:
                return np.diff(encoded.offsets), encoded.errors
        return count_large(
            pipeline, vocabulary, resident, batch, options, validate=plan.validate, copy=copy
        )


def encode_ids(
    pipeline: Pipeline, vocabulary: Vocabulary, data: Bytes, offsets: Int64s
) -> tuple[NDArray[np.int32], Int64s]:
    """As `GpuEngine.encode_ids`."""
    resources = pipeline.resources
    answer = one_launch.encode_ids(resources, vocabulary.digest, data, offsets)
    if isinstance(answer, tuple):
        return answer
    batch = Batch(data=data, offsets=offsets)
    with resources.residents.using(vocabulary) as resident:
        # Bytes are taken as they are.
        plan = replace(plan_of(resources, resident, batch, NOTHING_ADDED), validate=False)
        if answer is not None:  # The fast path was tried: it says what to begin with.
            plan = replace(plan, fast=False, small=True, kernel=answer)
        encoded = None
        if plan.letters:
            encoded = fetch_batch(resources, resident, batch)
        if encoded is None and plan.small:
            encoded = _encode_small(resources, vocabulary, resident, batch, NOTHING_ADDED, plan)
        if encoded is None:
            encoded = encode_large(
                pipeline, vocabulary, resident, batch, NOTHING_ADDED, validate=False
            )
        return encoded.ids.astype(np.int32, copy=False), encoded.offsets


def _encode_small(
    resources: Resources,
    vocabulary: Vocabulary,
    resident: Resident,
    batch: Batch,
    options: RowOptions,
    plan: Plan,
) -> Encoded | None:
    """The answer to a small batch; None: no workspace fits, and smaller chunks may."""
    kernel, validate = plan.kernel, plan.validate
    if plan.fast:
        answer = one_launch.encode_batch(resources, resident, kernel, batch, options, validate)
        if isinstance(answer, Encoded):
            return answer
        kernel = answer
    return encode_small(resources, vocabulary, resident, batch, options, kernel, validate=validate)
