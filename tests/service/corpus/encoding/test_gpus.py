"""All GPUs for a corpus: each has the vocabulary, and a block goes to the one with least to do."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from time import sleep
from typing import Any

import pytest

from gpu.errors import DeviceUnavailable
from service.corpus.encoding import gpus
from service.corpus.encoding.gpus import Gpus
from service.engines.cpu.engine import CpuEngine
from tests.support.emulation.device import EmulatedDevice
from tests.support.gpus.gpu_workers import NEEDS_COMPILER
from vocabularies import builtin
from vocabularies.batch.batch import Batch, Encoded

VOCABULARY = builtin.load("hyenadna")


class Waiting:
    """An engine that keeps every batch until it is let go."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.memory = object()
        self.may_end = threading.Event()

    def encode(self, vocabulary: Any, batch: Batch) -> Encoded:
        self.sizes.append(batch.size)
        assert self.may_end.wait(120)
        return Encoded(batch.data, batch.offsets)

    def host_memory(self, num_bytes: int) -> Any:
        return self.memory

    def close(self) -> None:
        self.sizes.append(-1)


def test_blocks_go_to_the_engine_with_the_fewest_bytes() -> None:
    engines = [Waiting(), Waiting(), Waiting()]
    opening: Future[Any] = Future()
    opening.set_result(engines)
    opened = Gpus(CpuEngine(1), opening)
    threads = []
    for number, size in enumerate((50, 10, 20, 30, 5, 1), 1):
        batch = Batch(["A" * size])
        threads.append(threading.Thread(target=opened.encode, args=(VOCABULARY, batch)))
        threads[-1].start()
        while sum(len(engine.sizes) for engine in engines) < number:
            pass
    for engine in engines:
        engine.may_end.set()
    for thread in threads:
        thread.join()
    assert [engine.sizes for engine in engines] == [[50], [10, 30], [20, 5, 1]]
    opened.encode(VOCABULARY, Batch(["A" * 7]))
    assert engines[0].sizes == [50, 7]
    opened.close()
    assert [engine.sizes[-1] for engine in engines] == [-1, -1, -1]


def test_the_cpu_encodes_until_the_gpus_are_open():
    opening: Future[Any] = Future()
    opened = Gpus(CpuEngine(1), opening)
    assert opened.encode(VOCABULARY, Batch(["ACGT"])).engine == "cpu"
    assert len(opened.host_memory(9)) == 9
    gpu = Waiting()
    gpu.may_end.set()
    opening.set_result([gpu])
    opened.encode(VOCABULARY, Batch(["ACGTA"]))
    assert gpu.sizes == [5]
    assert opened.host_memory(9) is gpu.memory


def test_a_gpu_that_cannot_be_opened_ends_the_job():
    opening: Future[Any] = Future()
    opened = Gpus(CpuEngine(1), opening)
    opened.encode(VOCABULARY, Batch(["ACGT"]))
    opening.set_exception(DeviceUnavailable("its driver is too old"))
    with pytest.raises(DeviceUnavailable, match="driver"):
        opened.encode(VOCABULARY, Batch(["ACGT"]))


def test_only_a_job_that_needs_gpus_fails_without_any(monkeypatch):
    monkeypatch.setattr(gpus, "num_devices", lambda: 0)
    vocabulary, batch = builtin.load("evo_bytes"), Batch(["some letters"])
    needed = gpus.open_gpus(CpuEngine(1), vocabulary, is_needed=True)
    with pytest.raises(DeviceUnavailable, match="no GPU"):
        while True:
            needed.encode(vocabulary, batch)
    other = gpus.open_gpus(CpuEngine(1), vocabulary, is_needed=False)
    other.close()
    assert other.encode(vocabulary, batch).engine == "cpu"


@NEEDS_COMPILER
@pytest.mark.slow
def test_blocks_are_encoded_by_the_gpus_once_they_are_open(monkeypatch):
    monkeypatch.setattr(gpus, "num_devices", lambda: 2)
    monkeypatch.setattr(gpus, "CudaDevice", lambda number: EmulatedDevice(1 << 28))
    monkeypatch.setattr("service.engines.hybrid.engine.measure_crossover", lambda small, large: 1)
    cpu, vocabulary = CpuEngine(num_threads=1), builtin.load("evo_bytes")
    opened = gpus.open_gpus(cpu, vocabulary, is_needed=True)
    try:
        while opened.status().engines == ("cpu",):
            sleep(0.01)
        for _ in range(2):
            encoded = opened.encode(vocabulary, Batch(["some letters " * 90]))
            assert encoded.engine == "gpu"
            right = cpu.encode(vocabulary, Batch(["some letters " * 90]))
            assert encoded.ids.tolist() == right.ids.tolist()
    finally:
        opened.close()
