"""The waiting work of one vocabulary, operation and lane, from which clients take turns by bytes.

Deficit round robin [1]: a client whose turn it is gets QUANTUM bytes of credit, takes work while
that lasts and keeps what is left; one who has nothing waiting has no credit. So each of n busy
clients gets a share of 1 / n, whether it sends many small texts or few large ones.

    [1] M. Shreedhar, G. Varghese: Efficient fair queuing using deficit round-robin. 1996.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from service.batching.work import AnyWork

QUANTUM = 65_536  # Bytes; above most requests, so that most turns take one.


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
