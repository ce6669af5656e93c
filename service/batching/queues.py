"""Admits work items, and keeps the queues in which they wait.

A work item is counted when it is admitted, and again when it ends: as answered, failed, cancelled,
or by the code of its refusal.

Work items of one vocabulary, operation and lane wait in one queue, which serves its clients by
deficit round robin [1]: the client that is served gets QUANTUM bytes of credit, spends it on its
work items, and keeps the rest for the next round; a client with nothing waiting has no credit. So
each of n busy clients gets 1 / n of the bytes, whether it sends many small texts or a few large
ones.

The queues of a lane are served in turn. In the lane of short requests, several make a batch. In the
lane of long requests each is a batch of its own, as joining them would copy many bytes.

    [1] M. Shreedhar, G. Varghese: Efficient fair queuing using deficit round-robin. 1996.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

from service.batching.work import AnyWork, DecodeWork
from service.core.errors import QueueFull
from service.core.settings import Settings
from service.observability.metrics import Metrics
from service.security.rate_limits import Limits

# A client may have as many bytes in the queue as this many times the free bytes: one busy client
# gets four fifths of the queue, two get four ninths each, and some bytes are always free.
MAX_CLIENT_TO_FREE = 4
ANSWERED = "answered"
CANCELLED = "cancelled"
FAILED = "failed"
QUANTUM = 65_536  # Bytes; above most requests, so that a client is mostly served one in a round.
NUM_PREPARED = 1  # Batches that wait beside those that run, so that the runner is never idle.
ONE_REQUEST_BYTES = 1  # The limit of a batch that is one request, whatever its size.


class Admission:
    """Admits work items, and counts the bytes and rows of those that have not ended.

    Attributes:
        num_bytes, num_rows: of all admitted work items that have not ended; one without rows
            counts as one row.
        bytes_elsewhere: the bytes that wait in other processes of the same service.
    """

    def __init__(self, settings: Settings, metrics: Metrics, limits: Limits) -> None:
        self.max_bytes = settings.max_queue_bytes
        self.metrics = metrics
        self.limits = limits
        self.num_bytes = 0
        self.num_rows = 0
        self.bytes_elsewhere = 0
        self._client_bytes: defaultdict[str, int] = defaultdict(int)

    def enter(self, work: AnyWork) -> None:
        """Admit a work item, and count it.

        Raises:
            QueueFull: all bytes would be more than `max_queue_bytes`, or the client's more than
                MAX_CLIENT_TO_FREE times those that are free.
            RateLimited: the client has sent too many bytes in the last seconds.
        """
        waiting = self.num_bytes + self.bytes_elsewhere
        if waiting + work.num_bytes > self.max_bytes and (self.num_rows or self.bytes_elsewhere):
            self._refuse(f"{waiting} bytes are waiting")
        if client := work.client:
            own_bytes = self._client_bytes[client]
            free_bytes = self.max_bytes - waiting
            if own_bytes and own_bytes + work.num_bytes > MAX_CLIENT_TO_FREE * free_bytes:
                self._refuse(f"{own_bytes} bytes of {client} are waiting, {free_bytes} are free")
            self.limits.check_bytes(client)
            self.limits.charge(client, work.num_bytes)
            self._client_bytes[client] += work.num_bytes
        self.num_bytes += work.num_bytes
        self.num_rows += work.num_rows or 1
        self.metrics.accepted()

    def _refuse(self, reason: str) -> NoReturn:
        raise QueueFull(f"{reason}; max_queue_bytes is {self.max_bytes}; try again")

    def leave(self, work: AnyWork, outcome: str) -> None:
        """Count the end of a work item whose future is done."""
        self.num_bytes -= work.num_bytes
        self.num_rows -= work.num_rows or 1
        if work.client:
            self._client_bytes[work.client] -= work.num_bytes
            if not self._client_bytes[work.client]:
                del self._client_bytes[work.client]
        self.metrics.finished(outcome)


class CostKey(NamedTuple):
    """What the cost of a byte depends on: a vocabulary and an operation."""

    digest: str
    operation: str


class QueueKey(NamedTuple):
    """What all work items of one queue have in common, so that they can be one batch."""

    cost_key: CostKey
    skip_special_tokens: bool
    is_long: bool


def make_queue_key(work: AnyWork, long_request_bytes: int) -> QueueKey:
    """Make the key of the queue that a work item belongs to."""
    is_long = work.num_bytes > long_request_bytes if work.is_long is None else work.is_long
    skip = isinstance(work, DecodeWork) and work.skip_special_tokens
    return QueueKey(CostKey(work.vocabulary.digest, work.operation), skip, is_long)


@dataclass(slots=True)
class Queue:
    """Waiting work items by client; the client that is served next comes first.

    Attributes:
        num_bytes: the bytes of all waiting work items.
    """

    num_bytes: int = 0
    _waiting: dict[str, deque[AnyWork]] = field(default_factory=dict)
    _credits: dict[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __iter__(self) -> Iterator[AnyWork]:
        for works in self._waiting.values():
            yield from works

    def add(self, work: AnyWork) -> None:
        """Put a work item behind the others of its client."""
        works = self._waiting.get(work.client)
        if works is None:
            works = self._waiting[work.client] = deque()
            self._credits[work.client] = QUANTUM
        works.append(work)
        self.num_bytes += work.num_bytes

    def take(self, max_bytes: int, drop_if_unwanted: Callable[[AnyWork], bool]) -> list[AnyWork]:
        """Take work items for one batch: at least one, and no more than `max_bytes` of several.

        Args:
            max_bytes: the limit of the batch.
            drop_if_unwanted: settles a work item that nobody waits for and returns True; the queue
                drops it then.
        """
        works: list[AnyWork] = []
        free_bytes = max_bytes
        while self._waiting:
            client, waiting = next(iter(self._waiting.items()))
            credit = self._credits[client] if len(self._waiting) > 1 else None
            while waiting and (credit is None or waiting[0].num_bytes <= credit):
                work = waiting[0]
                if works and work.num_bytes > free_bytes:
                    self._credits[client] = QUANTUM if credit is None else credit
                    return works
                self.num_bytes -= waiting.popleft().num_bytes
                if drop_if_unwanted(work):
                    continue
                works.append(work)
                free_bytes -= work.num_bytes
                credit = None if credit is None else credit - work.num_bytes
            self._move_to_end(client, credit or 0)
        return works

    def _move_to_end(self, client: str, credit: int) -> None:
        """Move a client behind the others, or remove it if it has nothing waiting."""
        waiting = self._waiting.pop(client)
        del self._credits[client]
        if waiting:
            self._waiting[client] = waiting
            self._credits[client] = credit + QUANTUM

    def remove(self, drop_if_unwanted: Callable[[AnyWork], bool]) -> None:
        """Remove the work items for which `drop_if_unwanted` returns True."""
        for client, waiting in list(self._waiting.items()):
            kept = deque(work for work in waiting if not drop_if_unwanted(work))
            if kept:
                self._waiting[client] = kept
            else:
                del self._waiting[client], self._credits[client]
        self.num_bytes = sum(work.num_bytes for work in self)


@dataclass(slots=True)
class Lane:
    """Queues that are served in turn, and their batches that run or are prepared.

    Attributes:
        is_long: whether it is the lane of long requests.
        at_once: the number of batches that run at once.
        max_batch_bytes: the limit of a batch of several requests.
        queues: the keys of queues with waiting work items; the first one is served next.
        batches: the batches that run, and behind them those that are prepared.
    """

    is_long: bool
    at_once: int
    max_batch_bytes: int
    queues: deque[QueueKey] = field(default_factory=deque)
    batches: deque[list[AnyWork]] = field(default_factory=deque)

    @property
    def can_start(self) -> bool:
        """Whether one more batch may be handed to the runner."""
        return len(self.batches) < self.at_once + NUM_PREPARED
