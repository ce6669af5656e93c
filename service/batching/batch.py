"""Works of one vocabulary and operation as one batch, and the batch's result as each work's part.

Runs on the engine's thread, or on the loop for a tiny batch; knows no HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from time import perf_counter
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from service.batching.work import IdRows, Result, Work
from service.engines.base import Counted, Decoded, Engine
from service.engines.fault_isolation import (
    count_isolated,
    decode_isolated,
    encode_isolated,
    raise_if_not_the_engines,
)
from service.runtime.memory_pool import Take
from vocabularies.batch.batch import Batch, Encoded, EncodeOptions
from vocabularies.batch.shared_rows import SharedRows

Placed = Callable[[NDArray[np.integer[Any]]], NDArray[np.integer[Any]]]


def run_works(
    engine: Engine, works: list[Work], placed: Placed | None = None
) -> tuple[list[Result], float]:
    """Run the works of one vocabulary and operation as one batch.

    Args:
        engine: computes them.
        works: at least one.
        placed: puts ids where they are wanted; None: they may lie anywhere.

    Returns:
        Each work's part, in order, and the seconds that the engine took.
    """
    vocabulary = works[0].vocabulary
    begin = perf_counter()
    match works[0].operation:
        case "encode":
            encoded = encode_isolated(engine, vocabulary, _wanted(works))
            if placed is not None:
                encoded.ids = placed(encoded.ids)
            results = split_encoded(works, encoded)
        case "count":
            results = split_counted(works, count_isolated(engine, vocabulary, _wanted(works)))
        case "decode":
            results = _decode(engine, works)
        case "encode_shared":
            results = [_encode_shared(engine, work) for work in works]
    return results, perf_counter() - begin


def _bounds(works: list[Work]) -> list[tuple[int, int]]:
    bounds, begin = [], 0
    for work in works:
        end = begin + len(work.rows)
        bounds.append((begin, end))
        begin = end
    return bounds


def _options(works: list[Work]) -> EncodeOptions | list[EncodeOptions]:
    """One value where all works share it, which is the common case and costs no list."""
    first = works[0].options
    if isinstance(first, EncodeOptions) and all(work.options is first for work in works):
        return first
    return [
        options
        for work in works
        for options in (
            [work.options] * len(work.rows)
            if isinstance(work.options, EncodeOptions)
            else work.options
        )
    ]


def _wanted(works: list[Work]) -> Batch:
    """The rows of all works, as long as anybody waits for them."""
    batch, futures = joined_texts(works), [work.future for work in works if work.future]
    batch.is_wanted = lambda: not futures or not all(future.done() for future in futures)
    return batch


def joined_texts(works: list[Work], take: Take | None = None) -> Batch:
    """The rows of all works with their options; strings stay strings while all are.

    Args:
        works: of one vocabulary.
        take: gives memory for bytes that are joined; None: any will do.
    """
    options = _options(works)
    if any(isinstance(work.rows, Batch) for work in works):
        return Batch.joined([_as_batch(work) for work in works], options, take)
    texts = [cast(Sequence[str], work.rows) for work in works]
    return Batch(texts[0] if len(texts) == 1 else [*chain.from_iterable(texts)], options=options)


def _as_batch(work: Work) -> Batch:
    return work.rows if isinstance(work.rows, Batch) else Batch(cast(Sequence[str], work.rows))


def split_encoded(works: list[Work], encoded: Encoded) -> list[Result]:
    """Each work's part of the ids of their joined texts."""
    offsets = encoded.offsets.tolist()
    return [
        Result(b, e, encoded.engine, offsets[-1], encoded.errors, offsets, encoded)
        for b, e in _bounds(works)
    ]


def split_counted(works: list[Work], counted: Counted) -> list[Result]:
    """Each work's part of the counts of their joined texts."""
    total = int(counted.counts.sum())
    return [
        Result(b, e, counted.engine, total, counted.errors, counts=counted.counts)
        for b, e in _bounds(works)
    ]


def split_decoded(works: list[Work], decoded: Decoded, num_ids: int) -> list[Result]:
    """Each work's part of the bytes of their joined rows, of a batch of so many ids."""
    offsets = decoded.offsets.tolist()
    return [
        Result(b, e, decoded.engine, num_ids, decoded.errors, offsets, decoded=decoded)
        for b, e in _bounds(works)
    ]


def _encode_shared(engine: Engine, work: Work) -> Result:
    """Shared texts go one request after the other: they are many bytes already."""
    rows = cast(SharedRows, work.rows)
    result = Result(0, len(rows), engine.name, 0, {})
    offsets = engine.encode_shared(work.vocabulary, rows)
    if offsets is not None:
        result.batch_tokens = int(offsets[-1])
        result.encoded = Encoded(np.empty(0, np.int32), offsets, engine=engine.name)
    return result


def _decode(engine: Engine, works: list[Work]) -> list[Result]:
    """Skipping is one value a call, so a batch is split where it changes."""
    results: list[Result | None] = [None] * len(works)
    num_ids = sum(map(num_ids_of, works))
    for skip in {work.skip_special_tokens for work in works}:
        chosen = [i for i, work in enumerate(works) if work.skip_special_tokens == skip]
        part = [works[i] for i in chosen]
        split = split_decoded(part, _decode_rows(engine, part, skip), num_ids)
        for i, result in zip(chosen, split, strict=True):
            results[i] = result
    return [result for result in results if result is not None]


def num_ids_of(work: Work) -> int:
    """Ids that a work brings for decoding."""
    if isinstance(work.rows, IdRows):
        return len(work.rows.ids)
    return sum(map(len, cast(Sequence[list[int]], work.rows)))


def _decode_rows(engine: Engine, works: list[Work], skip: bool) -> Decoded:
    """Flat arrays stay flat where a request is alone; others become one list of rows."""
    vocabulary, rows = works[0].vocabulary, works[0].rows
    if len(works) == 1 and isinstance(rows, IdRows):
        try:
            return engine.decode(vocabulary, rows.ids.astype(np.int64), rows.offsets, skip)
        except BaseException as error:
            raise_if_not_the_engines(error)
    return decode_isolated(engine, vocabulary, joined_rows(works), skip)


def joined_rows(works: list[Work]) -> list[Sequence[int]]:
    """The rows of ids of all works."""
    joined: list[Sequence[int]] = []
    for work in works:
        if isinstance(work.rows, IdRows):
            joined += work.rows.lists()
        else:
            joined += cast(Sequence[list[int]], work.rows)
    return joined
