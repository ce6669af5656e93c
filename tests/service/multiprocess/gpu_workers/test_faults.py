"""GPU workers that are killed, hang, or lose their CUDA context: all is answered, they return."""

from __future__ import annotations

import errno
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

import service.engines.hybrid.member
import service.engines.hybrid.several_gpus
from service.engines.cpu.engine import CpuEngine
from tests.support.app_client import serving
from tests.support.data_files import ROOT
from tests.support.gpus.emulated_gpu_worker import handle_of
from tests.support.gpus.gpu_workers import (
    NEEDS_COMPILER,
    EmulatedWorkers,
    is_running,
    start_workers,
)
from tests.support.waiting import run, until, wait_until
from vocabularies.batch.batch import Batch
from vocabularies.batch.shared_rows import SharedRows, SharedText
from vocabularies.builtin import load

pytestmark = [NEEDS_COMPILER, pytest.mark.slow]
CPU = CpuEngine()
BYTES = load("evo_bytes")
BATCHES = [Batch([text * (n + 1) for text in ("ACGT" * 2000, "acgtN", "")]) for n in range(5)]
RIGHT = [CPU.encode(BYTES, batch).ids.tolist() for batch in BATCHES]


@pytest.fixture(autouse=True)
def quick(monkeypatch) -> None:
    """Do not wait as long as a service does."""
    monkeypatch.setattr(service.engines.hybrid.member, "MIN_RESTART_S", 0.05)
    monkeypatch.setattr(service.engines.hybrid.member, "REST_S", 0.2)
    monkeypatch.setattr(service.engines.hybrid.several_gpus, "CHECK_PERIOD_S", 0.05)


@pytest.fixture(scope="module")
def shared_workers(tmp_path_factory) -> Iterator[EmulatedWorkers]:
    started = start_workers(CPU, tmp_path_factory.mktemp("faults"))
    started.engine.load(BYTES)
    yield started
    started.engine.close()


@pytest.fixture
def workers(shared_workers) -> EmulatedWorkers:
    """The workers without faults, both ready."""
    for number in (0, 1):
        shared_workers.give_fault(number, "")
    wait_until(lambda: shared_workers.states() == ["ready", "ready"])
    return shared_workers


def check(workers: EmulatedWorkers, number: int = 0, by: str = "gpu") -> None:
    encoded = workers.engine.encode(BYTES, BATCHES[number].duplicate())
    assert encoded.ids.tolist() == RIGHT[number]
    assert encoded.engine == by


class Load:
    """Threads that encode until they are stopped, and compare every id."""

    def __init__(self, workers: EmulatedWorkers) -> None:
        self.num_right = 0
        self.wrong: list[object] = []
        self._workers = workers
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=[n]) for n in range(4)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def _run(self, first: int) -> None:
        number = first
        while not self._is_over.is_set():
            number = (number + 1) % len(BATCHES)
            try:
                check(self._workers, number)
                self.num_right += 1
            except BaseException as error:
                self.wrong.append(error)

    def wait_for_more(self, num_batches: int = 20) -> None:
        """Wait until more batches are answered."""
        end = self.num_right + num_batches
        wait_until(lambda: self.num_right >= end or self.wrong)

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()


def test_a_worker_that_is_killed_under_load_loses_nothing_and_comes_back(workers, caplog):
    with Load(workers) as load_:
        load_.wait_for_more()
        before = workers.kill(0)
        load_.wait_for_more()
        wait_until(lambda: workers.states() == ["ready", "ready"])
        load_.wait_for_more()
        num_before = workers.several.members[0].num_batches
        wait_until(lambda: workers.several.members[0].num_batches > num_before + 5)
    assert load_.wrong == []
    assert workers.gpus[0].process_id != before and not is_running(before)
    assert workers.gpus[0].is_resident(BYTES.digest)
    assert workers.engine.status().fallbacks == {}
    assert "has ended by SIGKILL" in caplog.text and "emulation #0 is back" in caplog.text


def test_a_worker_that_is_killed_while_idle_is_started_again(workers):
    before = workers.kill(1)
    wait_until(lambda: workers.gpus[1].process_id != before)
    wait_until(lambda: workers.states() == ["ready", "ready"])
    for _ in range(4):
        check(workers)
    assert workers.gpus[1].is_resident(BYTES.digest)


def test_where_both_are_killed_the_cpu_answers_until_they_are_back(workers):
    for number in (0, 1):
        workers.give_fault(number, "end")
    check(workers, by="cpu")
    assert workers.states() == ["resting", "resting"]
    for number in (0, 1):
        workers.give_fault(number, "")
    wait_until(lambda: workers.states() == ["ready", "ready"])
    wait_until(lambda: workers.engine.encode(BYTES, BATCHES[0].duplicate()).engine == "gpu")
    check(workers)


def test_the_texts_of_a_batch_whose_worker_ended_are_given_back_at_once(workers):
    workers.give_fault(0, "end")
    batches = [Batch(["ACGT" * 20_000]) for _ in range(2)]
    kept = [weakref.ref(batch) for batch in batches]
    gc.disable()
    try:
        for _ in range(len(batches)):
            assert workers.engine.encode(BYTES, batches.pop()).engine == "gpu"
        wait_until(lambda: all(each() is None for each in kept), "the batches are given back")
    finally:
        gc.enable()
    assert "resting" in workers.states()


def test_a_worker_that_hangs_is_killed_and_comes_back(workers, monkeypatch, caplog):
    monkeypatch.setattr(service.engines.hybrid.several_gpus, "HANG_S", 1.0)
    before = workers.gpus[0].process_id
    workers.give_fault(0, "hang")
    for _ in range(2):
        check(workers)
    assert "emulation #0 hangs" in caplog.text
    workers.give_fault(0, "")
    wait_until(lambda: workers.states() == ["ready", "ready"])
    assert not is_running(before)
    for number in range(4):
        check(workers, number)


def test_a_worker_whose_context_is_lost_ends_and_is_not_back_before_it_passes(workers, caplog):
    process_id = workers.gpus[0].process_id
    workers.give_fault(0, "lost")
    with Load(workers) as load_:
        load_.wait_for_more()
        wait_until(lambda: "emulation #0 still fails" in caplog.text)
        load_.wait_for_more()
        assert workers.states() == ["resting", "ready"]
        workers.give_fault(0, "")
        wait_until(lambda: workers.states() == ["ready", "ready"])
    assert load_.wrong == [] and not is_running(process_id)
    assert "an illegal address (CUDA error 700)" in caplog.text


def test_a_worker_that_only_fails_is_not_killed(workers, monkeypatch):
    monkeypatch.setattr(service.engines.hybrid.member, "REST_S", 1000.0)
    process_id = workers.gpus[1].process_id
    workers.give_fault(1, "fail")
    for _ in range(6):
        check(workers)
    assert workers.states() == ["ready", "resting"]
    workers.give_fault(1, "")
    workers.several.members[1].retry_at = 0.0
    wait_until(lambda: workers.states() == ["ready", "ready"])
    assert workers.gpus[1].process_id == process_id


def test_regions_are_opened_again_by_the_next_worker(workers):
    text = b"letters of a region " * 10
    file = os.memfd_create("region")
    os.truncate(file, 8192)
    os.pwrite(file, text, 0)
    on_device = workers.engine.open_shared(handle_of(0, file), 8192)
    on_host = workers.engine.share_host(file, 0, 8192)

    def check_regions() -> None:
        for region in (on_device, on_host):
            os.pwrite(file, bytes(4000), 2048)
            place = SharedText(region, 0, len(text))
            rows = SharedRows(place, np.array([0, len(text)]), region, 2048, 4096, 2)
            assert workers.engine.encode_shared(BYTES, rows).tolist() == [0, len(text)]
            ids = np.frombuffer(os.pread(file, 2 * len(text), 2048), "<u2").tolist()
            assert ids == CPU.encode(BYTES, Batch.from_bytes([text])).ids.tolist()

    check_regions()
    for number in (0, 1):
        workers.kill(number)
        wait_until(lambda number=number: workers.states()[number] == "resting")
        wait_until(lambda: workers.states() == ["ready", "ready"])
    check_regions()
    check_regions()
    on_device.close()
    on_host.close()
    os.close(file)


def test_the_service_answers_while_a_worker_is_killed_and_says_so(workers, monkeypatch):
    async def scenario() -> None:
        engine = workers.engine
        monkeypatch.setattr(engine, "close", lambda: None)
        async with serving(engine, preload="evo_bytes") as (client, state):
            await until(lambda: state.preloaded)
            body = {"vocabulary": "evo_bytes", "texts": list(BATCHES[1].texts()[0])}

            async def encode() -> None:
                answer = (await client.post("/v1/encode/batch", json=body)).json()
                assert answer["engine"] == "gpu"
                assert [each for row in answer["ids"] for each in row] == RIGHT[1]

            workers.give_fault(0, "closed")
            workers.kill(0)
            for _ in range(8):
                await encode()
            info = (await client.get("/v1/info")).json()
            assert [each["state"] for each in info["devices"]] == ["resting", "ready"]
            assert (await client.get("/readyz")).status_code == 200
            metrics = (await client.get("/metrics")).text
            assert 'warptok_device_up{device="emulation #0"} 0.0' in metrics
            assert 'warptok_device_up{device="emulation #1"} 1.0' in metrics
            workers.give_fault(0, "")
            await until(lambda: workers.states() == ["ready", "ready"])
            await encode()
            metrics = (await client.get("/metrics")).text
            assert 'warptok_device_up{device="emulation #0"} 1.0' in metrics

    run(scenario)


# The end.


def test_closing_waits_for_the_last_batch_and_ends_the_processes(tmp_path):
    workers = start_workers(CPU, tmp_path)
    workers.engine.load(BYTES)
    process_ids = [gpu.process_id for gpu in workers.gpus]
    with Load(workers) as load_:
        load_.wait_for_more()
    assert load_.wrong == []
    for process_id in process_ids:
        os.kill(process_id, signal.SIGTERM)  # As a terminal or systemd sends it to all.
    check(workers)
    encoded = workers.engine.encode(BYTES, BATCHES[4].duplicate())
    workers.engine.close()
    assert not any(map(is_running, process_ids))
    assert encoded.ids.tolist() == RIGHT[4]  # Its memory is this process's.


def test_one_that_cannot_be_opened_is_listed_and_the_other_works(tmp_path):
    (tmp_path / "gpu-0").write_text("closed")
    workers = start_workers(CPU, tmp_path)
    assert workers.engine.load(BYTES).engine == "gpu"
    check(workers)
    devices = workers.engine.status().devices
    assert [(each["number"], each["state"]) for each in devices] == [
        (1, "ready"),
        (0, "unavailable"),
    ]
    workers.engine.close()


def test_one_whose_worker_cannot_be_started_is_listed_and_the_other_works(tmp_path, monkeypatch):
    """As where the system allows no more processes; nothing of it stays open."""
    start = subprocess.Popen.__init__

    def refuse_the_first(self, command, **options):
        if json.loads(command[-1])["number"] == 0:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        start(self, command, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", refuse_the_first)
    workers = start_workers(CPU, tmp_path)
    assert workers.engine.load(BYTES).engine == "gpu"
    check(workers)
    states = [(each["number"], each["state"]) for each in workers.engine.status().devices]
    assert states == [(1, "ready"), (0, "unavailable")]
    workers.engine.close()


PARENT = """
import sys, time
from pathlib import Path
from service.engines.cpu.engine import CpuEngine
from tests.support.gpus.gpu_workers import start_workers
workers = start_workers(CpuEngine(), Path(sys.argv[1]))
print(*[gpu.process_id for gpu in workers.gpus], flush=True)
time.sleep(600)
"""


def test_workers_end_with_their_parent_and_leave_nothing(tmp_path):
    before = set(os.listdir("/dev/shm"))
    command = [sys.executable, "-c", PARENT, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        process_ids = [int(each) for each in parent.stdout.readline().split()]
        assert len(process_ids) == 2 and all(map(is_running, process_ids))
        parent.kill()
    wait_until(lambda: not any(map(is_running, process_ids)))
    assert set(os.listdir("/dev/shm")) <= before
