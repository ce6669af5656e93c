"""Counters and histograms by metric and label values; those of several processes add up.

Knows no metric by name.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

STAGE_SECONDS = (
    5e-6,
    1e-5,
    2e-5,
    5e-5,
    1e-4,
    2e-4,
    5e-4,
    1e-3,
    2e-3,
    5e-3,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1,
    2,
    5,
    10,
    30,
)
"""The bounds of the histogram of a stage's seconds."""

Labels = tuple[str | int, ...]
"""Label values, in the order of the metric's label names."""


@dataclass(slots=True)
class Histogram:
    """The number of values up to each bound and above the last one, and the sum of all values."""

    bounds: tuple[float, ...]
    counts: list[int] = field(init=False)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def __iadd__(self, other: Histogram) -> Histogram:
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.total += other.total
        return self

    def buckets(self) -> list[tuple[str, float]]:
        """Return bounds and cumulative counts in the form of Prometheus."""
        rows, running = [], 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            running += count
            rows.append(("+Inf" if bound == float("inf") else str(float(bound)), float(running)))
        return rows


class ByLabels(dict[Labels, Any]):
    """The numbers or histograms of one metric by label values; absent ones begin at 0."""

    def __init__(self, bounds: tuple[float, ...] = ()) -> None:
        super().__init__()
        self.bounds = bounds

    def __missing__(self, labels: Labels) -> Any:
        made = self[labels] = Histogram(self.bounds) if self.bounds else 0
        return made


class Counts:
    """Counters and histograms of one process.

    Args:
        bounds: the bounds of each metric's histograms; () for a metric that is a plain number.
    """

    def __init__(self, bounds: dict[str, tuple[float, ...]]) -> None:
        self._metrics = {name: ByLabels(own) for name, own in bounds.items()}

    def __getitem__(self, name: str) -> ByLabels:
        return self._metrics[name]

    def items(self) -> Iterator[tuple[str, list[tuple[Labels, Any]]]]:
        """Give every metric and its numbers so far; other threads may go on counting."""
        for name, by_labels in self._metrics.items():
            yield name, list(by_labels.items())

    def __iadd__(self, other: Counts) -> Counts:
        for name, rows in other.items():
            own = self._metrics[name]
            for labels, value in rows:
                own[labels] += value
        return self
