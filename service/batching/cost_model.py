"""Predicts how long the engine takes for a batch, from what its last batches took."""

from __future__ import annotations

from typing import NamedTuple

MAX_MEASURED = 4_096  # Vocabularies and operations; the last ones stay.
MOST_TIMES = 4  # The most by which one batch may exceed the average: it may have lost its core.
LEAST_BYTES = 64  # A smaller batch costs as much.
UNKNOWN_S = 0.002  # A byte, until it is measured: longer than a batch may hold the loop.


class CostKey(NamedTuple):
    """A vocabulary and an operation."""

    digest: str
    operation: str


class CostModel:
    """Moving averages of seconds a byte, by digest and operation."""

    def __init__(self) -> None:
        self._seconds_per_byte: dict[CostKey, float] = {}

    def expected_s(self, key: CostKey, num_bytes: int) -> float:
        """Seconds that so many bytes should take."""
        return num_bytes * self._seconds_per_byte.get(key, UNKNOWN_S)

    def assume(self, key: CostKey, seconds_per_byte: float) -> None:
        """Assume a cost until a batch has been measured."""
        self._seconds_per_byte.setdefault(key, seconds_per_byte)

    def forget(self, key: CostKey) -> None:
        """Forget what was measured."""
        self._seconds_per_byte.pop(key, None)

    def learn(self, key: CostKey, num_bytes: int, seconds: float) -> None:
        """Learn from a batch that took so many seconds."""
        measured = seconds / max(num_bytes, LEAST_BYTES)
        before = self._seconds_per_byte.pop(key, measured)
        self._seconds_per_byte[key] = 0.75 * before + 0.25 * min(measured, MOST_TIMES * before)
        if len(self._seconds_per_byte) > MAX_MEASURED:  # Uploads come and go.
            del self._seconds_per_byte[next(iter(self._seconds_per_byte))]
