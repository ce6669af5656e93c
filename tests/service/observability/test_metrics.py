"""Counted events appear in /metrics under their documented names."""

from __future__ import annotations

import re
from collections.abc import Callable
from time import perf_counter, thread_time

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from service.observability.metric_definitions import FAMILIES
from service.observability.metrics import Gauges, Metrics, VocabularySample
from tests.support.data_files import ROOT


def filled() -> Metrics:
    metrics = Metrics("1.2.3", max_batch_bytes=1000)
    metrics.usage.count("/v1/encode", 200, 0.003, 40, "alice", "gpt2")
    metrics.usage.count("/v1/encode", 200, 0.5, 60, "", "gpt2")
    metrics.usage.count("/v1/encode", 422, 100.0, 0, "", "")
    metrics.add_stage_time("queue", 0.001)
    metrics.count_batch("cpu", "encode", 3, 700, 150, 0.002)
    metrics.count_batch("cpu", "encode", 1, 50, 10, 0.004)
    metrics.count_refused_rows(["not_utf8"])
    metrics.count_rejected("queue_full")
    metrics.count_cancelled()
    metrics.add_loop_lag(0.004)
    metrics.count_training("finished", 90.0)
    sample = VocabularySample("gpt2", "sha256:x", "bpe", "loaded", "cpu", "warptok C++", 40, 1)
    metrics.gauges = Gauges(
        queue=lambda: (12, 3),
        queue_limit_bytes=100,
        num_streams=lambda: 2,
        ready=lambda: True,
        store=lambda: (1000, 5000),
        vocabularies=lambda: [sample],
        vocabulary_states=lambda: {"loaded": 17},
        training_jobs=lambda: {"running": 1, "finished": 3},
    )
    return metrics


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text, _ = metrics.exposition()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


@pytest.mark.parametrize("name", ["warptok_requests_rejected_total", "warptok_fallbacks_total"])
def test_what_has_an_alert_is_there_before_the_first_one(name):
    rules = (ROOT / "deploy/alerts.yml").read_text()
    told = re.findall(name + r'\{reason=~?"([a-z_|]+)"\}\[\d+m\]\)\) > 0\n', rules)
    got = samples(Metrics("1.0"))
    assert told
    for reason in "|".join(told).split("|"):
        assert got[name, (("reason", reason),)] == 0


def test_the_times_of_stages_on_a_device_stay_counted():
    metrics = Metrics("1.0")
    taken = [{"merge": [0.5], "fused": []}, {"merge": [], "fused": []}]
    metrics.gauges.stage_seconds = lambda: taken.pop(0)
    for _ in range(2):
        got = samples(metrics)
        assert got["warptok_stage_duration_seconds_sum", (("stage", "merge"),)] == 0.5
        assert got["warptok_stage_duration_seconds_count", (("stage", "fused"),)] == 0


def test_a_loop_that_stands_still_is_late_at_each_reading():
    metrics = Metrics("1.0")
    metrics.add_loop_lag(0.001, perf_counter() + 0.25)
    assert samples(metrics)["warptok_event_loop_lag_seconds_count", ()] == 1
    metrics.add_loop_lag(0.001, perf_counter() - 60)
    samples(metrics)
    got = samples(metrics)
    assert got["warptok_event_loop_lag_seconds_count", ()] == 4
    assert got["warptok_event_loop_lag_seconds_bucket", (("le", "30.0"),)] == 2


def test_counts_come_out_as_they_went_in():
    got = samples(filled())
    ok = (("route", "/v1/encode"), ("status", "200"))
    assert got["warptok_requests_total", ok] == 2
    route = (("route", "/v1/encode"),)
    assert got["warptok_request_duration_seconds_count", route] == 3
    assert got["warptok_request_duration_seconds_sum", route] == 100.503
    assert got["warptok_request_duration_seconds_bucket", (("le", "0.005"), *route)] == 1
    assert got["warptok_request_duration_seconds_bucket", (("le", "0.5"), *route)] == 2
    assert got["warptok_request_duration_seconds_bucket", (("le", "30.0"), *route)] == 2
    assert got["warptok_request_duration_seconds_bucket", (("le", "+Inf"), *route)] == 3
    encode = (("engine", "cpu"), ("operation", "encode"))
    assert got["warptok_batches_total", encode] == 2
    assert got["warptok_bytes_total", encode] == 750
    assert got["warptok_tokens_total", encode] == 160
    assert got["warptok_batch_rows_sum", ()] == 4
    assert got["warptok_batch_fill_ratio_sum", ()] == 0.75
    assert got["warptok_event_loop_lag_seconds_bucket", (("le", "0.005"),)] == 1
    assert got["warptok_rows_refused_total", (("reason", "not_utf8"),)] == 1
    assert got["warptok_requests_rejected_total", (("reason", "queue_full"),)] == 1
    assert got["warptok_requests_cancelled_total", ()] == 1
    assert (got["warptok_queue_bytes", ()], got["warptok_queue_rows", ()]) == (12, 3)
    assert got["warptok_queue_limit_bytes", ()] == 100
    assert got["warptok_streams", ()] == 2
    assert got["warptok_training_jobs", (("state", "running"),)] == 1
    assert got["warptok_training_jobs", (("state", "queued"),)] == 0
    assert got["warptok_training_duration_seconds_sum", (("outcome", "finished"),)] == 90
    assert got["warptok_ready", ()] == 1
    assert got["warptok_self_test_different", (("name", "gpt2"),)] == 1
    (build,) = (dict(labels) for name, labels in got if name == "warptok_build_info")
    assert build["version"] == "1.2.3" and build["python"] and build["tokenizers"]
    assert got["warptok_key_requests_total", (("key", "alice"), ("status", "200"))] == 1
    assert got["warptok_vocabulary_bytes_total", (("vocabulary", "gpt2"),)] == 100
    assert got["warptok_vocabularies", (("state", "loaded"),)] == 17
    assert got["warptok_store_free_bytes", ()] == 1000
    assert got["warptok_store_size_bytes", ()] == 5000


def test_every_documented_metric_is_written_and_nothing_else_of_ours():
    text, _ = filled().exposition()
    written = {
        row.split()[2] for row in text.decode().splitlines() if row.startswith("# HELP warptok_")
    }
    assert written == set(FAMILIES)


def test_openmetrics_is_written_for_those_who_ask():
    text, content_type = filled().exposition("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert any(f.name == "warptok_requests" for f in parse_openmetrics(text.decode()))


def test_two_services_in_one_process_count_apart():
    first, second = filled(), Metrics("2")
    assert ("warptok_requests_cancelled_total", ()) in samples(first)
    assert samples(second)["warptok_requests_cancelled_total", ()] == 0


def test_counting_a_request_costs_next_to_nothing():
    metrics, rounds, names = Metrics("1"), 5_000, [f"name {i}" for i in range(20)]

    def seconds(work: Callable[[], object]) -> float:
        begin = thread_time()
        for _ in range(rounds):
            work()
        return thread_time() - begin

    def count() -> None:
        metrics.usage.count("/v1/encode", 200, 0.001, 40, "alice", "gpt2")

    # Beside what this machine takes for a little Python, not in microseconds of another one.
    yardstick_s = min(seconds(lambda: dict.fromkeys(names)) for _ in range(3))
    assert min(seconds(count) for _ in range(3)) < 10 * yardstick_s
