"""Limits the requests and bytes per second of each client by token buckets.

A bucket holds at most the tokens of one second of its rate. A request is admitted while the bucket
of bytes is not empty. Then the whole weight of the request is subtracted, even if it exceeds the
level of the bucket: a large request is admitted, and the next one waits until the bucket has
recovered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter

from service.core.errors import RateLimited


@dataclass(frozen=True, slots=True)
class Rates:
    """The limits of one client; None means no limit.

    Attributes:
        requests_per_s: the maximum number of requests per second, of any size.
        bytes_per_s: their maximum weight per second: the bytes of texts, 4 for each id, 16 for
            each row.
    """

    requests_per_s: float | None = None
    bytes_per_s: float | None = None


UNLIMITED = Rates()


@dataclass(slots=True)
class _Bucket:
    """A token bucket with a capacity of `rate` tokens, at least 1; its level may be negative."""

    rate: float
    clock: Callable[[], float]
    level: float = field(init=False)
    updated: float = field(init=False)

    def __post_init__(self) -> None:
        self.level = max(1.0, self.rate)
        self.updated = self.clock()

    def wait_s(self, level: float) -> float:
        """Return the seconds until the bucket reaches a level; 0 if it has reached it."""
        now = self.clock()
        self.level = min(max(1.0, self.rate), self.level + self.rate * (now - self.updated))
        self.updated = now
        return max(0.0, (level - self.level) / self.rate)


Usage = dict[str, tuple[int, int]]
"""The numbers of requests and bytes that a process has admitted, by client."""


class Limits:
    """The token buckets of all clients in one process; a client without rates is never refused.

    The processes of a service exchange the amounts that they have admitted, and each process
    subtracts the amounts of the others from its own buckets. So the rates of a client hold for all
    processes together.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._rates: dict[str, Rates] = {}
        self._requests: dict[str, _Bucket] = {}
        self._bytes: dict[str, _Bucket] = {}
        self._usage: Usage = {}

    def set(self, rates: Mapping[str, Rates]) -> None:
        """Set the rates of all clients; a bucket whose rate does not change keeps its level."""
        requests = {client: each.requests_per_s for client, each in rates.items()}
        num_bytes = {client: each.bytes_per_s for client, each in rates.items()}
        self._requests = self._buckets(self._requests, requests)
        self._bytes = self._buckets(self._bytes, num_bytes)

    def _buckets(
        self, before: dict[str, _Bucket], rates: dict[str, float | None]
    ) -> dict[str, _Bucket]:
        kept = {}
        for client, rate in rates.items():
            bucket = before.get(client)
            if rate is not None:
                same = bucket is not None and bucket.rate == rate
                kept[client] = bucket if same and bucket else _Bucket(rate, self._clock)
        return kept

    def admit(self, client: str) -> None:
        """Admit and count a request of a client.

        Raises:
            RateLimited: the client has made too many requests or sent too many bytes; the request
                is not counted.
        """
        self.check_bytes(client)
        bucket = self._requests.get(client)
        if bucket is None:
            return
        if wait_s := bucket.wait_s(1):
            raise _make_refusal("requests_per_s", bucket.rate, wait_s)
        bucket.level -= 1
        self._add_usage(client, 1, 0)

    def check_bytes(self, client: str) -> None:
        """Raise RateLimited if the client's bucket of bytes is empty."""
        bucket = self._bytes.get(client)
        if bucket is not None and (wait_s := bucket.wait_s(1)):
            raise _make_refusal("bytes_per_s", bucket.rate, wait_s)

    def charge(self, client: str, num_bytes: int) -> None:
        """Subtract the weight of a request from its client's bucket of bytes."""
        bucket = self._bytes.get(client)
        if bucket is not None:
            bucket.level -= num_bytes
            self._add_usage(client, 0, num_bytes)

    def _add_usage(self, client: str, requests: int, num_bytes: int) -> None:
        all_requests, all_bytes = self._usage.get(client, (0, 0))
        self._usage[client] = all_requests + requests, all_bytes + num_bytes

    def take_usage(self) -> Usage:
        """Return and reset the amounts that this process has admitted, to send to the others."""
        usage, self._usage = self._usage, {}
        return usage

    def charge_usage(self, usage: Usage) -> None:
        """Subtract the amounts that another process has admitted from this process's buckets."""
        for client, (requests, num_bytes) in usage.items():
            if (bucket := self._requests.get(client)) is not None:
                bucket.level -= requests
            if (bucket := self._bytes.get(client)) is not None:
                bucket.level -= num_bytes


def _make_refusal(name: str, rate: float, wait_s: float) -> RateLimited:
    return RateLimited(f"the key's {name} is {rate:g}; try again", "", math.ceil(wait_s))
