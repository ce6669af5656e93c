"""Requests are counted by route, by vocabulary and by key, and the number of series is bounded."""

from __future__ import annotations

import re

from service.observability.metrics import Metrics
from service.observability.usage import OTHER, Usage


def count(usage: Usage, vocabulary: str, number: int = 1, key: str = "") -> None:
    for _ in range(number):
        usage.count("/v1/encode", 200, 0.001, 10, key, vocabulary)


def by_vocabulary(usage: Usage) -> dict[str, int]:
    found: dict[str, int] = {}
    for labels, answers in usage.items():
        found[labels.vocabulary] = found.get(labels.vocabulary, 0) + answers.num_requests
    return found


def test_names_beyond_the_limit_count_together():
    usage = Usage(2)
    for name in ("a", "b", "c", "d", "a"):
        count(usage, name)
    assert by_vocabulary(usage) == {"a": 2, "b": 1, OTHER: 2}
    assert sum(answers.num_bytes for _, answers in usage.items()) == 50


def test_a_name_that_is_used_more_replaces_the_least_used_one():
    usage = Usage(2)
    count(usage, "often", 5)
    count(usage, "seldom", 1)
    count(usage, "new", 1)
    usage.choose()  # One request is not twice as many as one.
    assert usage.vocabularies.names == {"often", "seldom"}
    count(usage, "often", 5)
    count(usage, "seldom", 2)
    count(usage, "new", 4)
    usage.choose()
    assert usage.vocabularies.names == {"often", "new"}
    count(usage, "new")
    # What was counted of the replaced one stays in the sums by route, and OTHER does not jump.
    assert by_vocabulary(usage) == {"often": 10, OTHER: 5, "": 3, "new": 1}
    count(usage, "seldom", 100)
    usage.choose()
    count(usage, "seldom")
    assert by_vocabulary(usage)["seldom"] == 1


def test_unused_names_are_not_replaced_by_unused_ones():
    usage = Usage(0)
    count(usage, "a", 3)
    usage.choose()
    assert by_vocabulary(usage) == {OTHER: 3}


def test_thousands_of_names_make_a_bounded_number_of_series():
    metrics = Metrics("1", max_names=20)
    for name in range(5_000):
        metrics.usage.count("/v1/encode", 200, 0.001, 10, f"key-{name}", f"vocabulary-{name}")
    assert len(metrics.usage.items()) < 50
    text = metrics.exposition()[0].decode()
    for label in ("key", "vocabulary"):
        assert len(set(re.findall(rf'{label}="([^"]*)"', text))) == 21
    assert 'warptok_requests_total{route="/v1/encode",status="200"} 5000.0' in text
    assert 'warptok_request_duration_seconds_count{route="/v1/encode"} 5000.0' in text
    assert 'warptok_key_bytes_total{key="other"} 49800.0' in text
    assert len(text) < 100_000


def test_requests_of_a_key_count_by_status_whether_it_waited_for_the_answer_or_not():
    metrics = Metrics("1")
    metrics.usage.count("/v1/encode", 200, 0.001, 100, "alice", "gpt2")
    metrics.usage.count("/v1/count", 429, 0.001, 0, "alice", "gpt2")
    metrics.count_cancelled("alice")
    metrics.count_cancelled()
    text = metrics.exposition()[0].decode()
    assert re.findall(r'warptok_key_requests_total\{key="alice",status="(\d+)"\} 1.0', text) == [
        "200",
        "429",
        "499",
    ]
    assert 'warptok_vocabulary_request_duration_seconds_count{vocabulary="gpt2"} 2.0' in text
    assert 'warptok_vocabulary_bytes_total{vocabulary="gpt2"} 100.0' in text
    assert "warptok_requests_cancelled_total 2.0" in text
