"""Results in the order of their tasks, and an end without a wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from service.corpus.parts import ordered
from service.corpus.parts.ordered import OrderedRun

POLL_S = 120.0


def test_results_are_in_order_and_the_end_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered, "POLL_S", POLL_S)
    tasks: list[Callable[[], int]] = [partial(abs, -number) for number in range(50)]
    begun = time.perf_counter()
    with ThreadPoolExecutor(3) as pool:
        assert list(OrderedRun[int](pool, 4).run(iter(tasks))) == list(range(50))
    assert time.perf_counter() - begun < POLL_S


def test_an_error_of_the_tasks_is_raised_behind_the_results() -> None:
    def tasks() -> Iterator[Callable[[], int]]:
        yield lambda: 1
        raise ValueError("no more")

    results = []
    with ThreadPoolExecutor(1) as pool, pytest.raises(ValueError, match="no more"):
        for result in OrderedRun[int](pool, 2).run(tasks()):
            results.append(result)
    assert results == [1]
