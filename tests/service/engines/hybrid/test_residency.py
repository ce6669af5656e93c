"""Vocabularies that are evicted, pinned, unloaded and swapped."""

from __future__ import annotations

import threading
from concurrent import futures

from service.engines.cpu.engine import CpuEngine
from service.engines.hybrid.engine import (
    HybridEngine,
)
from tests.service.engines.hybrid.routed import (
    BYTES,
    LARGE,
    OTHERS,
    right,
    routed,
)
from tests.support.waiting import wait_until
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.builtin import load


def wait_for(engine: HybridEngine, digest: str) -> None:
    entry = engine.vocabularies.entries[digest]
    entry.upload.result(60)


def test_an_evicted_vocabulary_is_on_the_cpu_until_its_next_upload():
    engine, _ = routed(room=2)
    for vocabulary in (BYTES, *OTHERS[:2]):
        assert engine.load(vocabulary).engine == "gpu"
    residency = engine.residency(BYTES.digest)
    assert (residency.engine, residency.device_bytes) == ("cpu", 0)
    assert "has evicted it" in residency.fallback_reason
    encoded = engine.encode(BYTES, Batch(LARGE))
    assert encoded.ids.tolist() == list("".join(LARGE).encode())
    assert encoded.engine == "cpu"
    wait_for(engine, BYTES.digest)
    assert engine.encode(BYTES, Batch(LARGE)).engine == "gpu"
    assert engine.residency(OTHERS[0].digest).engine == "cpu"
    assert engine.load(OTHERS[0]).engine == "gpu"
    assert engine.status().fallbacks == {"not_resident": 1}


def test_a_pinned_one_stays():
    engine, gpu = routed(room=2)
    engine.load(BYTES, permanent=True)
    for vocabulary in OTHERS:
        engine.load(vocabulary)
        assert engine.residency(BYTES.digest).engine == "gpu"
    engine.load(OTHERS[-1], permanent=True)
    assert gpu.permanent == {BYTES.digest, OTHERS[-1].digest}


def test_one_that_is_unloaded_on_its_way_does_not_stay():
    engine, gpu = routed()
    gpu.gate.clear()
    engine.vocabularies.get_or_load(BYTES)
    entry = engine.vocabularies.entries[BYTES.digest]
    engine.unload(BYTES.digest)
    gpu.gate.set()
    entry.upload.result(60)
    assert (gpu.residents, engine.cpu.residency(BYTES.digest)) == ([], None)
    assert engine.residency(BYTES.digest) is None
    assert engine.load(BYTES).engine == "gpu"


def test_requests_go_on_while_a_vocabulary_is_swapped():
    engine, _ = routed(crossover_bytes=0)
    engine.load(load("gpt2"))
    wrong, stop = [], threading.Event()

    def ask() -> None:
        while not stop.is_set():
            encoded = engine.encode(load("gpt2"), Batch(LARGE))
            if encoded.ids.tolist() != right(tuple(LARGE), EncodeOptions()).ids.tolist():
                wrong.append(encoded)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for vocabulary in OTHERS * 3:
        engine.load(vocabulary)
        engine.unload(vocabulary.digest)
    engine.unload(load("gpt2").digest)
    engine.load(load("gpt2"))
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_who_waits_for_uploads_does_not_wait_on_when_the_engine_is_closed(monkeypatch):
    is_waiting = threading.Event()

    def wait(*arguments):
        is_waiting.set()
        return futures.wait(*arguments)

    engine, gpu = routed(cpu=CpuEngine())
    monkeypatch.setattr("service.engines.hybrid.residency.wait", wait)
    gpu.gate.clear()
    for vocabulary in (BYTES, *OTHERS):  # The first upload waits for the gate, the others for it.
        engine.vocabularies.get_or_load(vocabulary)
    with futures.ThreadPoolExecutor(2) as threads:
        settling = threads.submit(engine.settle)
        assert is_waiting.wait(30)
        closing = threads.submit(engine.close)
        wait_until(lambda: not engine.vocabularies.entries)
        gpu.gate.set()
        settling.result(30)
        closing.result(30)
