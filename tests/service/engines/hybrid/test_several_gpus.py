"""Several GPUs: who gets a batch, and what happens when one fails or differs."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

import service.engines.hybrid.member
import service.engines.hybrid.several_gpus
from gpu.engine import GpuEngine
from gpu.errors import BadHandle, NotCovered, OutOfMemory
from service.engines.cpu.engine import CpuEngine
from service.engines.hybrid.crossover_measurement import NEVER
from service.engines.hybrid.engine import HybridEngine
from service.engines.hybrid.member import MAX_FAILURES
from service.engines.hybrid.several_gpus import SeveralGpus
from tests.support.app_client import serving
from tests.support.emulation.device import EmulatedDevice, EmulatedStream
from tests.support.fake_engine import byte_vocabulary
from tests.support.gpus.fake_gpu import FakeGpu
from tests.support.gpus.several_fake_gpus import HangingGpu, open_together
from tests.support.waiting import run, until, wait_until
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.batch.shared_rows import SharedRows, SharedText
from vocabularies.builtin import load

BYTES = byte_vocabulary()
LARGE = ["many letters " * 9] * 40
CPU = CpuEngine()


@pytest.fixture(autouse=True)
def quick(monkeypatch) -> None:
    """Do not wait as long as a service does."""
    module = service.engines.hybrid.several_gpus
    monkeypatch.setattr(service.engines.hybrid.member, "REST_S", 0.05)
    monkeypatch.setattr(module, "CHECK_PERIOD_S", 0.01)


@pytest.fixture
def gpus() -> list[HangingGpu]:
    return [HangingGpu(CPU) for _ in range(3)]


@pytest.fixture
def engine(gpus) -> Iterator[HybridEngine]:
    made = HybridEngine(CPU, open_together(*gpus), 1000)
    made.settle()
    yield made
    for gpu in gpus:
        gpu.answers.set()
    several_of(made).close()


def several_of(engine: HybridEngine) -> SeveralGpus:
    opened = engine.vocabularies.opened
    assert opened is not None and isinstance(opened.gpu, SeveralGpus)
    return opened.gpu


def states(engine: HybridEngine) -> list[str]:
    return [activity.state for activity in engine.status().activity.values()]


def rest_for_long(monkeypatch) -> None:
    monkeypatch.setattr(service.engines.hybrid.member, "REST_S", 1000.0)


def check(engine: HybridEngine, by: str = "gpu", texts: list[str] = LARGE) -> None:
    encoded = engine.encode(BYTES, Batch(texts))
    expected = CPU.encode(BYTES, Batch(texts))
    assert encoded.ids.tolist() == expected.ids.tolist()
    assert encoded.offsets.tolist() == expected.offsets.tolist()
    assert encoded.engine == by


def test_batches_of_one_caller_go_to_all_in_turn(engine, gpus):
    engine.load(BYTES)
    before = [len(gpu.answered) for gpu in gpus]
    for _ in range(6):
        check(engine)
    assert [len(gpu.answered) - n for gpu, n in zip(gpus, before, strict=True)] == [2, 2, 2]
    counted, decoded = engine.count(BYTES, Batch(LARGE)), CPU.encode(BYTES, Batch(LARGE))
    assert counted.engine == "gpu" and counted.counts.tolist() == [9 * 13] * 40
    ids = decoded.ids.astype(np.int64)
    answer = engine.decode(BYTES, ids, decoded.offsets, False)
    assert answer.engine == "gpu" and answer.data.tobytes().decode() == "".join(LARGE)


def test_a_batch_goes_where_the_fewest_bytes_are_in_flight(engine, gpus):
    engine.load(BYTES)
    for gpu in gpus:
        gpu.answers.clear()
    sizes = (30, 10, 20, 15)
    callers = []
    for place, size in enumerate(sizes):
        callers.append(threading.Thread(target=check, args=(engine, "gpu", LARGE[:size] * 10)))
        callers[-1].start()
        wait_until(lambda place=place: sum(gpu.num_waiting for gpu in gpus) == place + 1)
    activity = engine.status().activity
    lines = [each.bytes_in_flight // 1170 for each in activity.values()]
    assert sorted(lines) == sorted((30, 10 + 15, 20))
    for gpu in gpus:
        gpu.answers.set()
    for caller in callers:
        caller.join()
    wait_until(lambda: not any(a.bytes_in_flight for a in engine.status().activity.values()))


def test_one_that_fails_loses_nothing_and_rests_after_three_times(engine, gpus, monkeypatch):
    rest_for_long(monkeypatch)
    engine.load(BYTES)
    gpus[0].failing = 99
    for _ in range(12):
        check(engine)
    assert states(engine) == ["resting", "ready", "ready"]
    assert engine.status().up == {"fake #0": False, "fake #1": True, "fake #2": True}
    assert engine.status().activity["fake #0"].num_failures == MAX_FAILURES
    assert engine.status().fallbacks == {}
    devices = engine.status().devices
    assert [device["state"] for device in devices] == ["resting", "ready", "ready"]


def test_one_that_has_rested_comes_back_when_it_passes_and_not_before(engine, gpus):
    engine.load(BYTES)
    gpus[0].failing = 9
    for _ in range(9):
        check(engine)
    wait_until(lambda: states(engine)[0] == "ready")
    assert gpus[0].failing == 0
    before = len(gpus[0].answered)
    for _ in range(3):
        check(engine)
    assert len(gpus[0].answered) == before + 1


def test_one_comes_back_after_the_system_has_allowed_no_more_threads(engine, gpus, caplog):
    engine.load(BYTES)
    threads, gpus[0].failing = several_of(engine).members[0].threads, 3
    submit, refused = threads.submit, []

    def refuse_twice(call):
        if len(refused) == 2:
            return submit(call)
        refused.append(call)
        raise RuntimeError("can't start new thread")

    threads.submit = refuse_twice
    for _ in range(9):
        check(engine)
    wait_until(lambda: len(refused) == 2 and states(engine)[0] == "ready")
    assert caplog.text.count("they are checked again soon") == 2


def test_where_all_fail_the_cpu_answers(engine, gpus, monkeypatch):
    rest_for_long(monkeypatch)
    engine.load(BYTES)
    for gpu in gpus:
        gpu.failing = 99
    for _ in range(4):
        check(engine, by="cpu")
    assert states(engine) == ["resting"] * 3
    assert engine.status().fallbacks == {"device_error": 3, "resting": 1}
    residency = engine.residency(BYTES.digest)
    assert residency is not None and "all GPUs have failed or hang" in residency.fallback_reason


def test_the_texts_of_a_batch_that_failed_are_given_back_at_once(engine, gpus):
    engine.load(BYTES)
    gpus[0].failing = 1
    batch = Batch(LARGE)
    kept = weakref.ref(batch)
    gc.disable()
    try:
        assert engine.encode(BYTES, batch).engine == "gpu"
        del batch
        wait_until(lambda: kept() is None, "the batch is given back")
    finally:
        gc.enable()


@pytest.mark.parametrize("error", [OutOfMemory("full"), NotCovered("odd")])
def test_a_vocabulary_is_on_all_of_them_or_on_none(engine, gpus, error):
    gpus[1].load_error = error
    residency = engine.load(BYTES)
    assert "fake #1" in residency.fallback_reason and str(error) in residency.fallback_reason
    assert residency.engine == "cpu"
    assert not any(gpu.residents for gpu in gpus)
    assert states(engine) == ["ready"] * 3
    check(engine, by="cpu")


def test_one_that_fails_at_an_upload_is_out_and_gets_it_before_it_is_back(engine, gpus):
    gpus[1].load_error = RuntimeError("told to fail")
    assert engine.load(BYTES).engine == "gpu"
    assert states(engine)[1] == "resting"
    check(engine)
    gpus[1].load_error = None
    wait_until(lambda: states(engine)[1] == "ready")
    assert gpus[1].is_resident(BYTES.digest)


def test_one_that_hangs_at_an_upload_is_out_and_gets_it_before_it_is_back(
    engine, gpus, monkeypatch
):
    monkeypatch.setattr(service.engines.hybrid.several_gpus, "PATIENCE_S", 0.3)
    gpus[2].gate.clear()
    assert engine.load(BYTES).engine == "gpu"
    assert states(engine) == ["ready", "ready", "hanging"]
    check(engine)
    gpus[2].gate.set()
    wait_until(lambda: states(engine)[2] == "ready")
    assert gpus[2].is_resident(BYTES.digest)


def change_an_id(encoded) -> None:
    if len(encoded.ids):
        encoded.ids = encoded.ids.copy()
        encoded.ids[-1] += 1


def test_one_that_differs_gets_no_batches_of_the_vocabulary(engine, gpus, caplog):
    gpus[2].wrong = change_an_id
    assert engine.load(BYTES).engine == "gpu"
    assert "fake #2 differs" in caplog.text
    assert not gpus[2].is_resident(BYTES.digest)
    before = len(gpus[2].calls)
    for _ in range(6):
        check(engine)
    assert len(gpus[2].calls) == before
    gpus[2].wrong = lambda encoded: None
    engine.unload(BYTES.digest)
    assert engine.load(BYTES).engine == "gpu"
    assert gpus[2].is_resident(BYTES.digest)


def test_where_all_differ_the_vocabulary_is_refused(engine, gpus):
    for gpu in gpus:
        gpu.wrong = change_an_id
    residency = engine.load(BYTES)
    assert residency.engine == "cpu" and "differs" in residency.fallback_reason
    assert not any(gpu.residents for gpu in gpus)


def test_what_one_has_evicted_is_answered_by_others_and_comes_back(engine, gpus):
    engine.load(BYTES)
    gpus[0].unload(BYTES.digest)
    for _ in range(3):
        check(engine)
    assert engine.status().fallbacks == {}
    wait_until(lambda: gpus[0].is_resident(BYTES.digest))


def test_unloading_and_closing_reach_all(engine, gpus):
    engine.load(BYTES)
    assert all(gpu.is_resident(BYTES.digest) for gpu in gpus)
    engine.unload(BYTES.digest)
    assert not any(gpu.is_resident(BYTES.digest) for gpu in gpus)
    several_of(engine).close()
    assert all(gpu.is_closed for gpu in gpus)


def test_out_of_memory_halves_the_batch_and_blames_nobody(engine, gpus):
    engine.load(BYTES)
    for gpu in gpus:
        gpu.max_rows = 10
    check(engine)
    assert engine.status().fallbacks["out_of_memory"] == 3
    assert not any(a.num_failures for a in engine.status().activity.values())


# Memory of other processes.


def handle_of(address: int) -> bytes:
    return str(address).encode().ljust(64, b"\0")


def region_on(engine, gpu, device_id=0):
    address = gpu.device.allocate(4096)
    return engine.open_shared(handle_of(address), 4096, device_id)


def rows_in(text, out) -> SharedRows:
    data = b"some letters of a region " * 60
    if text.on_device:
        text.write(0, np.frombuffer(data, np.uint8))
    offsets = np.array([0, len(data)])
    return SharedRows(SharedText(text, 0, len(data)), offsets, out, 2048, 2048, 1, EncodeOptions())


@pytest.mark.parametrize("device_id", [0, 1, 7])
def test_a_region_is_served_by_the_gpu_that_has_it(engine, gpus, device_id):
    engine.load(BYTES)
    region = region_on(engine, gpus[1], device_id)
    assert region.device is gpus[1].device
    for _ in range(3):
        assert engine.encode_shared(BYTES, rows_in(region, region)).tolist() == [0, 1500]
    assert [gpu.num_shared for gpu in gpus] == [0, 3, 0]
    with pytest.raises(BadHandle, match="no block"):
        engine.open_shared(handle_of(1), 64)
    assert states(engine) == ["ready"] * 3


def test_texts_in_device_memory_stay_there_whatever_the_crossover(engine, gpus):
    engine.load(BYTES)
    engine.crossover_bytes = NEVER
    region = region_on(engine, gpus[1])
    assert engine.encode_shared(BYTES, rows_in(region, region)).tolist() == [0, 1500]


def test_a_region_of_a_gpu_that_is_out_or_of_two_is_left_to_the_host(engine, gpus, monkeypatch):
    rest_for_long(monkeypatch)
    engine.load(BYTES)
    first, second = region_on(engine, gpus[0]), region_on(engine, gpus[1])
    assert engine.encode_shared(BYTES, rows_in(first, second)) is None
    gpus[1].failing_shared = 99
    for _ in range(MAX_FAILURES):
        assert engine.encode_shared(BYTES, rows_in(second, second)) is None
    assert states(engine) == ["ready", "resting", "ready"]
    assert engine.encode_shared(BYTES, rows_in(second, second)) is None
    assert engine.encode_shared(BYTES, rows_in(first, first)).tolist() == [0, 1500]


def test_host_memory_is_page_locked_once_and_served_by_all_in_turn(engine, gpus):
    engine.load(BYTES)
    file = os.memfd_create("region")
    os.truncate(file, 8192)
    os.pwrite(file, b"some letters of a region " * 60, 0)
    region = engine.share_host(file, 0, 8192)
    rows = rows_in(region, region)
    for _ in range(6):
        assert engine.encode_shared(BYTES, rows).tolist() == [0, 1500]
    assert [gpu.num_shared for gpu in gpus] == [2, 2, 2]
    assert sum(engine.status().page_locked.values()) == 8192
    assert os.pread(file, 1500, 2048) == b"some letters of a region " * 60
    gpus[0].failing_shared = 1
    for _ in range(3):
        assert engine.encode_shared(BYTES, rows).tolist() == [0, 1500]
    region.close()
    assert sum(engine.status().page_locked.values()) == 0
    with pytest.raises(ValueError, match="length"):
        engine.share_host(file, 0, 1 << 20)
    os.close(file)


# Kernels, on emulated devices.


class BreakableDevice(EmulatedDevice):
    """An emulated device whose work fails while `is_broken`."""

    is_broken = False

    def stream(self) -> EmulatedStream:
        device = self

        class Breakable(EmulatedStream):
            def _do(self, name, *arguments):
                if device.is_broken:
                    raise RuntimeError("an illegal address was encountered")
                super()._do(name, *arguments)

        return Breakable(self)


def test_kernels_on_two_devices_give_the_references_ids_and_one_may_break(monkeypatch):
    module = service.engines.hybrid.several_gpus
    monkeypatch.setattr(module, "HANG_S", 300.0)
    devices = [BreakableDevice(number=number) for number in range(2)]
    engines = [GpuEngine(device, 1 << 27, 1 << 27) for device in devices]
    engine = HybridEngine(CPU, open_together(*engines, name="emulation"), 0)
    engine.settle()
    gpt2, texts = load("gpt2"), ["It's one of two devices.", "北京 now", "", "x" * 300]
    assert engine.load(gpt2).engine == "gpu"
    expected = CPU.encode(gpt2, Batch(texts))

    def check_ids() -> None:
        encoded = engine.encode(gpt2, Batch(texts))
        assert encoded.ids.tolist() == expected.ids.tolist()
        assert encoded.engine == "gpu"

    for _ in range(4):
        check_ids()
    batches = [each.num_batches for each in engine.status().activity.values()]
    assert batches == [2, 2]
    devices[1].is_broken = True
    for _ in range(2 * MAX_FAILURES):
        check_ids()
    assert states(engine) == ["ready", "resting"]
    devices[1].is_broken = False
    wait_until(lambda: states(engine) == ["ready", "ready"])
    check_ids()
    several_of(engine).close()


# The service around them.


def test_the_service_lists_the_devices_and_answers_while_one_fails_under_load():
    async def scenario() -> None:
        gpus = [FakeGpu(CPU) for _ in range(2)]
        engine = HybridEngine(CPU, open_together(*gpus), 1000)
        async with serving(engine, preload="gpt2") as (client, state):
            await until(lambda: state.preloaded)
            runner = state.batcher.runner
            assert (runner.short_at_once, runner.long_at_once) == (2, 4)
            assert state.batcher.short_lane.at_once == 2 and state.batcher.long_lane.at_once == 4
            body = {"vocabulary": "gpt2", "texts": LARGE}
            expected = CPU.encode(load("gpt2"), Batch(LARGE)).ids.tolist()
            for place in range(12):
                if place == 4:
                    gpus[1].failing = 1 << 30
                answer = (await client.post("/v1/encode/batch", json=body)).json()
                assert answer["engine"] == "gpu"
                assert [each for row in answer["ids"] for each in row] == expected
            info = (await client.get("/v1/info")).json()
            assert [(each["number"], each["state"]) for each in info["devices"]] == [
                (0, "ready"),
                (1, "resting"),
            ]
            assert (await client.get("/readyz")).status_code == 200
            gpt2 = (await client.get("/v1/vocabularies/gpt2")).json()
            assert (gpt2["encoder"], gpt2["engine"]) == ("cuda on 2 GPUs", "gpu")
            metrics = (await client.get("/metrics")).text
            assert 'warptok_device_up{device="fake #0"} 1.0' in metrics
            assert 'warptok_device_up{device="fake #1"} 0.0' in metrics
            assert 'warptok_device_failures_total{device="fake #1"} 3.0' in metrics
            assert 'warptok_device_bytes_in_flight{device="fake #0"} 0.0' in metrics
            assert 'warptok_device_memory_bytes{device="fake #1",part="total"}' in metrics
            assert 'warptok_device_batches_total{device="fake #0"}' in metrics
        assert all(gpu.is_closed for gpu in gpus)

    run(scenario)
