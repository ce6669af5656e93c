"""Joins work items of one vocabulary and operation into a batch, and splits the batch's output.

Its functions run on the engine's thread, or on the event loop for a tiny batch. Knows no HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from time import perf_counter
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from service.batching.work import (
    AnyResult,
    AnyWork,
    CountWork,
    DecodeWork,
    EncodeWork,
    IdRows,
    Output,
    Result,
    SharedWork,
    TextWork,
)
from service.engines.base import Codec, Counted, Decoded, SharedEncoded
from service.engines.fault_isolation import (
    count_isolated,
    decode_isolated,
    encode_failed,
    reraise_unless_failure,
)
from service.runtime.memory_pool import Take
from vocabularies.batch.batch import Batch, Encoded, EncodeOptions

Works = Sequence[AnyWork]
PlaceIds = Callable[[NDArray[np.integer[Any]]], NDArray[np.integer[Any]]]


@dataclass(frozen=True, slots=True)
class BatchResults:
    """The results of a batch.

    Attributes:
        results: the rows of each work item, in order.
        seconds: the time that the engine took.
    """

    results: Sequence[AnyResult]
    seconds: float


def run_works(engine: Codec, works: Works, place_ids: PlaceIds | None = None) -> BatchResults:
    """Compute work items of one vocabulary and operation as one batch.

    Args:
        engine: computes the batch.
        works: at least one work item, all of one class.
        place_ids: copies ids into memory that front ends read; None: they may lie anywhere.
    """
    begin = perf_counter()
    results: list[Any]
    match works[0]:
        case EncodeWork():
            results = _encode(engine, cast(Sequence[EncodeWork], works), place_ids)
        case CountWork(vocabulary=vocabulary):
            batch = _cancellable_batch(cast(Sequence[CountWork], works))
            results = split_counted(works, count_isolated(engine, vocabulary, batch))
        case DecodeWork():
            results = _decode(engine, cast(Sequence[DecodeWork], works))
        case SharedWork():
            results = [
                _encode_shared(engine.name, work) for work in cast(Sequence[SharedWork], works)
            ]
        case _:
            raise AssertionError(f"no engine has the operation {works[0].operation}")
    return BatchResults(results, perf_counter() - begin)


def _encode(
    engine: Codec, works: Sequence[EncodeWork], place_ids: PlaceIds | None
) -> list[Result[Encoded]]:
    vocabulary = works[0].vocabulary
    batch = _cancellable_batch(works)
    try:
        encoded = engine.encode(vocabulary, batch)
    except BaseException as error:
        reraise_unless_failure(error)
        encoded = encode_failed(engine, vocabulary, batch, error)
    if place_ids is not None:
        encoded.ids = place_ids(encoded.ids)
    return split_encoded(works, encoded)


def _encode_shared(engine: str, work: SharedWork) -> Result[SharedEncoded]:
    """Encode the texts of one request in shared memory, which are many bytes even alone."""
    offsets = work.device.encode_shared(work.vocabulary, work.rows)
    num_ids = 0 if offsets is None else int(offsets[-1])
    return Result(0, len(work.rows), SharedEncoded(offsets, engine=engine), num_ids)


def _decode(engine: Codec, works: Sequence[DecodeWork]) -> list[Result[Decoded]]:
    """Decode the flat arrays of a single request as they are, or a list of all requests' rows."""
    num_ids = sum(work.num_ids for work in works)
    vocabulary = works[0].vocabulary
    rows = works[0].rows
    skip = works[0].skip_special_tokens
    if len(works) == 1 and isinstance(rows, IdRows):
        try:
            decoded = engine.decode(vocabulary, rows.ids.astype(np.int64), rows.offsets, skip)
            return split_decoded(works, decoded, num_ids)
        except BaseException as error:
            reraise_unless_failure(error)
    decoded = decode_isolated(engine, vocabulary, join_id_rows(works), skip)
    return split_decoded(works, decoded, num_ids)


def _cancellable_batch(works: Sequence[TextWork[Any]]) -> Batch:
    """Make a batch of all texts that an engine abandons once no request waits for it any more."""
    futures = [work.future for work in works if work.future]
    batch = join_texts(works)
    batch.should_continue = lambda: not futures or not all(future.done() for future in futures)
    return batch


def join_texts(works: Sequence[TextWork[Any]], take: Take | None = None) -> Batch:
    """Join the texts of work items with their options; they stay strings if all are strings.

    Args:
        works: work items of one vocabulary.
        take: allocates memory for joined bytes; None: NumPy allocates it.
    """
    options = _join_options(works)
    if any(isinstance(work.texts, Batch) for work in works):
        return Batch.joined([_as_batch(work.texts) for work in works], options, take)
    texts = [cast(Sequence[str], work.texts) for work in works]
    return Batch(texts[0] if len(texts) == 1 else [*chain.from_iterable(texts)], options=options)


def _join_options(works: Sequence[TextWork[Any]]) -> EncodeOptions | list[EncodeOptions]:
    """List the options of all texts; where all share one value, which is common, return that."""
    first = works[0].options
    if isinstance(first, EncodeOptions) and all(work.options is first for work in works):
        return first
    joined: list[EncodeOptions] = []
    for work in works:
        options = work.options
        joined += [options] * len(work.texts) if isinstance(options, EncodeOptions) else options
    return joined


def _as_batch(texts: Sequence[str] | Batch) -> Batch:
    return texts if isinstance(texts, Batch) else Batch(texts)


def join_id_rows(works: Sequence[DecodeWork]) -> list[Sequence[int]]:
    """List the rows of ids of all work items."""
    joined: list[Sequence[int]] = []
    for work in works:
        joined += work.rows.lists() if isinstance(work.rows, IdRows) else work.rows
    return joined


def split_encoded(works: Works, encoded: Encoded) -> list[Result[Encoded]]:
    """Split the ids of a batch into the rows of each work item."""
    offsets = encoded.offsets.tolist()
    return _split(works, encoded, offsets[-1], offsets)


def split_counted(works: Works, counted: Counted) -> list[Result[Counted]]:
    """Split the counts of a batch into the rows of each work item."""
    return _split(works, counted, int(counted.counts.sum()), [])


def split_decoded(works: Works, decoded: Decoded, num_ids: int) -> list[Result[Decoded]]:
    """Split the bytes that `num_ids` ids of a batch stand for into the rows of each work item."""
    return _split(works, decoded, num_ids, decoded.offsets.tolist())


def _split(
    works: Works, output: Output, batch_tokens: int, offsets: list[int]
) -> list[Result[Output]]:
    results: list[Result[Output]] = []
    begin = 0
    for work in works:
        end = begin + work.num_rows
        results.append(Result(begin, end, output, batch_tokens, offsets))
        begin = end
    return results
