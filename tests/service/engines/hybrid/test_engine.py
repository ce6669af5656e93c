"""The GPU beside the CPU: who answers, and that it shows."""

from __future__ import annotations

import logging
import shutil
import sys
import threading

import numpy as np
import pytest

import service.engines.hybrid.opening as opening
import service.engines.hybrid.residency
from gpu.engine import GpuEngine
from gpu.kernels.catalog import KERNELS
from gpu.kernels.families import TEXT, encode_kernels, family_on
from gpu.kernels.launch_shape import CLASSES
from service.core.settings import Settings
from service.engines.cpu.engine import CpuEngine
from service.engines.cpu.verification import verify
from service.engines.hybrid.crossover_measurement import NEVER
from service.engines.hybrid.engine import (
    HybridEngine,
)
from service.engines.hybrid.opening import open_cuda
from service.engines.hybrid.residency import OpenedGpu
from service.server.app import make_engine
from tests.service.engines.hybrid.routed import (
    BYTES,
    CROSSOVER,
    LARGE,
    SHARED,
    SHORT,
    change_an_id,
    check,
    right,
    routed,
)
from tests.support.app_client import serving
from tests.support.emulation.device import EmulatedDevice
from tests.support.gpus.fake_gpu import FakeGpu
from tests.support.waiting import run, until
from vocabularies.batch.batch import DEFAULT_OPTIONS, Batch, EncodeOptions
from vocabularies.builtin import load


def test_the_size_of_a_batch_says_who_answers_and_every_answer_says_who_did():
    engine, _ = routed(crossover_bytes=100)
    engine.load(BYTES)
    for texts, name in (
        (["a" * 99], "cpu"),
        (["a" * 100], "gpu"),
        (["a"] * 99, "cpu"),
        (["a"] * 100, "gpu"),
        (["é" * 49], "cpu"),
        (["é" * 50], "gpu"),
        ([], "cpu"),
    ):
        assert engine.encode(BYTES, Batch(texts)).engine == name
        assert engine.count(BYTES, Batch(texts)).engine == name
        rows = Batch.from_bytes([text.encode() for text in texts])
        assert engine.encode(BYTES, rows).engine == name
    ids = np.full(25, 65, np.int64)
    assert engine.decode(BYTES, ids, np.array([0, 25]), False).engine == "gpu"
    assert engine.decode(BYTES, ids[1:], np.array([0, 24]), False).engine == "cpu"
    assert engine.status().fallbacks == {}


def test_a_crossover_of_zero_sends_everything_to_the_gpu():
    engine, _ = routed(crossover_bytes=0)
    engine.load(BYTES)
    assert engine.encode(BYTES, Batch(["a"])).engine == "gpu"
    assert engine.status().crossover_bytes == 0


# The service around it.


def test_the_service_shows_who_answers_and_what_went_wrong():
    async def scenario() -> None:
        gpu = FakeGpu(CpuEngine())
        engine = HybridEngine(CpuEngine(), gpu.opened, CROSSOVER)
        gpu.uncovered.add(load("hyenadna").digest)
        gpu.max_rows = 200
        async with serving(engine, preload="gpt2,hyenadna") as (client, service):
            await until(lambda: service.preloaded)
            body = {"vocabulary": "gpt2", "texts": LARGE}
            answer = (await client.post("/v1/encode/batch", json=body)).json()
            assert answer["engine"] == "gpu"
            small = (await client.post("/v1/encode", json=body | {"texts": None})).status_code
            assert small == 422
            answer = (
                await client.post("/v1/encode", json={"text": "a", "vocabulary": "gpt2"})
            ).json()
            assert answer["engine"] == "cpu"
            answer = (await client.post("/v1/count", json=body)).json()
            assert answer["num_tokens"] == [len(r) for r in await ids_of(client, body)]
            gpu.max_rows = 10
            answer = (await client.post("/v1/encode/batch", json=body)).json()
            assert answer["ids"] == await ids_of(client, body)
            info = (await client.get("/v1/info")).json()
            assert info["engines"] == ["gpu", "cpu"]
            assert info["devices"] == [{"name": "fake", "total_bytes": 1, "state": "ready"}]
            assert info["crossover_bytes"] == CROSSOVER
            assert info["fallbacks"]["out_of_memory"] > 0
            gpt2 = (await client.get("/v1/vocabularies/gpt2")).json()
            assert (gpt2["engine"], gpt2["residency"]) == ("gpu", ["gpu", "cpu"])
            hyenadna = (await client.get("/v1/vocabularies/hyenadna")).json()
            assert (hyenadna["engine"], hyenadna["residency"]) == ("cpu", ["cpu"])
            assert "a vocabulary in `uncovered`" in hyenadna["fallback_reason"]
            metrics = (await client.get("/metrics")).text
            assert f"warptok_crossover_bytes {float(CROSSOVER)}" in metrics
            assert 'warptok_fallbacks_total{reason="out_of_memory"}' in metrics
            assert 'warptok_vocabulary_device_bytes{name="gpt2"} 1000.0' in metrics
            assert 'warptok_batches_total{engine="gpu",operation="count"} 1.0' in metrics
            gpu.unload(load("gpt2").digest)
            gpu.max_rows = 200
            gpt2 = (await client.get("/v1/vocabularies/gpt2")).json()
            assert (gpt2["engine"], gpt2["residency"]) == ("cpu", ["cpu"])
            gpt2 = (await client.post("/v1/vocabularies/gpt2/load")).json()
            assert (gpt2["engine"], gpu.permanent) == ("gpu", {load("gpt2").digest})
        assert gpu.is_closed

    run(scenario)


async def ids_of(client, body) -> list[list[int]]:
    return (await client.post("/v1/encode/batch", json=body)).json()["ids"]


def test_the_first_answer_does_not_wait_for_the_gpu():
    async def scenario() -> None:
        gpu, gate = FakeGpu(CpuEngine()), threading.Event()

        def open_gpu():
            assert gate.wait(60)
            return gpu.opened()

        engine = HybridEngine(CpuEngine(), open_gpu, 0)
        async with serving(engine, preload="gpt2") as (client, service):
            body = {"vocabulary": "gpt2", "text": "Hello, world!"}
            answer = (await client.post("/v1/encode", json=body)).json()
            assert (answer["ids"], answer["engine"]) == ([15496, 11, 995, 0], "cpu")
            assert (await client.get("/readyz")).status_code == 503
            gate.set()
            await until(lambda: service.preloaded)
            assert (await client.get("/readyz")).status_code == 200
            assert (await client.post("/v1/encode", json=body)).json()["engine"] == "gpu"

    run(scenario)


def test_verifying_compares_both_ways():
    engine, gpu = routed()
    engine.load(load("gpt2"))
    texts = ["some letters", "and more of them"] * 3
    found = verify(engine, load("gpt2"), texts)
    assert (found.num_texts, found.num_different, found.engines) == (6, 0, ("cpu", "gpu"))
    gpu.wrong = change_an_id
    found = verify(engine, load("gpt2"), texts * 40)
    assert (found.num_texts, found.num_different) == (240, 1)
    assert found.first_difference["engine"] != found.first_difference["reference"]
    gpu.wrong = lambda encoded: None
    assert verify(engine, load("gpt2"), [""] * 5).engines == ("cpu",)
    engine.crossover_bytes = NEVER
    assert verify(engine, load("gpt2"), texts).engines == ("cpu",)
    assert verify(engine, load("gpt2"), []).num_texts == 0


# The real engine on an emulated device.


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ for the kernels")
@pytest.mark.slow
def test_the_real_engine_in_hardly_any_memory_gives_the_same_ids():
    device = EmulatedDevice()
    gpu = GpuEngine(device, 12 << 20, 52 << 20)
    engine = HybridEngine(SHARED, lambda: OpenedGpu(gpu, {"name": "small"}), 1)
    engine.settle()
    assert engine.load(load("gpt2"), permanent=True).engine == "gpu"
    texts = [*SHORT, "many letters " * 30_000, *SHORT, *["and more of them " * 300] * 60]
    for options in (DEFAULT_OPTIONS, EncodeOptions(spans=True, max_length=50)):
        encoded = engine.encode(load("gpt2"), Batch(texts, options=options))
        check(encoded, texts, options)
    fallbacks = engine.status().fallbacks
    assert fallbacks.keys() == {"out_of_memory"}
    assert 4 < fallbacks["out_of_memory"] < 100
    assert device.used_bytes <= 64 << 20
    # The second vocabulary has no room beside the pinned one.
    assert "beside" in engine.load(load("cl100k_base")).fallback_reason
    assert engine.residency(load("gpt2").digest).engine == "gpu"
    engine.unload(load("gpt2").digest)
    engine.vocabularies.entries[load("cl100k_base").digest].retry_at = 0.0
    assert engine.encode(load("cl100k_base"), Batch(SHORT)).engine == "cpu"
    assert engine.load(load("cl100k_base")).engine == "gpu"
    assert engine.load(load("gpt2")).engine == "gpu"
    assert engine.residency(load("cl100k_base").digest).engine == "cpu"
    gpu.close()
    assert device.used_bytes == 0


# Which engine a service has.


def test_without_cupy_the_best_engine_is_the_cpu(monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("service.server.app.importlib.util.find_spec", lambda name: None)
    assert isinstance(make_engine(Settings()), CpuEngine)
    assert "CuPy is not installed" in caplog.text
    assert isinstance(make_engine(Settings(engine="cpu")), CpuEngine)


def test_a_missing_gpu_that_the_settings_demand_stops_the_start(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(ValueError, match=r"WARPTOK_ENGINE=gpu: CuPy is not installed"):
        make_engine(Settings(engine="gpu"))


def test_a_gpu_that_is_there_is_opened_with_its_share_of_the_memory(monkeypatch):
    gpu, shares = FakeGpu(CpuEngine()), []

    def open_cuda(memory_share: float):
        shares.append(memory_share)
        return gpu.opened()

    monkeypatch.setattr("service.engines.hybrid.opening.open_cuda", open_cuda)
    monkeypatch.setattr("service.server.app.importlib.util.find_spec", lambda name: object())
    for engine in ("auto", "gpu"):
        made = make_engine(Settings(engine=engine, crossover_bytes=5, gpu_memory_share=0.25))
        made.settle()
        assert made.status().crossover_bytes == 5
        made.close()
    assert shares == [0.25, 0.25]


def test_patience_with_a_gpu_that_hangs_ends(monkeypatch, caplog):
    monkeypatch.setattr(service.engines.hybrid.residency, "PATIENCE_S", 0.05)
    gate = threading.Event()
    engine = HybridEngine(CpuEngine(), lambda: gate.wait(60) and FakeGpu(engine.cpu).opened(), 0)
    engine.settle()
    assert "not ready" in caplog.text
    assert engine.load(BYTES).fallback_reason == "the GPU is not open yet"
    assert engine.encode(BYTES, Batch(LARGE)).engine == "cpu"
    gate.set()
    engine.close()


def test_every_text_is_the_same_from_either_engine():
    engine, _ = routed(crossover_bytes=0)
    engine.load(load("gpt2"))
    encoded = engine.encode(load("gpt2"), Batch(SHORT))
    check(encoded, SHORT)
    assert encoded.engine == "gpu"


def test_long_bodies_lie_in_memory_that_the_gpu_lends():
    engine, gpu = routed()
    assert engine.host_memory(CROSSOVER) is gpu.lent[0]
    assert len(engine.host_memory(CROSSOVER - 1)) == CROSSOVER - 1
    gpu.room = 0
    assert len(engine.host_memory(CROSSOVER)) == CROSSOVER
    assert len(gpu.lent) == 1
    gpu.room, text = 9, b"a body of many bytes " * 20_000

    async def scenario():
        async with serving(engine) as (client, _):
            headers = {"content-type": "application/octet-stream"}
            headers["accept"] = headers["content-type"]
            answer = await client.post("/v1/encode?vocabulary=gpt2", content=text, headers=headers)
            assert answer.content == right((text.decode(),), DEFAULT_OPTIONS).ids.tobytes()

    run(scenario)
    assert gpu.lent[-1].tobytes() == text


def test_a_device_that_is_lost_does_not_take_the_metrics_with_it(monkeypatch, caplog):
    gpu = FakeGpu(SHARED)
    engine = HybridEngine(SHARED, gpu.opened, CROSSOVER)
    engine.vocabularies.wait_until_open()
    assert engine.status().memory == {"fake": gpu.memory()}
    gpu.stage_times._measured.append(("merge", 0.5))
    monkeypatch.setattr(gpu, "memory", lambda: 1 / 0)
    assert engine.status().memory == {"fake": {}}
    taken = engine.take_stage_seconds()
    assert taken.pop("merge") == [0.5] and set(map(len, taken.values())) == {0}
    assert "memory of the GPU cannot be read" in caplog.text


@pytest.mark.parametrize("limits", CLASSES.values(), ids=str)
def test_the_kernels_of_texts_of_any_size_are_compiled_before_the_gpu_answers(monkeypatch, limits):
    device = EmulatedDevice(limits=limits)
    monkeypatch.setattr(opening, "CudaDevice", lambda: device)
    assert open_cuda(0.5).device["name"] == "emulation"
    family = family_on(TEXT, limits.runs)
    needed = (*family.fused, *encode_kernels(TEXT, num_rounds=2, validate=True), *TEXT.decode)
    assert {KERNELS[name].module for name in needed} == device.prepared
