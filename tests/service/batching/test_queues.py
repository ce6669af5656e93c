"""Clients of one queue take turns by bytes, whatever sizes they send, and nothing is lost."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.batching.batcher import QUANTUM, Queue
from service.batching.work import EncodeWork
from tests.support.fake_engine import byte_vocabulary

VOCABULARY = byte_vocabulary()


def work(client: str, num_bytes: int) -> EncodeWork:
    return EncodeWork(VOCABULARY, ["x"], num_bytes=num_bytes, client=client)


def keep(_: EncodeWork) -> bool:
    return False


def test_busy_clients_get_equal_bytes_for_requests_of_any_size():
    queue = Queue()
    for _ in range(4000):
        queue.add(work("many small", 1000))
    for _ in range(40):
        queue.add(work("few large", 100_000))
    for _ in range(4):
        queue.add(work("huge", 1_000_000))
    taken: defaultdict[str, int] = defaultdict(int)
    for _ in range(20):
        for each in queue.take(300_000, keep):
            taken[each.client] += each.num_bytes
        largest = max(taken.values())
        assert all(largest - taken[c] <= 2 * QUANTUM + 1_000_000 for c in ("many small", "huge"))
    assert taken["many small"] == pytest.approx(taken["few large"], abs=2 * QUANTUM + 100_000)


def test_one_small_request_of_a_quiet_client_is_in_the_next_batch():
    queue = Queue()
    for _ in range(10_000):
        queue.add(work("busy", 5000))
    queue.take(8 << 20, keep)
    queue.add(work("quiet", 100))
    assert "quiet" in {each.client for each in queue.take(256_000, keep)}


def test_the_credit_of_the_only_client_is_not_limited():
    queue = Queue()
    for _ in range(100):
        queue.add(work("", 100_000))
    assert len(queue.take(8_000_000, keep)) == 80


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4 * QUANTUM)), max_size=40))
def test_each_work_item_is_taken_once_in_its_clients_order(sizes):
    queue, added, taken = Queue(), defaultdict(list), defaultdict(list)
    chance = random.Random(len(sizes))
    for client, size in sizes:
        each = work(client, size)
        queue.add(each)
        added[client].append(each)
        if chance.random() < 0.2:
            for got in queue.take(QUANTUM, keep):
                taken[got.client].append(got)
    assert queue.num_bytes == sum(each.num_bytes for each in queue)
    while queue:
        works = queue.take(3 * QUANTUM, keep)
        assert works
        assert len(works) == 1 or sum(each.num_bytes for each in works) <= 3 * QUANTUM
        for got in works:
            taken[got.client].append(got)
    assert taken == added
    assert queue.num_bytes == 0


def test_what_is_dropped_is_nowhere():
    queue = Queue()
    works = [work(client, 10) for client in "abab"]
    for each in works:
        queue.add(each)
    queue.remove(lambda each: each in works[:2])
    assert list(queue) == works[2:]
    assert queue.num_bytes == 20
    assert queue.take(100, lambda each: each is works[2]) == works[3:]
    assert not queue
