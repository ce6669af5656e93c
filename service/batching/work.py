"""Defines work items, each the work of one request for the engine, and their results.

Each operation has a class of work items with its own result:

    EncodeWork ─► Result[Encoded]        CountWork ──► Result[Counted]
    DecodeWork ─► Result[Decoded]        SharedWork ─► Result[SharedEncoded]
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence, Sized
from dataclasses import dataclass, field
from itertools import pairwise
from time import perf_counter
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from starlette.requests import ClientDisconnect

from service.core.call import Times
from service.core.context_vars import CLIENT
from service.engines.base import Counted, Decoded, DeviceSharing, SharedEncoded
from vocabularies.batch.batch import DEFAULT_OPTIONS, Batch, Encoded, EncodeOptions, RowError
from vocabularies.batch.shared_rows import SharedRows
from vocabularies.model.vocabulary import Vocabulary

Output = TypeVar("Output", bound=Encoded | Counted | Decoded | SharedEncoded)
Value = TypeVar("Value", contravariant=True)


class Completion(Protocol[Value]):
    """Receives one result or one error: a future, or an object that processes it immediately."""

    def done(self) -> bool:
        """Return whether it has a result or an error, or is cancelled."""

    def cancel(self) -> object:
        """Cancel it, as nobody waits for the result any more."""

    def set_result(self, result: Value, /) -> None:
        """Complete it with a result."""

    def set_exception(self, error: BaseException, /) -> None:
        """Complete it with an error."""


class Ended:
    """A completed `Completion`, which replaces a future whose error has been raised."""

    def done(self) -> bool:
        """Return True."""
        return True

    def cancel(self) -> None:
        """Change nothing."""

    def set_result(self, result: object, /) -> None:
        """Change nothing."""

    def set_exception(self, error: BaseException, /) -> None:
        """Change nothing."""


ENDED = Ended()


class ClientGone(Exception):
    """The client closed the connection and waits for no answer."""


GONE = (ClientGone, ClientDisconnect)
"""The errors raised if a connection ends before the request's body is complete."""


@dataclass(frozen=True, slots=True, eq=False)
class IdRows:
    """Rows of ids as flat arrays.

    Attributes:
        ids: integers [T], the rows joined.
        offsets: int64[B + 1], where each row begins.
    """

    ids: NDArray[np.integer[Any]]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def lists(self) -> list[list[int]]:
        """Return the rows as lists."""
        values = self.ids.tolist()
        return [values[b:e] for b, e in pairwise(self.offsets.tolist())]


@dataclass(slots=True, eq=False)
class WorkItem(Generic[Output]):
    """One request's work for the engine; each operation has a subclass.

    Attributes:
        operation: the name of the operation in metrics.
        rows: the rows of the request; each subclass defines their type.
        num_bytes: the size in the queue: the bytes of texts, or 4 per id, and 16 per row.
        deadline: the perf_counter time until which it may wait in the queue.
        ends_at: the perf_counter time after which its client waits for no answer.
        receive: the ASGI callable that reports a disconnected client; None: there is none.
        submitted: the perf_counter time at which the work item was made.
        started: the perf_counter time at which its batch was formed.
        future: receives the result; `Batcher.submit` makes one if it is None.
        watcher: the task that waits for the client to disconnect.
        is_gone: whether the client has disconnected.
        refusal: the code with which the batcher refused it before its batch ended, if it did.
        client: the name of the request's key, for fairness and rates; "" if it has none.
        is_long: whether it goes to the lane of long requests; None: its size decides.
        times: the stage times of the request, to which the batcher adds its own.
        is_part: whether it is a part of an accepted stream, which is accepted while the queue
            drains.
    """

    operation: ClassVar[str]

    vocabulary: Vocabulary
    rows: Sized
    num_bytes: int = field(default=0, kw_only=True)
    deadline: float = field(default=float("inf"), kw_only=True)
    ends_at: float = field(default=float("inf"), kw_only=True)
    receive: Callable[[], Awaitable[Any]] | None = field(default=None, kw_only=True)
    submitted: float = field(default_factory=perf_counter, kw_only=True)
    started: float = field(default=0.0, kw_only=True)
    future: Completion[Result[Output]] | None = field(default=None, kw_only=True)
    watcher: asyncio.Task[None] | None = field(default=None, kw_only=True)
    is_gone: bool = field(default=False, kw_only=True)
    refusal: str = field(default="", kw_only=True)
    client: str = field(default_factory=CLIENT.get, kw_only=True)
    is_long: bool | None = field(default=None, kw_only=True)
    times: Times | None = field(default=None, kw_only=True)
    is_part: bool = field(default=False, kw_only=True)

    @property
    def is_done(self) -> bool:
        """Return whether its future is completed or cancelled."""
        return self.future is not None and self.future.done()

    def watch(self) -> None:
        """Watch the client from now on, and cancel the work item when it disconnects."""
        if self.watcher is None and self.receive is not None:
            self.watcher = asyncio.ensure_future(self._cancel_when_gone(self.receive))

    async def _cancel_when_gone(self, receive: Callable[[], Awaitable[Any]]) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.is_gone = True
        if self.future is not None:
            self.future.cancel()

    def unwatch(self) -> None:
        """Stop watching the client."""
        if self.watcher is not None:
            self.watcher.cancel()
            self.watcher = None


@dataclass(slots=True, eq=False)
class TextWork(WorkItem[Output]):
    """Texts for the engine to encode or count.

    Attributes:
        rows: strings, or a batch of joined bytes.
        options: one for all rows, or a list with one for each row.
    """

    rows: Sequence[str] | Batch
    options: EncodeOptions | Sequence[EncodeOptions] = DEFAULT_OPTIONS


class EncodeWork(TextWork[Encoded]):
    """Texts to encode."""

    __slots__ = ()
    operation = "encode"


class CountWork(TextWork[Counted]):
    """Texts whose ids the engine counts."""

    __slots__ = ()
    operation = "count"


@dataclass(slots=True, eq=False)
class DecodeWork(WorkItem[Decoded]):
    """Rows of ids to decode.

    Attributes:
        rows: lists of ids, or flat arrays.
        skip_special_tokens: whether special tokens are left out of the text.
    """

    operation = "decode"

    rows: Sequence[Sequence[int]] | IdRows
    skip_special_tokens: bool = False

    @property
    def num_ids(self) -> int:
        """The number of ids in all rows."""
        return len(self.rows.ids) if isinstance(self.rows, IdRows) else sum(map(len, self.rows))


@dataclass(slots=True, eq=False)
class SharedWork(WorkItem[SharedEncoded]):
    """Texts in shared memory to encode; the ids are written to shared memory as well.

    Attributes:
        rows: the texts, and the memory for the ids.
        device: encodes the texts in place.
    """

    operation = "encode_shared"

    rows: SharedRows
    device: DeviceSharing


@dataclass(slots=True)
class Result(Generic[Output]):
    """One request's rows within the output of its batch.

    Attributes:
        begin, end: the range of this request's rows in the batch; `end` is not included.
        output: the engine's output for the whole batch.
        batch_tokens: the number of ids of the whole batch, for the metrics.
        offsets: the output's offsets as a list, which all requests share; [] for counts.
        seconds: the seconds that the engine took for the batch.
    """

    begin: int
    end: int
    output: Output
    batch_tokens: int = 0
    offsets: list[int] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def engine(self) -> str:
        """The name of the engine that computed the output."""
        return self.output.engine

    @property
    def errors(self) -> dict[int, RowError]:
        """The errors of the batch's refused rows, by their number in the batch."""
        return self.output.errors

    def row_errors(self) -> dict[int, RowError]:
        """Return the errors of this request's refused rows, by their number in the request."""
        errors = self.output.errors
        if not errors:
            return errors
        rows = range(self.begin, self.end)
        return {row - self.begin: errors[row] for row in rows if row in errors}


AnyWork = WorkItem[Any]
AnyResult = Result[Any]


class CostKey(NamedTuple):
    """The key of a cost per byte: the digest of a vocabulary, and an operation."""

    digest: str
    operation: str


LaneName = Literal["short", "long", "isolated"]
"""The lane of a work item; "isolated" is for unknown patterns, which may take any time."""


class QueueKey(NamedTuple):
    """The key of a queue: the properties that all work items of a batch share."""

    cost_key: CostKey
    skip_special_tokens: bool
    lane: LaneName
