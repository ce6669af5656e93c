"""One request's work for the engine, and its part of a batch's result.

Runs on the engine's thread (or on the loop for a tiny batch); knows no HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from time import perf_counter
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from starlette.requests import ClientDisconnect

from service.engines import Counted, Decoded, Engine
from service.isolation import (
    count_isolated,
    decode_isolated,
    encode_isolated,
    raise_if_not_the_engines,
)
from service.rates import CLIENT
from service.times import Times
from vocabularies.batch import DEFAULT_OPTIONS, Batch, Encoded, EncodeOptions, RowError
from vocabularies.vocabulary import Vocabulary

__all__ = [
    "GONE",
    "ClientGone",
    "IdRows",
    "Result",
    "Work",
    "joined_rows",
    "joined_texts",
    "num_ids_of",
    "run_works",
    "split_counted",
    "split_decoded",
    "split_encoded",
]


class ClientGone(Exception):
    """The client closed the connection; nobody waits for an answer."""


GONE = (ClientGone, ClientDisconnect)
"""What says that the connection ended before the body did."""


@dataclass(frozen=True, slots=True, eq=False)
class IdRows:
    """Rows of ids as flat arrays.

    Attributes:
        ids: integers [T], the rows joined.
        offsets: int64[B + 1].
    """

    ids: NDArray[np.integer[Any]]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def lists(self) -> list[list[int]]:
        """The rows as lists."""
        values = self.ids.tolist()
        return [values[b:e] for b, e in pairwise(self.offsets.tolist())]


@dataclass(slots=True, eq=False)
class Work:
    """What one request asks of the engine.

    Attributes:
        rows: texts (encode, count) or rows of ids (decode), as lists or as flat arrays.
        options: one for all rows or one for each; for decode whether special tokens are skipped.
        num_bytes: what the rows weigh in the queue: bytes of text, 4 for an id, and 16 a row.
        deadline: perf_counter time after which nobody waits for the answer.
        receive: the ASGI callable that tells when the client is gone; None: it cannot be known.
        started: perf_counter time at which a batch took the work.
        is_gone: the client has left.
        client: the name of the key that it came with, for turns and rates; "" where there is none.
        is_long: waits in the lane of long requests; None: as its size says.
        times: of the request, which the batcher adds to.
        is_part: belongs to a stream that was accepted; such work is taken while the queue drains.
    """

    operation: Literal["encode", "count", "decode"]
    vocabulary: Vocabulary
    rows: Sequence[Any] | Batch | IdRows
    options: EncodeOptions | Sequence[EncodeOptions] = DEFAULT_OPTIONS
    skip_special_tokens: bool = False
    num_bytes: int = 0
    deadline: float = float("inf")
    receive: Callable[[], Awaitable[Any]] | None = None
    submitted: float = field(default_factory=perf_counter)
    started: float = 0.0
    future: asyncio.Future[Result] | None = None
    watcher: asyncio.Task[None] | None = None
    is_gone: bool = False
    client: str = field(default_factory=CLIENT.get)
    is_long: bool | None = None
    times: Times | None = None
    is_part: bool = False

    @property
    def num_rows(self) -> int:
        """Rows of the request; an empty request counts as one in the queue."""
        return len(self.rows) or 1

    def watch(self) -> None:
        """Cancel the work as soon as its client has gone."""
        if self.watcher is None and self.receive is not None:
            self.watcher = asyncio.ensure_future(self._until_gone())

    async def _until_gone(self) -> None:
        assert self.receive is not None
        while (await self.receive())["type"] != "http.disconnect":
            pass
        self.is_gone = True
        if self.future is not None:
            self.future.cancel()

    def unwatch(self) -> None:
        """Stop watching; the answer is on its way or nobody wants it."""
        if self.watcher is not None:
            self.watcher.cancel()
            self.watcher = None


@dataclass(slots=True)
class Result:
    """One request's rows within a batch's result.

    Attributes:
        begin, end: the rows of the batch that are this request's.
        offsets: the batch's offsets as a list, made once.
        batch_tokens: ids of the whole batch, for the metrics.
        encoded, counts, decoded: the batch's result, whichever the operation gives.
        errors: refused rows of the batch, by their number in the batch.
    """

    begin: int
    end: int
    engine: str
    batch_tokens: int
    errors: dict[int, RowError]
    offsets: list[int] = field(default_factory=list)
    encoded: Encoded | None = None
    counts: NDArray[np.int64] | None = None
    decoded: Decoded | None = None

    def row_errors(self) -> dict[int, RowError]:
        """The refused rows of this request, by their number in the request."""
        if not self.errors:
            return self.errors
        rows = range(self.begin, self.end)
        return {row - self.begin: self.errors[row] for row in rows if row in self.errors}


def run_works(engine: Engine, works: list[Work]) -> tuple[list[Result], float]:
    """Run the works of one vocabulary and operation as one batch.

    Returns:
        Each work's part, in order, and the seconds that the engine took.
    """
    vocabulary = works[0].vocabulary
    begin = perf_counter()
    match works[0].operation:
        case "encode":
            encoded = encode_isolated(engine, vocabulary, _wanted(works))
            results = split_encoded(works, encoded)
        case "count":
            results = split_counted(works, count_isolated(engine, vocabulary, _wanted(works)))
        case "decode":
            results = _decode(engine, works)
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


def joined_texts(works: list[Work]) -> Batch:
    """The rows of all works with their options; strings stay strings while all are."""
    options = _options(works)
    if any(isinstance(work.rows, Batch) for work in works):
        return Batch.joined([_as_batch(work) for work in works], options)
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
