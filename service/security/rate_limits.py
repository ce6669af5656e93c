"""How much a client may ask for in a second: token buckets of requests and of bytes.

A bucket holds a second's worth. A request is let in while the bucket of bytes is not empty, and
what it then weighs is taken out, also when that is more than there is: so a large request passes,
and the next one waits until the debt is paid. Knows no key and no file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter

from service.core.errors import RateLimited


@dataclass(frozen=True, slots=True)
class Rates:
    """What one client may do; None: as much as it likes.

    Attributes:
        requests_per_s: requests, whatever their size.
        bytes_per_s: what requests weigh in the queue: bytes of text, 4 an id, 16 a row.
    """

    requests_per_s: float | None = None
    bytes_per_s: float | None = None


UNLIMITED = Rates()


@dataclass(slots=True)
class _Bucket:
    """Fills at `rate` up to a second's worth, one at least; it may owe."""

    rate: float
    clock: Callable[[], float]
    level: float = field(init=False)
    filled: float = field(init=False)

    def __post_init__(self) -> None:
        self.level = max(1.0, self.rate)
        self.filled = self.clock()

    def wait_s(self, wanted: float) -> float:
        """Seconds until so much is there; 0 where it is."""
        now = self.clock()
        self.level = min(max(1.0, self.rate), self.level + self.rate * (now - self.filled))
        self.filled = now
        return max(0.0, (wanted - self.level) / self.rate)


Spent = dict[str, tuple[int, int]]
"""Requests and bytes by client."""


class Limits:
    """The buckets of all clients of one process; a client without rates is never refused.

    Processes of one service tell each other what was spent, so that all of them together keep a
    client to its rates: what another process let in is taken out of the buckets here, later.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._rates: dict[str, Rates] = {}
        self._requests: dict[str, _Bucket] = {}
        self._bytes: dict[str, _Bucket] = {}
        self._spent: Spent = {}

    def set(self, rates: Mapping[str, Rates]) -> None:
        """The rates of all clients; a bucket whose rate stays keeps what is in it."""
        requests = {client: each.requests_per_s for client, each in rates.items()}
        num_bytes = {client: each.bytes_per_s for client, each in rates.items()}
        self._requests = self._kept(self._requests, requests)
        self._bytes = self._kept(self._bytes, num_bytes)

    def _kept(
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
        """Let a request of a client in.

        Raises:
            RateLimited: it has made too many, or sent too many bytes; this one is not counted.
        """
        self.check_bytes(client)
        bucket = self._requests.get(client)
        if bucket is None:
            return
        if wait_s := bucket.wait_s(1):
            raise _limited("requests_per_s", bucket.rate, wait_s)
        bucket.level -= 1
        self._note(client, 1, 0)

    def check_bytes(self, client: str) -> None:
        """Raises RateLimited while a client owes bytes."""
        bucket = self._bytes.get(client)
        if bucket is not None and (wait_s := bucket.wait_s(1)):
            raise _limited("bytes_per_s", bucket.rate, wait_s)

    def charge(self, client: str, num_bytes: int) -> None:
        """Take what a request weighs out of its client's bucket."""
        bucket = self._bytes.get(client)
        if bucket is not None:
            bucket.level -= num_bytes
            self._note(client, 0, num_bytes)

    def _note(self, client: str, requests: int, num_bytes: int) -> None:
        before = self._spent.get(client, (0, 0))
        self._spent[client] = before[0] + requests, before[1] + num_bytes

    def take_spent(self) -> Spent:
        """What was let in here since the last time that this was asked."""
        spent, self._spent = self._spent, {}
        return spent

    def charge_elsewhere(self, spent: Spent) -> None:
        """Take what another process has let in out of the buckets here."""
        for client, amounts in spent.items():
            for buckets, amount in zip((self._requests, self._bytes), amounts, strict=True):
                if (bucket := buckets.get(client)) is not None:
                    bucket.level -= amount


def _limited(name: str, rate: float, wait_s: float) -> RateLimited:
    return RateLimited(f"the key's {name} is {rate:g}; try again", "", math.ceil(wait_s))
