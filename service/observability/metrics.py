"""Counts events of the service, and exports the counts to Prometheus.

Counting is on the path of every small request, so it only changes plain Python numbers; a collector
converts them to samples when /metrics is read.

Labels are fixed words (route templates, codes, stages) and the names of the most used vocabularies
and keys (usage.py), so that clients cannot increase their number without bound.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from time import perf_counter
from typing import Any

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
from prometheus_client.registry import Collector
from typing_extensions import override

from service.core.call import CLIENT_CLOSED
from service.core.version import library_versions
from service.engines.base import EngineStatus
from service.observability.histogram import Histogram
from service.observability.metric_definitions import (
    ALIASED,
    ALWAYS,
    COUNTED,
    HTTP_DURATION,
    LIBRARIES,
    OUTCOMES,
    READ,
    VOCABULARY,
    Family,
)
from service.observability.usage import Usage

STANDSTILL_S = 5.0  # An event loop that is so late stands still; each reading counts it.
Labels = tuple[str | int, ...]
"""Label values, in the order of the metric's label names."""


class ByLabels(dict[Labels, Any]):
    """The numbers or histograms of one metric by label values; a missing entry starts at 0."""

    def __init__(self, bounds: tuple[float, ...] = ()) -> None:
        super().__init__()
        self.bounds = bounds

    def __missing__(self, labels: Labels) -> Any:
        made = self[labels] = Histogram(self.bounds) if self.bounds else 0
        return made


class Counts:
    """Counters and histograms of one process.

    Args:
        bounds: the bounds of each metric's histograms; () for a metric that is a number.
    """

    def __init__(self, bounds: dict[str, tuple[float, ...]]) -> None:
        self._metrics = {name: ByLabels(own) for name, own in bounds.items()}

    def __getitem__(self, name: str) -> ByLabels:
        return self._metrics[name]

    def items(self) -> Iterator[tuple[str, list[tuple[Labels, Any]]]]:
        """Return all metrics with their current numbers; other threads may count meanwhile."""
        for name, by_labels in self._metrics.items():
            yield name, list(by_labels.items())

    def __iadd__(self, other: Counts) -> Counts:
        for name, rows in other.items():
            own = self._metrics[name]
            for labels, value in rows:
                own[labels] += value
        return self


@dataclass(frozen=True, slots=True)
class VocabularySample:
    """The values of one vocabulary in the metrics."""

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
    """Functions that read the values of gauges when /metrics is read; the service sets them.

    Attributes:
        connections: returns the number of open HTTP connections, and their limit.
        grpc_connections: returns the number of open gRPC connections, and their limit.
        queue: returns the bytes and rows that wait or are being encoded.
        store: returns the free bytes and the size of the store's disk; None: no store in this
            process.
        stale_files: returns for each file that is read again whether its last reading failed.
        certificate_remaining_s: returns the seconds until the certificate of TLS expires; None:
            there is no certificate.
        vocabularies: returns the values of loaded vocabularies; `Metrics.used_names` selects those
            that are exported.
        vocabulary_states: returns the number of vocabularies in each state.
        waiting_chats: returns the number of chats that wait for a process that renders templates.
        chat_cache_bytes: returns the bytes of the cache of the ids of chat sections.
        stage_seconds: returns the seconds of each stage on a device, for batches timed since the
            last call.
        training_jobs: returns the number of training jobs by state.
    """

    connections: Callable[[], tuple[int, int]] | None = None
    grpc_connections: Callable[[], tuple[int, int]] | None = None
    queue: Callable[[], tuple[int, int]] = lambda: (0, 0)
    queue_limit_bytes: int = 0
    num_streams: Callable[[], int] = lambda: 0
    waiting_chats: Callable[[], int] = lambda: 0
    chat_cache_bytes: Callable[[], int] = lambda: 0
    ready: Callable[[], bool] = lambda: False
    store: Callable[[], tuple[int, int] | None] = lambda: None
    stale_files: Callable[[], Mapping[str, bool]] = dict
    certificate_remaining_s: Callable[[], float | None] = lambda: None
    vocabularies: Callable[[], list[VocabularySample]] = list
    vocabulary_states: Callable[[], Mapping[str, int]] = dict
    engine: Callable[[], EngineStatus] = lambda: EngineStatus(())
    stage_seconds: Callable[[], Mapping[str, list[float]]] = dict
    training_jobs: Callable[[], Mapping[str, int]] = dict


class Metrics(Collector):
    """The counters of one service, with their own Prometheus registry.

    Attributes:
        gauges: functions that read the values of gauges.
        usage: counts answered requests by route, vocabulary and key.
        used_elsewhere: the most used vocabularies of other processes.
        parse_seconds, queue_seconds, serialize_seconds: histograms of the seconds of these stages.
        encode_seconds: histogram of the seconds of batches in an engine.
        template_wait_seconds: histogram of the seconds that chats wait for a process.
    """

    def __init__(self, version: str, max_batch_bytes: int = 1, max_names: int = 20) -> None:
        self.versions = (version, *library_versions(LIBRARIES))
        self.max_batch_bytes = max_batch_bytes
        self.gauges = Gauges()
        self.usage = Usage(max_names)
        self.used_elsewhere: frozenset[str] = frozenset()
        self._taking = threading.Lock()
        self._counts = counts = make_counts()
        self._stages = counts["warptok_stage_duration_seconds"]
        self.parse_seconds = self._stages["parse",]
        self.queue_seconds = self._stages["queue",]
        self.serialize_seconds = self._stages["serialize",]
        self.encode_seconds = self._stages["encode",]
        self._received = counts["warptok_requests_received_total"]
        self._accepted = counts["warptok_work_accepted_total"]
        self._finished = counts["warptok_work_finished_total"]
        self._batches = counts["warptok_batches_total"]
        self._bytes = counts["warptok_bytes_total"]
        self._tokens = counts["warptok_tokens_total"]
        self._batch_rows = counts["warptok_batch_rows"][()]
        self._batch_bytes = counts["warptok_batch_bytes"][()]
        self._batch_fill = counts["warptok_batch_fill_ratio"][()]
        self.template_wait_seconds = counts["warptok_template_wait_seconds"][()]
        self._lag = counts["warptok_event_loop_lag_seconds"][()]
        self._timer_at = inf
        for name, all_labels in ALWAYS.items():
            for labels in all_labels:
                counts[name][labels] = 0
        self._training = {
            outcome: counts["warptok_training_duration_seconds"][outcome,] for outcome in OUTCOMES
        }
        self.registry = CollectorRegistry()
        self.registry.register(self)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)

    def count_received(self) -> None:
        """Count a request, once its head was read."""
        self._received[()] += 1

    def used_names(self) -> frozenset[str]:
        """Return the most used vocabularies of all processes."""
        return self.used_elsewhere | self.usage.vocabularies.names

    def add_stage_time(self, name: str, seconds: float) -> None:
        """Add the time of a stage of a batch; the stages of requests are separate attributes."""
        self._stages[name,].add(seconds)

    def count_batch(
        self,
        engine: str,
        operation: str,
        rows: int,
        num_bytes: int,
        num_tokens: int,
        seconds: float,
    ) -> None:
        """Count a batch, and the seconds that an engine took for it."""
        labels = engine, operation
        self._batches[labels] += 1
        self._bytes[labels] += num_bytes
        self._tokens[labels] += num_tokens
        self._batch_rows.add(rows)
        self._batch_bytes.add(num_bytes)
        self._batch_fill.add(num_bytes / self.max_batch_bytes)
        self.encode_seconds.add(seconds)

    def count_accepted(self) -> None:
        """Count a work item that the queue accepted."""
        self._accepted[()] += 1

    def count_finished(self, outcome: str) -> None:
        """Count a work item that has left the queue or the engine."""
        self._finished[outcome,] += 1

    def count_refused_rows(self, codes: Iterable[str]) -> None:
        """Count refused rows of requests whose other rows were answered."""
        for code in codes:
            self._counts["warptok_rows_refused_total"][code,] += 1

    def count_rejected(self, reason: str) -> None:
        """Count a request that was refused."""
        self._counts["warptok_requests_rejected_total"][reason,] += 1

    def count_sections(self, is_known: bool, number: int, num_bytes: int) -> None:
        """Count sections of a rendered chat, whose ids were known or new."""
        result = "known" if is_known else "new"
        self._counts["warptok_chat_sections_total"][result,] += number
        self._counts["warptok_chat_section_bytes_total"][result,] += num_bytes

    def count_cancelled(self, key: str = "") -> None:
        """Count a client that disconnected, by its API key if it has one."""
        self.usage.count_gone(key)
        self._counts["warptok_requests_cancelled_total"][()] += 1

    def count_closed_connection(self, reason: str) -> None:
        """Count a connection that the service closed before its client did."""
        self._counts["warptok_connections_closed_total"][reason,] += 1

    def count_training(self, outcome: str, seconds: float) -> None:
        """Count a training job that ended."""
        self._training[outcome].add(seconds)

    def add_loop_lag(self, seconds: float, next_at: float = inf) -> None:
        """Record the delay of an event loop timer, and the perf_counter time of the next one."""
        self._lag.add(seconds)
        self._timer_at = next_at

    def _add_standstill(self) -> None:
        """Record how late the timer already is; called on another thread than the loop's."""
        seconds = perf_counter() - self._timer_at
        if seconds > STANDSTILL_S:
            self._lag.add(seconds)

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """Return all metrics as text, as OpenMetrics if accepted, and the content type."""
        if "application/openmetrics-text" in accept:
            content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8"
            text: bytes = openmetrics(self.registry)  # type: ignore[no-untyped-call]
            return text, content_type
        return generate_latest(self.registry), "text/plain; version=0.0.4; charset=utf-8"

    def counts(self) -> Counts:
        """Return a copy of the counts of this process, including its engine."""
        with self._taking:
            for stage, timed in self.gauges.stage_seconds().items():
                histogram = self._stages[stage,]
                for seconds in timed:
                    histogram.add(seconds)
        counts, status = make_counts(), self.gauges.engine()
        counts += self._counts
        self._add_usage(counts)
        for reason, number in status.fallbacks.items():
            counts["warptok_fallbacks_total"][reason,] += number
        for device, activity in status.activity.items():
            counts["warptok_device_batches_total"][device,] += activity.num_batches
            counts["warptok_device_bytes_total"][device,] += activity.num_bytes
            counts["warptok_device_failures_total"][device,] += activity.num_failures
        return counts

    def _add_usage(self, counts: Counts) -> None:
        """Add the answered requests by route, by vocabulary and by key."""
        for labels, answers in self.usage.items():
            number = answers.num_requests
            counts["warptok_requests_total"][labels.route, labels.status] += number
            counts["warptok_request_duration_seconds"][labels.route,] += answers.durations
            if name := labels.vocabulary:
                counts["warptok_vocabulary_request_duration_seconds"][name,] += answers.durations
                counts["warptok_vocabulary_bytes_total"][name,] += answers.num_bytes
            if key := labels.key:
                counts["warptok_key_requests_total"][key, labels.status] += number
                counts["warptok_key_bytes_total"][key,] += answers.num_bytes
        for key, number in self.usage.gone().items():
            counts["warptok_key_requests_total"][key, CLIENT_CLOSED] += number

    @override
    def collect(self) -> Iterator[Metric]:
        self._add_standstill()
        counts = self.counts()
        for name, rows in counts.items():
            yield _make_counter(name, rows, COUNTED[name])
        durations = list(counts["warptok_request_duration_seconds"].items())
        yield _make_counter(HTTP_DURATION, durations, ALIASED[HTTP_DURATION])
        values = self._values()
        for name in READ:
            yield _make_gauge(name, values.get(name, []))

    def _values(self) -> dict[str, list[tuple[Labels, float]]]:
        """Read all gauges; yield the label values and the number of each."""
        gauges = self.gauges
        status, (queue_bytes, queue_rows) = gauges.engine(), gauges.queue()
        crossover, vocabularies = status.crossover_bytes, gauges.vocabularies()
        values: dict[str, list[tuple[Labels, float]]] = {
            "warptok_queue_bytes": [((), queue_bytes)],
            "warptok_queue_limit_bytes": [((), gauges.queue_limit_bytes)],
            "warptok_queue_rows": [((), queue_rows)],
            "warptok_template_queue_chats": [((), gauges.waiting_chats())],
            "warptok_chat_cache_bytes": [((), gauges.chat_cache_bytes())],
            "warptok_streams": [((), gauges.num_streams())],
            "warptok_ready": [((), float(gauges.ready()))],
            "warptok_crossover_bytes": [] if crossover is None else [((), crossover)],
            "warptok_build_info": [(self.versions, 1)],
            "warptok_file_stale": [
                ((f,), float(is_stale)) for f, is_stale in gauges.stale_files().items()
            ],
            "warptok_vocabularies": [((s,), n) for s, n in gauges.vocabulary_states().items()],
        }
        if (store := gauges.store()) is not None:
            values["warptok_store_free_bytes"] = [((), store[0])]
            values["warptok_store_size_bytes"] = [((), store[1])]
        if (remaining_s := gauges.certificate_remaining_s()) is not None:
            values["warptok_certificate_remaining_seconds"] = [((), remaining_s)]
        if gauges.connections is not None:
            num_open, limit = gauges.connections()
            values["warptok_connections"] = [((), num_open)]
            values["warptok_connections_limit"] = [((), limit)]
        if gauges.grpc_connections is not None:
            num_open, limit = gauges.grpc_connections()
            values["warptok_grpc_connections"] = [((), num_open)]
            values["warptok_grpc_connections_limit"] = [((), limit)]
        for device, parts in status.memory.items():
            rows = [((device, part), num_bytes) for part, num_bytes in parts.items()]
            values.setdefault("warptok_device_memory_bytes", []).extend(rows)
        values["warptok_page_locked_bytes"] = [((d,), n) for d, n in status.page_locked.items()]
        values["warptok_device_up"] = [((d,), float(up)) for d, up in status.up.items()]
        values["warptok_device_bytes_in_flight"] = [
            ((d,), activity.bytes_in_flight) for d, activity in status.activity.items()
        ]
        jobs = gauges.training_jobs()
        values["warptok_training_jobs"] = [
            ((state,), jobs.get(state, 0)) for state in ("queued", "running", "interrupted")
        ]
        values["warptok_vocabulary_info"] = [
            (tuple(str(getattr(each, label)) for label in VOCABULARY), 1) for each in vocabularies
        ]
        for name, attribute in (
            ("warptok_vocabulary_device_bytes", "device_bytes"),
            ("warptok_self_test_texts", "num_texts"),
            ("warptok_self_test_different", "num_different"),
        ):
            values[name] = [((each.name,), getattr(each, attribute)) for each in vocabularies]
        return values


def make_counts() -> Counts:
    """Make counts of COUNTED, all zero."""
    return Counts({name: family.bounds for name, family in COUNTED.items()})


def _make_counter(name: str, rows: list[tuple[Labels, Any]], family: Family) -> Metric:
    """Make a counter or a histogram with its samples."""
    documentation, labels, bounds = family
    if not bounds:
        counter = CounterMetricFamily(name, documentation, labels=labels)
        for values, number in rows:
            counter.add_metric(list(map(str, values)), number)
        return counter
    histogram = HistogramMetricFamily(name, documentation, labels=labels)
    for values, each in rows:
        histogram.add_metric(list(map(str, values)), each.buckets(), each.total)
    return histogram


def _make_gauge(name: str, rows: list[tuple[Labels, float]]) -> Metric:
    """Make a gauge, which has no samples if it has no value."""
    gauge = GaugeMetricFamily(name, READ[name].documentation, labels=READ[name].labels)
    for values, number in rows:
        gauge.add_metric(list(map(str, values)), number)
    return gauge
