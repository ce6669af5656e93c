"""One request's work for the engine, and its part of a batch's result; knows no HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from time import perf_counter
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from starlette.requests import ClientDisconnect

from service.core.call import Times
from service.engines.base import Decoded
from service.security.rate_limits import CLIENT
from vocabularies.batch.batch import DEFAULT_OPTIONS, Batch, Encoded, EncodeOptions, RowError
from vocabularies.batch.shared_rows import SharedRows
from vocabularies.model.vocabulary import Vocabulary


class Waiter(Protocol):
    """What waits for a part of a batch's result: a future, or something that acts like one."""

    def done(self) -> bool:
        """Whether there is nothing to wait for any more."""

    def cancelled(self) -> bool:
        """Whether nobody wanted the result."""

    def exception(self) -> BaseException | None:
        """Why there is no result."""

    def cancel(self) -> object:
        """Nobody wants the result any more."""

    def set_result(self, result: Result, /) -> None:
        """The result is there."""

    def set_exception(self, error: BaseException, /) -> None:
        """There will be no result."""


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
        rows: texts (encode, count) or rows of ids (decode), as lists or as flat arrays; or texts
            in shared memory (encode_shared).
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

    operation: Literal["encode", "count", "decode", "encode_shared"]
    vocabulary: Vocabulary
    rows: Sequence[Any] | Batch | IdRows | SharedRows
    options: EncodeOptions | Sequence[EncodeOptions] = DEFAULT_OPTIONS
    skip_special_tokens: bool = False
    num_bytes: int = 0
    deadline: float = float("inf")
    receive: Callable[[], Awaitable[Any]] | None = None
    submitted: float = field(default_factory=perf_counter)
    started: float = 0.0
    future: Waiter | None = None
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
        encoded, counts, decoded: the batch's result, whichever the operation gives. The ids of
            shared texts are not in `encoded`, which is None where the host is needed.
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
