"""One of several GPUs, with a process: when the process is killed, and when it is started again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import service.engines.hybrid.member as module
import service.engines.hybrid.several_gpus as several_gpus
from gpu.errors import DeviceLost, OutOfMemory
from service.engines.cpu.engine import CpuEngine
from service.engines.hybrid.device_threads import DeviceThreads
from service.engines.hybrid.member import MIN_RESTART_S, REST_S, STEADY_S, Member
from service.engines.hybrid.several_gpus import SeveralGpus
from tests.support.fake_engine import byte_vocabulary
from tests.support.gpus.fake_gpu import FakeGpu
from tests.support.waiting import wait_until
from vocabularies.batch.batch import Batch, Encoded

BYTES = byte_vocabulary()
BATCH = Batch.from_bytes([b"letters"])


class FakeProcess:
    """A process whose calls of `refresh` and `restart` wait while `answers` is cleared."""

    def __init__(self) -> None:
        self.is_alive = self.begins = True
        self.begun: list[Callable[[Encoded | Exception], None]] = []
        self.num_restarts = self.num_kills = 0
        self.answers = threading.Event()
        self.answers.set()

    def kill(self) -> None:
        self.is_alive = False
        self.num_kills += 1
        self.answers.set()

    def restart(self) -> None:
        assert self.answers.wait(60)
        self.num_restarts += 1
        self.is_alive = True

    def open_regions(self) -> None:
        pass

    def begin_encode(self, vocabulary, batch, done) -> bool:
        if self.begins:
            self.begun.append(done)
        return self.begins

    def refresh(self) -> None:
        assert self.answers.wait(60)
        if not self.is_alive:
            raise DeviceLost("killed")


@pytest.fixture
def process() -> FakeProcess:
    return FakeProcess()


@pytest.fixture
def member(process) -> Member:
    return Member(FakeGpu(CpuEngine()), 0, "fake", DeviceThreads("fake"), process)


@pytest.fixture
def now(monkeypatch) -> list[float]:
    """The time, which a test changes."""
    now = [1000.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def several(member, monkeypatch) -> Iterator[SeveralGpus]:
    """The member alone, without a keeper: tests call `check`."""
    monkeypatch.setattr(several_gpus, "CHECK_PERIOD_S", 1000.0)
    made = SeveralGpus([member])
    yield made
    made.close()


def test_a_process_that_ends_again_and_again_is_started_later_and_later(member, now):
    member.ready_since = now[0]
    delays = []
    for _ in range(9):
        member.fail(DeviceLost("ended"))
        assert member.state == "resting"
        delays.append(member.retry_at - now[0])
        member.revive()
    assert delays[:4] == [0.0, MIN_RESTART_S, 2 * MIN_RESTART_S, 4 * MIN_RESTART_S]
    assert delays[-1] == REST_S
    now[0] += STEADY_S + 1
    member.fail(DeviceLost("ended"))
    assert member.retry_at == now[0]


def test_one_that_does_not_pass_its_test_is_killed_and_rests_longer(member, process, now):
    member.fail(DeviceLost("ended"))
    for number in range(1, 4):
        member.fail_to_revive(RuntimeError("told to fail"))
        assert process.num_kills == number
        assert member.retry_at - now[0] == MIN_RESTART_S * 2 ** (number - 1)


def test_a_process_is_killed_while_a_batch_is_late(member, process, now):
    end = member.watch(10.0)
    member.kill_if_late(now[0] + 10)
    assert not process.num_kills
    member.kill_if_late(now[0] + 11)
    assert process.num_kills == 1
    member.unwatch(end)
    member.kill_if_late(now[0] + 99)
    assert process.num_kills == 1


def test_the_log_says_once_that_a_batch_is_late_and_once_that_it_has_ended(member, now, caplog):
    for later_s in (0, 100):
        end = member.watch(10.0 + later_s)
        for each in range(5):
            member.kill_if_late(now[0] + later_s + 11 + each)
        member.unwatch(end)
        for each in range(5):
            member.kill_if_late(now[0] + later_s + 21 + each)
    texts = [record.getMessage().partition(": ")[0].partition(" ")[2] for record in caplog.records]
    assert texts == ["hangs", "does not hang any more"] * 2


def test_a_process_that_has_ended_is_found_and_started_again(several, member, process):
    process.is_alive = False
    several.check()
    assert (member.state, member.num_failures) == ("resting", 1)
    wait_until(lambda: several.check() or member.state == "ready")
    assert process.num_restarts == 1


def test_a_process_that_does_not_answer_while_idle_is_killed(several, member, process, monkeypatch):
    monkeypatch.setattr(several_gpus, "REFRESH_HANG_S", 0.1)
    process.answers.clear()
    wait_until(lambda: several.check() or process.num_kills)
    wait_until(lambda: several.check() or member.state == "ready")
    assert process.num_restarts == 1


def test_a_start_that_hangs_is_killed(several, member, process, monkeypatch):
    monkeypatch.setattr(several_gpus, "REVIVAL_S", 0.1)
    process.is_alive = False
    process.answers.clear()
    wait_until(lambda: several.check() or process.num_kills)
    wait_until(lambda: several.check() or member.state == "ready")


# Batches that no thread waits for.


def begin(several: SeveralGpus) -> list[Encoded | None]:
    """Begin a batch; return the list of its later answers."""
    answers: list[Encoded | None] = []
    assert several.begin_encode(BYTES, BATCH, answers.append)
    return answers


def test_a_begun_batch_is_counted_when_it_is_answered(several, member, process):
    member.gpu.load(BYTES)
    member.failures_in_row = 2
    answers = begin(several)
    assert (member.bytes_in_flight, member.num_batches) == (7, 0)
    encoded = Encoded(np.zeros(0, np.int32), np.zeros(2, np.int64))
    process.begun[0](encoded)
    assert len(answers) == 1 and answers[0] is encoded
    assert (member.bytes_in_flight, member.num_batches, member.num_bytes) == (0, 1, 7)
    assert (member.failures_in_row, member._ends) == (0, [])


@pytest.mark.parametrize(
    ("error", "failures", "state"),
    [
        (RuntimeError("told to fail"), 1, "ready"),
        (DeviceLost("ended"), 1, "resting"),
        (OutOfMemory("told to"), 0, "ready"),
    ],
)
def test_a_begun_batch_that_fails_is_left_to_a_thread(
    several, member, process, error, failures, state
):
    member.gpu.load(BYTES)
    answers = begin(several)
    process.begun[0](error)
    assert answers == [None]
    assert (member.num_failures, member.state) == (failures, state)
    assert (member.bytes_in_flight, member._ends) == (0, [])


def test_a_process_is_killed_while_a_begun_batch_is_late(several, member, process, monkeypatch):
    monkeypatch.setattr(several_gpus, "HANG_S", -1.0)
    member.gpu.load(BYTES)
    begin(several)
    several.check()
    assert process.num_kills == 1


def test_a_batch_does_not_begin_where_no_process_takes_it(several, member, process):
    assert not several.begin_encode(BYTES, BATCH, print)  # No GPU has the vocabulary.
    member.gpu.load(BYTES)
    process.begins = False
    assert not several.begin_encode(BYTES, BATCH, print)
    process.begin_encode = lambda *arguments: 1 / 0
    with pytest.raises(ZeroDivisionError):
        several.begin_encode(BYTES, BATCH, print)
    member.process = None
    assert not several.begin_encode(BYTES, BATCH, print)
    assert (member.bytes_in_flight, member.num_batches, member._ends) == (0, 0, [])
