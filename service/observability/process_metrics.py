"""Joins the metrics of a service's processes, and declares the calls between processes."""

from __future__ import annotations

from typing import Any, Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
from prometheus_client.registry import Collector
from typing_extensions import override

Families = list[tuple[str, str, str, list[tuple[str, dict[str, str], float]]]]
"""Metrics as plain values: name, help text, type, and samples with labels."""


class Processes(Protocol):
    """The other processes of the same service."""

    def reasons(self) -> list[str]:
        """Return the reasons of other processes for which the service is not ready."""

    async def synchronize(self) -> None:
        """Wait until every process has the current vocabularies."""

    async def families(self) -> dict[str, Families]:
        """Return the metrics of each process by its name, including this process."""


def collect_families(registry: CollectorRegistry) -> Families:
    """Collect the metrics of one process."""
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
    """Joins the metrics of several processes; the label `process` distinguishes them."""

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
    """Return the metrics of several processes as one text, and its content type.

    Counters are not summed: a restarted process counts from zero, and Prometheus can correct for
    that only if each process has its own series.
    """
    registry = CollectorRegistry()
    registry.register(Joined(processes))
    if "application/openmetrics-text" in accept:
        content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8"
        text: Any = openmetrics(registry)  # type: ignore[no-untyped-call]
        return text, content_type
    return generate_latest(registry), "text/plain; version=0.0.4; charset=utf-8"
