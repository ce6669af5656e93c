"""The size from which on batches go to the GPU, and its measurement."""

from __future__ import annotations

import numpy as np
import pytest

from service.engines.cpu.engine import CpuEngine
from service.engines.hybrid.crossover_measurement import (
    BUDGET_S,
    NEVER,
    SIZES,
    Differs,
    measure_crossover,
)
from service.engines.hybrid.engine import (
    DEFAULT_CROSSOVER_BYTES,
    HybridEngine,
)
from tests.service.engines.hybrid.routed import (
    BYTES,
    OTHERS,
    Clock,
    routed,
)
from tests.support.gpus.fake_gpu import FakeGpu
from vocabularies.batch.batch import Batch, Encoded


@pytest.fixture
def clock(monkeypatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("service.engines.hybrid.crossover_measurement.perf_counter", made)
    return made


@pytest.mark.parametrize("wanted", [SIZES[0], 8192, 65536])
def test_the_crossover_is_where_the_gpu_begins_to_win(clock, wanted):
    cpu = clock.as_long_as(lambda num_bytes: 0.001)
    gpu = clock.as_long_as(lambda num_bytes: 0.0 if num_bytes >= wanted else 0.004)
    assert measure_crossover(cpu, gpu) == wanted


def test_a_gpu_that_never_wins_gets_no_batch_and_measuring_ends_in_time(clock):
    cpu = clock.as_long_as(lambda num_bytes: 0.0)
    slow = clock.as_long_as(lambda num_bytes: num_bytes * 2e-6)
    assert measure_crossover(cpu, slow) == NEVER
    largest_s = 4 * SIZES[-1] * 2e-6
    not_timed = 4 / 3  # The first of four calls of a size.
    assert BUDGET_S / 4 < clock.now - Clock.now <= BUDGET_S * not_timed + largest_s


def test_slow_first_calls_say_nothing_of_the_crossover(clock):
    sizes = set()

    def gpu(batch: Batch) -> Encoded:
        clock.now += 1e-4 if len(batch.data) in sizes else 5.0
        sizes.add(len(batch.data))
        return Encoded(batch.data.astype(np.int32), batch.offsets)

    cpu = clock.as_long_as(lambda num_bytes: num_bytes * 4e-9)
    assert measure_crossover(cpu, gpu) == 32_768


def test_where_the_time_is_up_the_largest_size_decides(clock):
    cpu = clock.as_long_as(lambda num_bytes: 0.2 if num_bytes < SIZES[-1] else 0.4)
    gpu = clock.as_long_as(lambda num_bytes: 0.3)
    assert measure_crossover(cpu, gpu) == SIZES[-1]


def test_a_gpu_that_loses_at_every_size_is_logged(monkeypatch, caplog):
    monkeypatch.setattr(
        "service.engines.hybrid.engine.measure_crossover", lambda small, large: NEVER
    )
    engine, _ = routed(crossover_bytes=None)
    engine.load(BYTES)
    assert "WARPTOK_CROSSOVER_BYTES" in caplog.text
    assert [record.levelname for record in caplog.records].count("WARNING") == 1


def test_the_sizes_that_are_measured_are_those_sizes(clock):
    sizes = []

    def encode(batch: Batch) -> Encoded:
        sizes.append(len(batch.data))
        return Encoded(batch.data.astype(np.int32), batch.offsets)

    measure_crossover(encode, clock.as_long_as(lambda num_bytes: 1e-3))
    for size in SIZES:
        assert any(size <= each < 1.1 * size for each in sizes), size


def test_different_ids_end_the_measuring():
    def wrong(batch: Batch) -> Encoded:
        encoded = Encoded(batch.data.astype(np.int32), batch.offsets)
        encoded.ids[7] += 1
        return encoded

    with pytest.raises(Differs, match=r"ids\[7\]"):
        measure_crossover(Clock().as_long_as(lambda num_bytes: 0.0), wrong)


def test_the_crossover_is_measured_once_and_obeyed(monkeypatch):
    measured = []

    def measure(small, large) -> int:
        measured.append(small(Batch(["a"])).engine + large(Batch(["a"])).engine)
        return 64

    monkeypatch.setattr("service.engines.hybrid.engine.measure_crossover", measure)
    gpu = FakeGpu(CpuEngine())
    engine = HybridEngine(CpuEngine(), gpu.opened)
    engine.load(BYTES)
    assert engine.crossover_bytes == DEFAULT_CROSSOVER_BYTES
    engine.settle()
    engine.load(OTHERS[0])
    assert measured == ["cpugpu"]
    assert engine.status().crossover_bytes == 64
    assert engine.encode(BYTES, Batch(["a" * 64])).engine == "gpu"
    assert engine.encode(BYTES, Batch(["a" * 63])).engine == "cpu"


def test_with_nothing_loaded_at_the_start_the_first_vocabulary_is_measured_on(monkeypatch):
    monkeypatch.setattr("service.engines.hybrid.engine.measure_crossover", lambda small, large: 77)
    engine, gpu = routed(crossover_bytes=None)
    assert engine.crossover_bytes == DEFAULT_CROSSOVER_BYTES
    gpu.uncovered.add(BYTES.digest)
    engine.load(BYTES)
    assert engine.crossover_bytes == DEFAULT_CROSSOVER_BYTES
    engine.load(OTHERS[0])
    assert engine.crossover_bytes == 77


@pytest.mark.parametrize("error", [Differs("told to"), RuntimeError("told to")], ids=repr)
def test_measuring_that_fails_is_survived_and_a_difference_is_one(monkeypatch, error, caplog):
    def fail(small, large) -> int:
        raise error

    monkeypatch.setattr("service.engines.hybrid.engine.measure_crossover", fail)
    engine, _ = routed(crossover_bytes=None)
    residency = engine.load(BYTES)
    assert residency.engine == ("cpu" if isinstance(error, Differs) else "gpu")
    assert residency.self_test.num_different == int(isinstance(error, Differs))
    assert engine.crossover_bytes == DEFAULT_CROSSOVER_BYTES
    assert "told to" in caplog.text
