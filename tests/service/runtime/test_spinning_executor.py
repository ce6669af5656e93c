"""Threads that look for more work before they sleep: who gets it, what it costs, what is lost."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from gpu.host import copy_pool
from service.batching.lanes import make_lanes
from service.runtime import spinning_executor
from service.runtime.spinning_executor import LONGEST_S, SHARE, AwakeThreads
from tests.support.compiled import extension
from tests.support.data_files import ROOT
from tests.support.thread_times import cpu_seconds
from tests.support.waiting import GIVEN_UP_S, wait_until


@pytest.fixture(scope="module")
def look():
    return extension(ROOT / "gpu/host/native/copy_pool.cpp", "_copy_pool").look


@pytest.fixture(params=["awake", "asleep"])
def threads(request, look):
    threads = AwakeThreads(ThreadPoolExecutor(2), look if request.param == "awake" else None)
    yield threads
    threads.shutdown()


class Patient:
    """Looks at flags as the extension does, but for as long as the test likes."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.is_over = threading.Event()

    def __call__(self, flag: bytearray, seconds: float) -> bool:
        self.asked.append(seconds)
        while not flag[0] and not self.is_over.is_set():
            time.sleep(0.001)
        return bool(flag[0])


def who_runs(threads: AwakeThreads) -> int:
    """The thread that does a piece of work."""
    found, is_done = [], threading.Event()

    def run() -> None:
        found.append(threading.get_ident())
        is_done.set()

    threads.submit(run)
    assert is_done.wait(GIVEN_UP_S)
    return found[0]


def test_all_work_is_done_once_whenever_it_comes(threads):
    done: list[int] = []
    for number in range(300):
        threads.submit(lambda number=number: done.append(number))
        time.sleep((0, 0.0001, 0.0005, 0.003)[number % 4])
    wait_until(lambda: len(done) == 300)
    assert sorted(done) == list(range(300))


def test_work_of_many_at_once_is_done_once(threads):
    done: list[int] = []

    def ask(first: int) -> None:
        for number in range(first, first + 500):
            threads.submit(lambda number=number: done.append(number))

    askers = [threading.Thread(target=ask, args=(first,)) for first in range(0, 2000, 500)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    wait_until(lambda: len(done) == 2000)
    assert sorted(done) == list(range(2000))


def test_the_thread_that_was_at_work_has_the_next_while_the_other_sleeps():
    look = Patient()
    threads = AwakeThreads(ThreadPoolExecutor(2), look)
    first = who_runs(threads)
    for number in range(1, 20):
        wait_until(lambda number=number: len(look.asked) == number)
        assert who_runs(threads) == first
    look.is_over.set()
    threads.shutdown()


def test_what_comes_at_once_is_done_at_once():
    look, both = Patient(), threading.Barrier(2)
    threads, are_done = AwakeThreads(ThreadPoolExecutor(2), look), []
    who_runs(threads)
    wait_until(lambda: look.asked)
    for _ in range(2):
        threads.submit(lambda: are_done.append(both.wait(GIVEN_UP_S)))
    wait_until(lambda: len(are_done) == 2)
    look.is_over.set()
    threads.shutdown()


def test_a_thread_looks_for_a_share_of_what_its_work_took_and_never_long(monkeypatch):
    asked: list[float] = []
    times = iter([1.0, 1.005, 2.0, 2.0, 3.0, 4.0])
    monkeypatch.setattr(spinning_executor, "perf_counter", lambda: next(times))
    threads = AwakeThreads(ThreadPoolExecutor(1), lambda _, seconds: bool(asked.append(seconds)))
    for count in (1, 2, 3):
        who_runs(threads)
        wait_until(lambda count=count: len(asked) == count)
    assert asked == pytest.approx([SHARE * 0.005, 0.0, LONGEST_S])
    threads.shutdown()


def test_a_thread_without_work_sleeps(look):
    threads = AwakeThreads(ThreadPoolExecutor(2), look)
    both, workers = threading.Barrier(2), set()

    def work() -> None:
        both.wait(GIVEN_UP_S)
        time.sleep(0.05)  # Long enough to look for more afterwards.
        workers.add(threading.get_native_id())

    for _ in range(2):
        threads.submit(work)
    wait_until(lambda: len(workers) == 2)
    begin_s = cpu_seconds(workers)
    time.sleep(0.3)
    assert cpu_seconds(workers) - begin_s < 0.1
    wait_until(lambda: not threads._looking)
    threads.shutdown()


def test_work_that_is_given_late_is_still_done():
    """Between its time being over and its leaving, somebody has taken the thread."""
    threads = AwakeThreads(ThreadPoolExecutor(1), None)
    given: list[int] = []

    def look(flag: bytearray, seconds: float) -> bool:
        if not given:
            given.append(1)
            seat = threads._looking.pop()
            threading.Timer(0.05, lambda: seat.give(lambda: given.append(2))).start()
        return bool(flag[0])

    threads._look = look
    threads.submit(lambda: None)
    wait_until(lambda: given == [1, 2])
    threads.shutdown()


def test_nothing_holds_work_that_is_done():
    class Batch:
        def run(self) -> None:
            pass

    look, batches = Patient(), [Batch(), Batch()]
    threads, held = AwakeThreads(ThreadPoolExecutor(1), look), list(map(weakref.ref, batches))
    for number in (1, 2):
        threads.submit(batches.pop().run)
        wait_until(lambda number=number: len(look.asked) == number)
    gc.collect()
    assert [each() for each in held] == [None, None]
    look.is_over.set()
    threads.shutdown()


def test_work_that_fails_ends_no_other():
    threads = AwakeThreads(ThreadPoolExecutor(1), None)
    threads.submit(lambda: 1 / 0)
    who_runs(threads)
    threads.shutdown()


def test_only_long_batches_on_a_gpu_keep_a_thread_awake():
    for is_gpu in (False, True):
        lanes = make_lanes(1, is_gpu)
        assert lanes[False].threads._look is None
        assert (lanes[True].threads._look is not None) == (is_gpu and copy_pool.look is not None)
        for lane in lanes.values():
            lane.threads.shutdown()


def test_a_flag_is_seen_within_its_time_and_not_behind_it(look):
    flag = bytearray(1)

    def seconds_in_vain() -> float:
        begin = time.perf_counter()
        assert not look(flag, 0.02)
        return time.perf_counter() - begin

    # The quickest: a busy machine may take the core away meanwhile.
    assert 0.02 <= min(seconds_in_vain() for _ in range(5)) < 1
    timer = threading.Timer(0.02, lambda: flag.__setitem__(0, 1))
    timer.start()  # Which needs Python's lock.
    assert look(flag, GIVEN_UP_S)
    assert look(flag, 0.0)
    assert not look(bytearray(), 0.0)
    for wrong in ((flag,), (flag, "1"), ("", 0.0)):
        with pytest.raises(TypeError):
            look(*wrong)
