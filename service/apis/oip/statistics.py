"""Counts the requests of each model, in the format of Triton's statistics."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from service.registry.entries import DECODE_SUFFIX

VERSION = "1"


@dataclass(slots=True)
class Duration:
    """How often something happened, and the total time that it took."""

    count: int = 0
    ns: int = 0

    def add(self, seconds: float) -> None:
        """Add an event that took `seconds`."""
        self.count += 1
        self.ns += max(0, int(seconds * 1e9))

    def report(self) -> dict[str, int]:
        """Return the duration in Triton's format."""
        return {"count": self.count, "ns": self.ns}


@dataclass(slots=True)
class ModelStatistics:
    """The statistics of a model since the service has started."""

    inference_count: int = 0
    execution_count: int = 0
    last_inference_ms: int = 0
    success: Duration = field(default_factory=Duration)
    fail: Duration = field(default_factory=Duration)
    queue: Duration = field(default_factory=Duration)
    compute: Duration = field(default_factory=Duration)

    def add_failure(self, seconds: float) -> None:
        """Count a request that failed."""
        self.fail.add(seconds)

    def add_success(self, num_rows: int, queue_s: float, seconds: float) -> None:
        """Count a request that was answered.

        Args:
            num_rows: the number of its texts or rows of ids.
            queue_s: the number of seconds that it waited in the queue.
            seconds: the number of seconds from its start to its answer, including `queue_s`.
        """
        self.inference_count += num_rows
        self.execution_count += 1
        self.last_inference_ms = int(time.time() * 1000)
        self.success.add(seconds)
        self.queue.add(queue_s)
        self.compute.add(seconds - queue_s)


@dataclass(slots=True)
class Statistics:
    """The statistics of all models that have received requests."""

    models: dict[str, ModelStatistics] = field(default_factory=dict)

    def get(self, model: str) -> ModelStatistics:
        """Return the statistics of a model, which are created for its first request."""
        return self.models.setdefault(model, ModelStatistics())

    def forget(self, vocabulary: str) -> None:
        """Drop the statistics of the models of a vocabulary that was deleted."""
        for model in (vocabulary, vocabulary + DECODE_SUFFIX):
            self.models.pop(model, None)

    def report(self, models: list[str]) -> list[dict[str, Any]]:
        """Return the statistics in Triton's format."""
        return [_report(model, self.models.get(model, ModelStatistics())) for model in models]


def _report(model: str, found: ModelStatistics) -> dict[str, Any]:
    return {
        "name": model,
        "version": VERSION,
        "last_inference": found.last_inference_ms,
        "inference_count": found.inference_count,
        "execution_count": found.execution_count,
        "inference_stats": {
            "success": found.success.report(),
            "fail": found.fail.report(),
            "queue": found.queue.report(),
            "compute_infer": found.compute.report(),
        },
    }
