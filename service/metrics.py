"""What the service counts, and how Prometheus reads it.

Counting must cost less than a microsecond, because it stands in the path of every small request:
events go into plain Python numbers here; a collector makes samples of them when /metrics is read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
from prometheus_client.registry import Collector

from service.engines import EngineStatus

__all__ = ["DOCUMENTATION", "Metrics", "VocabularySample"]

SECONDS = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384, 65536)
BYTES = tuple(256 * 4**i for i in range(10))

DOCUMENTATION: dict[str, str] = {
    "warptok_requests_total": "Answered HTTP requests by route and status.",
    "warptok_request_duration_seconds": "Time from a request's head to its answer's end, by route.",
    "warptok_stage_duration_seconds": "Time in each stage: parse, queue, encode, serialize.",
    "warptok_batches_total": "Batches run, by engine and operation.",
    "warptok_batch_rows": "Texts or rows of ids in a batch.",
    "warptok_batch_bytes": "Bytes in a batch.",
    "warptok_bytes_total": "Bytes given to an engine, by engine and operation.",
    "warptok_tokens_total": "Ids made or read by an engine, by engine and operation.",
    "warptok_rows_refused_total": "Rows of a batch that were refused alone, by reason.",
    "warptok_requests_rejected_total": "Requests refused before an engine saw them, by reason.",
    "warptok_requests_cancelled_total": "Requests whose client left before the answer.",
    "warptok_fallbacks_total": "Batches meant for the GPU that something slower took, by reason.",
    "warptok_crossover_bytes": "Size of a batch from which on it is meant for the GPU.",
    "warptok_queue_bytes": "Bytes waiting or being encoded.",
    "warptok_queue_rows": "Rows waiting or being encoded.",
    "warptok_event_loop_lag_seconds": "How late the event loop last came to a timer.",
    "warptok_ready": "1 while /readyz says ready.",
    "warptok_vocabulary_info": "A known vocabulary: name, digest, kind, state, engine, encoder.",
    "warptok_self_test_texts": "Texts on which a vocabulary was compared with its witness.",
    "warptok_self_test_different": "Texts of the comparison whose ids differed.",
    "warptok_vocabulary_device_bytes": "Bytes that a vocabulary takes on the GPU.",
    "warptok_build_info": "Version of the service.",
}


@dataclass(slots=True)
class Histogram:
    """Counts below each bound, their number above the last one, and the sum."""

    bounds: tuple[float, ...]
    counts: list[int] = field(init=False)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts as Prometheus wants them."""
        rows, running = [], 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            running += count
            rows.append(("+Inf" if bound == float("inf") else str(float(bound)), float(running)))
        return rows


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


def _seconds() -> Histogram:
    return Histogram(SECONDS)


class Metrics(Collector):
    """The counters of one service; its registry belongs to it alone.

    Gauges are read when /metrics is: `queue`, `ready`, `vocabularies` and `engine` are callables.
    """

    def __init__(self, version: str) -> None:
        self.version = version
        self.queue: Callable[[], tuple[int, int]] = lambda: (0, 0)
        self.ready: Callable[[], bool] = lambda: False
        self.vocabularies: Callable[[], list[VocabularySample]] = list
        self.engine: Callable[[], EngineStatus] = lambda: EngineStatus(())
        self.loop_lag_s = 0.0
        self._requests: defaultdict[tuple[str, int], int] = defaultdict(int)
        self._durations: defaultdict[str, Histogram] = defaultdict(_seconds)
        self._stages: defaultdict[str, Histogram] = defaultdict(_seconds)
        self._batches: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
        self._batch_rows, self._batch_bytes = Histogram(ROWS), Histogram(BYTES)
        self._refused: defaultdict[str, int] = defaultdict(int)
        self._rejected: defaultdict[str, int] = defaultdict(int)
        self._cancelled = 0
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def requests(self, route: str, status: int, seconds: float) -> None:
        """One answered request."""
        self._requests[route, status] += 1
        self._durations[route].add(seconds)

    def stage(self, name: str, seconds: float) -> None:
        """Time spent in a stage."""
        self._stages[name].add(seconds)

    def batch(
        self, engine: str, operation: str, rows: int, num_bytes: int, num_tokens: int
    ) -> None:
        """One batch that an engine ran."""
        counts = self._batches[engine, operation]
        counts[0] += 1
        counts[1] += num_bytes
        counts[2] += num_tokens
        self._batch_rows.add(rows)
        self._batch_bytes.add(num_bytes)

    def row_refused(self, code: str) -> None:
        """One row that was refused alone."""
        self._refused[code] += 1

    def rejected(self, reason: str) -> None:
        """One request that no engine saw."""
        self._rejected[reason] += 1

    def cancelled(self) -> None:
        """One client that left."""
        self._cancelled += 1

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """Everything as text, and its content type; OpenMetrics where the reader asks for it."""
        if "application/openmetrics-text" in accept:
            content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8"
            text: bytes = openmetrics(self.registry)  # type: ignore[no-untyped-call]
            return text, content_type
        return generate_latest(self.registry), "text/plain; version=0.0.4; charset=utf-8"

    def collect(self) -> Iterator[Metric]:
        """All samples, in the order of DOCUMENTATION."""
        yield from self._collect_requests()
        yield from self._collect_batches()
        yield from self._collect_engine()
        yield from self._collect_state()

    def _collect_requests(self) -> Iterator[Metric]:
        requests = _counter("warptok_requests_total", "route", "status")
        for (route, status), count in list(self._requests.items()):
            requests.add_metric([route, str(status)], count)
        yield requests
        yield _histogram("warptok_request_duration_seconds", "route", self._durations)
        yield _histogram("warptok_stage_duration_seconds", "stage", self._stages)

    def _collect_batches(self) -> Iterator[Metric]:
        batches = _counter("warptok_batches_total", "engine", "operation")
        num_bytes = _counter("warptok_bytes_total", "engine", "operation")
        tokens = _counter("warptok_tokens_total", "engine", "operation")
        for labels, counts in list(self._batches.items()):
            for family, count in zip((batches, num_bytes, tokens), counts, strict=True):
                family.add_metric(labels, count)
        yield batches
        yield _histogram("warptok_batch_rows", None, {"": self._batch_rows})
        yield _histogram("warptok_batch_bytes", None, {"": self._batch_bytes})
        yield num_bytes
        yield tokens
        yield _counted("warptok_rows_refused_total", "reason", self._refused)
        yield _counted("warptok_requests_rejected_total", "reason", self._rejected)
        cancelled = _counter("warptok_requests_cancelled_total")
        cancelled.add_metric([], self._cancelled)
        yield cancelled

    def _collect_engine(self) -> Iterator[Metric]:
        status = self.engine()
        yield _counted("warptok_fallbacks_total", "reason", status.fallbacks)
        yield _gauge("warptok_crossover_bytes", status.crossover_bytes)

    def _collect_state(self) -> Iterator[Metric]:
        queue_bytes, queue_rows = self.queue()
        yield _gauge("warptok_queue_bytes", queue_bytes)
        yield _gauge("warptok_queue_rows", queue_rows)
        yield _gauge("warptok_event_loop_lag_seconds", self.loop_lag_s)
        yield _gauge("warptok_ready", float(self.ready()))
        labels = ("name", "digest", "kind", "state", "engine", "encoder")
        info = GaugeMetricFamily(
            "warptok_vocabulary_info", DOCUMENTATION["warptok_vocabulary_info"], labels=labels
        )
        texts = _labelled_gauge("warptok_self_test_texts")
        different = _labelled_gauge("warptok_self_test_different")
        device_bytes = _labelled_gauge("warptok_vocabulary_device_bytes")
        for sample in self.vocabularies():
            info.add_metric([getattr(sample, label) for label in labels], 1)
            texts.add_metric([sample.name], sample.num_texts)
            different.add_metric([sample.name], sample.num_different)
            device_bytes.add_metric([sample.name], sample.device_bytes)
        yield from (info, texts, different, device_bytes)
        yield InfoMetricFamily(
            "warptok_build", DOCUMENTATION["warptok_build_info"], {"version": self.version}
        )


def _counter(name: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(name, DOCUMENTATION[name], labels=labels)


def _counted(name: str, label: str, counts: dict[str, int]) -> CounterMetricFamily:
    family = _counter(name, label)
    for value, count in list(counts.items()):
        family.add_metric([value], count)
    return family


def _gauge(name: str, value: float | None) -> GaugeMetricFamily:
    """A gauge; without a sample where there is no value."""
    return GaugeMetricFamily(name, DOCUMENTATION[name], value=value)


def _labelled_gauge(name: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, DOCUMENTATION[name], labels=["name"])


def _histogram(
    name: str, label: str | None, histograms: dict[str, Histogram]
) -> HistogramMetricFamily:
    labels = [] if label is None else [label]
    family = HistogramMetricFamily(name, DOCUMENTATION[name], labels=labels)
    for value, histogram in list(histograms.items()):
        values = [] if label is None else [value]
        family.add_metric(values, histogram.buckets(), histogram.total)
    return family
