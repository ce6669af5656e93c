"""One request's work for the engine, and its part of a batch's result.

Runs on the engine's thread (or on the loop for a tiny batch); knows no HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from service.engines import Decoded, Engine
from service.isolation import count_isolated, decode_isolated, encode_isolated
from vocabularies.batch import DEFAULT_OPTIONS, Batch, Encoded, EncodeOptions, RowError
from vocabularies.vocabulary import Vocabulary

__all__ = ["ClientGone", "Result", "Work", "run_works"]


class ClientGone(Exception):
    """The client closed the connection; nobody waits for an answer."""


@dataclass(slots=True, eq=False)
class Work:
    """What one request asks of the engine.

    Attributes:
        rows: texts, as strings or joined (encode, count); or rows of ids (decode).
        options: one for all rows or one for each; for decode whether special tokens are skipped.
        num_bytes: what the rows weigh in the queue: bytes of text, 4 for an id, and 16 a row.
        deadline: perf_counter time after which nobody waits for the answer.
        receive: the ASGI callable that tells when the client is gone; None: it cannot be known.
        started: perf_counter time at which a batch took the work.
        is_gone: the client has left.
    """

    operation: Literal["encode", "count", "decode"]
    vocabulary: Vocabulary
    rows: Sequence[Any] | Batch
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
    first = works[0]
    begin = perf_counter()
    match first.operation:
        case "encode":
            results = _encode(engine, works)
        case "count":
            results = _count(engine, works)
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


def _batch(works: list[Work]) -> Batch:
    """The rows of all works with their options; strings stay strings while all are."""
    options = _options(works)
    if any(isinstance(work.rows, Batch) for work in works):
        parts = [work.rows if isinstance(work.rows, Batch) else Batch(work.rows) for work in works]
        return Batch.joined(parts, options)
    rows: Any = works[0].rows
    if len(works) > 1:
        rows = [row for work in works for row in work.rows]  # type: ignore[union-attr]
    return Batch(rows, options=options)


def _encode(engine: Engine, works: list[Work]) -> list[Result]:
    encoded = encode_isolated(engine, works[0].vocabulary, _batch(works))
    offsets = encoded.offsets.tolist()
    return [
        Result(b, e, encoded.engine, offsets[-1], encoded.errors, offsets, encoded)
        for b, e in _bounds(works)
    ]


def _count(engine: Engine, works: list[Work]) -> list[Result]:
    counted = count_isolated(engine, works[0].vocabulary, _batch(works))
    total = int(counted.counts.sum())
    return [
        Result(b, e, counted.engine, total, counted.errors, counts=counted.counts)
        for b, e in _bounds(works)
    ]


def _decode(engine: Engine, works: list[Work]) -> list[Result]:
    """Skipping is one value a call, so a batch is split where it changes."""
    results: list[Result | None] = [None] * len(works)
    num_ids = sum(len(row) for work in works for row in _id_rows(work))
    for skip in {work.skip_special_tokens for work in works}:
        chosen = [i for i, work in enumerate(works) if work.skip_special_tokens == skip]
        part = [works[i] for i in chosen]
        rows = [row for work in part for row in _id_rows(work)]
        decoded = decode_isolated(engine, works[0].vocabulary, rows, skip)
        offsets = decoded.offsets.tolist()
        for i, (b, e) in zip(chosen, _bounds(part), strict=True):
            results[i] = Result(
                b, e, decoded.engine, num_ids, decoded.errors, offsets, decoded=decoded
            )
    return [result for result in results if result is not None]


def _id_rows(work: Work) -> Sequence[Sequence[int]]:
    assert not isinstance(work.rows, Batch)
    return work.rows
