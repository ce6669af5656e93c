"""Two lanes of a batcher: short requests are joined; a long one is a batch of its own.

A long request never stands in front of short ones, and joining it would copy it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from service.batching.cost_model import CostKey
from service.batching.work import AnyWork, DecodeWork

PREPARED = 1  # Batches that wait beside those that run, so that the runner is never idle.
ALONE = 1  # Bytes of a batch that is one request.


class QueueKey(NamedTuple):
    """What the works of one queue have in common, so that they may be one batch."""

    digest: str
    operation: str
    skip_special_tokens: bool
    is_long: bool

    @property
    def cost_key(self) -> CostKey:
        """The key of what they cost."""
        return CostKey(self.digest, self.operation)


def make_queue_key(work: AnyWork, long_request_bytes: int) -> QueueKey:
    """The key of the queue that a work belongs to."""
    is_long = work.num_bytes > long_request_bytes if work.is_long is None else work.is_long
    skip = isinstance(work, DecodeWork) and work.skip_special_tokens
    return QueueKey(work.vocabulary.digest, work.operation, skip, is_long)


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
