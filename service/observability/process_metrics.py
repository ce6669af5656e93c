"""What the processes of one service have to say to each other, seen from one of them."""

from __future__ import annotations

from typing import Any, Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
from prometheus_client.registry import Collector
from typing_extensions import override

Families = list[tuple[str, str, str, list[tuple[str, dict[str, str], float]]]]
"""Families of metrics as values: name, documentation, type, samples with their labels."""


class Processes(Protocol):
    """The other processes of the same service."""

    def reasons(self) -> list[str]:
        """Why requests should not come here, as far as the other processes know."""

    async def spread(self) -> None:
        """Return when every process knows the vocabularies that there are now."""

    async def families(self) -> dict[str, Families]:
        """What each process counts, by its name; this one's included."""


def collect_families(registry: CollectorRegistry) -> Families:
    """Collect what one process counts."""
    return [
        (
            family.name,
            family.documentation,
            family.type,
            [(sample.name, dict(sample.labels), sample.value) for sample in family.samples],
        )
        for family in registry.collect()
    ]


class Joined(Collector):
    """The families of several processes, told apart by the label `process`."""

    def __init__(self, processes: dict[str, Families]) -> None:
        self.joined: dict[str, Metric] = {}
        for process, families in processes.items():
            for name, documentation, kind, samples in families:
                family = self.joined.setdefault(name, Metric(name, documentation, kind))
                for sample, labels, value in samples:
                    family.add_sample(sample, {**labels, "process": process}, value)

    @override
    def collect(self) -> list[Metric]:
        return list(self.joined.values())


def exposition(processes: dict[str, Families], accept: str = "") -> tuple[bytes, str]:
    """The metrics of several processes as one text, and its content type.

    Nothing is added up: a process that is started again begins its counters at zero, which a
    reader can only see, and correct, in a series of its own.
    """
    registry = CollectorRegistry()
    registry.register(Joined(processes))
    if "application/openmetrics-text" in accept:
        content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8"
        text: Any = openmetrics(registry)  # type: ignore[no-untyped-call]
        return text, content_type
    return generate_latest(registry), "text/plain; version=0.0.4; charset=utf-8"
