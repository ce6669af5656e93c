"""What waits or is being computed, by client: who may come in, and what became of it.

Whatever comes in is counted then, and once more when it leaves: answered, failed, cancelled, or by
the code of its refusal.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NoReturn

from service.batching.work import AnyWork
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


class Admission:
    """The books of one queue.

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
