"""What waits: who may come in, from which queue works are taken next, and in which lane.

Whatever comes in is counted then, and once more when it leaves: answered, failed, cancelled, or by
the code of its refusal.

Works of one vocabulary, operation and lane wait in one queue, from which clients take turns by
bytes. Deficit round robin [1]: a client whose turn it is gets QUANTUM bytes of credit, takes work
while that lasts and keeps what is left; one who has nothing waiting has no credit. So each of n
busy clients gets a share of 1 / n, whether it sends many small texts or few large ones.

Queues take turns in two lanes: short requests are joined; a long one is a batch of its own. It
never stands in front of short ones, and joining it would copy it.

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

# A client may have so many times the bytes that are left: one busy client gets four fifths of the
# queue, two get four ninths each, and there is always room for another one.
SHARE = 4
ANSWERED = "answered"
CANCELLED = "cancelled"
FAILED = "failed"
QUANTUM = 65_536  # Bytes; above most requests, so that most turns take one.
PREPARED = 1  # Batches that wait beside those that run, so that the runner is never idle.
ALONE = 1  # Bytes of a batch that is one request.


class Admission:
    """The books of all queues.

    Attributes:
        num_bytes, num_rows: of all work that has come in and not left; no rows count as one.
        bytes_elsewhere: of work in other processes of the same service.
    """

    def __init__(self, settings: Settings, metrics: Metrics, limits: Limits) -> None:
        self.max_bytes, self.metrics, self.limits = settings.max_queue_bytes, metrics, limits
        self.num_bytes = self.num_rows = self.bytes_elsewhere = 0
        self._client_bytes: defaultdict[str, int] = defaultdict(int)

    def enter(self, work: AnyWork) -> None:
        """Take work into account.

        Raises:
            QueueFull: all bytes would be more than `max_queue_bytes`, or the client's more than
                SHARE times those that are left for all.
            RateLimited: the client has sent too many in the last seconds.
        """
        waiting = self.num_bytes + self.bytes_elsewhere
        if waiting + work.num_bytes > self.max_bytes and (self.num_rows or self.bytes_elsewhere):
            self._refuse(f"{waiting} bytes are waiting")
        if client := work.client:
            own, left = self._client_bytes[client], self.max_bytes - waiting
            if own and own + work.num_bytes > SHARE * left:
                self._refuse(f"{own} bytes of {client} are waiting and {left} are left for all")
            self.limits.check_bytes(client)
            self.limits.charge(client, work.num_bytes)
            self._client_bytes[client] += work.num_bytes
        self.num_bytes += work.num_bytes
        self.num_rows += work.num_rows or 1
        self.metrics.accepted()

    def _refuse(self, reason: str) -> NoReturn:
        raise QueueFull(f"{reason}; max_queue_bytes is {self.max_bytes}; try again")

    def leave(self, work: AnyWork, outcome: str) -> None:
        """Let go of work whose future is done, with what became of it."""
        self.num_bytes -= work.num_bytes
        self.num_rows -= work.num_rows or 1
        if work.client:
            self._client_bytes[work.client] -= work.num_bytes
            if not self._client_bytes[work.client]:
                del self._client_bytes[work.client]
        self.metrics.finished(outcome)


class CostKey(NamedTuple):
    """A vocabulary and an operation."""

    digest: str
    operation: str


class QueueKey(NamedTuple):
    """What the works of one queue have in common, so that they may be one batch."""

    cost_key: CostKey
    skip_special_tokens: bool
    is_long: bool


def make_queue_key(work: AnyWork, long_request_bytes: int) -> QueueKey:
    """The key of the queue that a work belongs to."""
    is_long = work.num_bytes > long_request_bytes if work.is_long is None else work.is_long
    skip = isinstance(work, DecodeWork) and work.skip_special_tokens
    return QueueKey(CostKey(work.vocabulary.digest, work.operation), skip, is_long)


@dataclass(slots=True)
class Queue:
    """Waiting work by client; the client whose turn it is comes first.

    Attributes:
        num_bytes: of all waiting work.
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
        """Put work behind its client's other work."""
        works = self._waiting.get(work.client)
        if works is None:
            works = self._waiting[work.client] = deque()
            self._credits[work.client] = QUANTUM
        works.append(work)
        self.num_bytes += work.num_bytes

    def take(self, max_bytes: int, drop_if_unwanted: Callable[[AnyWork], bool]) -> list[AnyWork]:
        """Work for one batch, whole requests up to so many bytes, but one at least.

        Args:
            max_bytes: of the batch.
            drop_if_unwanted: answers work that nobody wants any more and says that it did; it
                leaves the queue then.
        """
        works: list[AnyWork] = []
        room = max_bytes
        while self._waiting:
            client, waiting = next(iter(self._waiting.items()))
            credit = self._credits[client] if len(self._waiting) > 1 else None
            while waiting and (credit is None or waiting[0].num_bytes <= credit):
                work = waiting[0]
                if works and work.num_bytes > room:
                    self._credits[client] = QUANTUM if credit is None else credit
                    return works
                self.num_bytes -= waiting.popleft().num_bytes
                if drop_if_unwanted(work):
                    continue
                works.append(work)
                room -= work.num_bytes
                credit = None if credit is None else credit - work.num_bytes
            self._next_turn(client, credit or 0)
        return works

    def _next_turn(self, client: str, credit: int) -> None:
        """The client goes behind the others, or away when it has nothing waiting."""
        waiting = self._waiting.pop(client)
        del self._credits[client]
        if waiting:
            self._waiting[client] = waiting
            self._credits[client] = credit + QUANTUM

    def remove(self, drop_if_unwanted: Callable[[AnyWork], bool]) -> None:
        """Take out the work that `drop_if_unwanted` has dropped."""
        for client, waiting in list(self._waiting.items()):
            kept = deque(work for work in waiting if not drop_if_unwanted(work))
            if kept:
                self._waiting[client] = kept
            else:
                del self._waiting[client], self._credits[client]
        self.num_bytes = sum(work.num_bytes for work in self)


@dataclass(slots=True)
class Lane:
    """Queues that take turns, and their batches that run or are prepared.

    Attributes:
        is_long: for long requests.
        at_once: batches that run at once.
        max_batch_bytes: of requests that are joined.
        queues: the keys of queues with waiting work; the first one is served next.
        batches: those that run, and behind them those that are prepared.
    """

    is_long: bool
    at_once: int
    max_batch_bytes: int
    queues: deque[QueueKey] = field(default_factory=deque)
    batches: deque[list[AnyWork]] = field(default_factory=deque)

    @property
    def has_room(self) -> bool:
        """Whether one more batch may be handed to the runner."""
        return len(self.batches) < self.at_once + PREPARED
