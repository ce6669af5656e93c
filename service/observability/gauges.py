"""Where the metrics read what has a value now, and not a count.

Knows neither the metrics' names nor Prometheus.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from service.engines.base import EngineStatus


@dataclass(frozen=True, slots=True)
class VocabularySample:
    """One vocabulary as the metrics show it."""

    name: str
    digest: str
    kind: str
    state: str
    engine: str
    encoder: str
    num_texts: int
    num_different: int
    device_bytes: int = 0


@dataclass(slots=True)
class Gauges:
    """Where values are read from when /metrics is; the service sets them.

    Attributes:
        queue: bytes and rows that wait or are being encoded.
        training_jobs: how many there are by state.
    """

    queue: Callable[[], tuple[int, int]] = lambda: (0, 0)
    queue_limit_bytes: int = 0
    num_streams: Callable[[], int] = lambda: 0
    ready: Callable[[], bool] = lambda: False
    vocabularies: Callable[[], list[VocabularySample]] = list
    engine: Callable[[], EngineStatus] = lambda: EngineStatus(())
    training_jobs: Callable[[], Mapping[str, int]] = dict
