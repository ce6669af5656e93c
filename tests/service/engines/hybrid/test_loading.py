"""Loading a vocabulary: it is compared, refused, or tried again later."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from gpu.errors import DeviceUnavailable, OutOfMemory
from service.engines.cpu.engine import CpuEngine
from service.engines.hybrid.engine import (
    HybridEngine,
)
from tests.service.engines.hybrid.routed import (
    BYTES,
    CROSSOVER,
    LARGE,
    SHARED,
    change_an_id,
    check,
    routed,
)
from tests.support.each_engine import MARKS
from tests.support.each_engine import make_engine as engine_on
from tests.support.gpus.fake_gpu import FakeGpu
from tests.support.inputs.tokenizer_documents import BYTES as CHARACTERS
from tests.support.inputs.tokenizer_documents import document
from tests.support.inputs.tokenizer_documents import encoded as encoded_document
from vocabularies.batch.batch import Batch, Encoded
from vocabularies.builtin import load
from vocabularies.formats import read_vocabulary
from vocabularies.preprocessing.normalizers import Normalizer


def test_a_vocabulary_that_passes_answers_from_the_gpu():
    engine, gpu = routed()
    residency = engine.load(load("gpt2"))
    assert (residency.engine, residency.device_bytes, residency.fallback_reason) == (
        "gpu",
        1000,
        "",
    )
    assert residency.encoder == "cuda on fake"
    assert residency.self_test.num_different == 0
    assert residency.self_test.num_texts > 50
    assert engine.load(load("gpt2")) is residency
    assert gpu.num_loads == 1
    encoded = engine.encode(load("gpt2"), Batch(LARGE))
    assert encoded.engine == "gpu"
    check(encoded, LARGE)
    assert engine.status().fallbacks == {}


@pytest.mark.parametrize("name", ["dnabert2", "gena_lm_t2t_32k"])
@pytest.mark.parametrize("device", [pytest.param(n, marks=MARKS[n]) for n in ("emulated", "cuda")])
@pytest.mark.slow
def test_dna_bpe_passes_and_answers_from_the_gpu(device, name):
    engine = engine_on(device)
    try:
        residency = engine.load(load(name))
        assert residency.self_test.first_difference == ""
        assert residency.engine == "gpu"
    finally:
        engine.close()


def test_one_behind_nfc_answers_from_the_gpu_and_what_is_composed_from_the_cpu():
    vocabulary = replace(load("gpt2"), normalizers=(Normalizer("nfc"),))
    engine = engine_on("emulated")
    try:
        residency = engine.load(vocabulary)
        assert residency.self_test.first_difference == ""
        assert (residency.engine, residency.fallback_reason) == ("gpu", "")
        usual = ["größe, " * 100, "中文"]
        assert engine.encode(vocabulary, Batch(usual)).engine == "gpu"
        assert engine.status().fallbacks == {}
        encoded = engine.encode(vocabulary, Batch([*usual, "e\u0301"]))
        assert encoded.engine == "cpu"
        assert encoded.row(2).tolist() == engine.encode(vocabulary, Batch(["é"])).ids.tolist()
        assert engine.status().fallbacks == {"option": 1}
    finally:
        engine.close()


def test_a_gpu_that_has_ids_for_what_nfc_may_change_differs(monkeypatch):
    written = document(CHARACTERS, [], byte_level=True, normalizer={"type": "NFC"})
    vocabulary = read_vocabulary({"tokenizer.json": encoded_document(written)})
    monkeypatch.setattr(
        "gpu.vocabulary.device_tables.composed_leads", lambda: 0
    )  # The kernel looks at nothing.
    engine = engine_on("emulated")
    try:
        residency = engine.load(vocabulary)
        assert residency.engine != "gpu"
        assert "though NFC may change it" in residency.fallback_reason
    finally:
        engine.close()


def test_one_that_is_not_covered_says_why_and_stays_on_the_cpu():
    engine, gpu = routed(uncovered={BYTES.digest})
    residency = engine.load(BYTES)
    assert (residency.engine, residency.device_bytes) == ("cpu", 0)
    assert residency.fallback_reason == "the GPU does not cover it: a vocabulary in `uncovered`"
    assert residency.self_test.num_different == 0
    assert engine.encode(BYTES, Batch(LARGE)).engine == "cpu"
    assert engine.status().fallbacks == {"not_covered": 1}
    assert gpu.calls == []


def forget_a_refusal(encoded: Encoded) -> None:
    encoded.errors = {}


def move_a_span(encoded: Encoded) -> None:
    if encoded.spans is not None:
        encoded.spans[-1:] += 1


def lose_the_number(encoded: Encoded) -> None:
    if encoded.num_tokens is not None:
        encoded.num_tokens += 1


@pytest.mark.parametrize("wrong", [change_an_id, forget_a_refusal, move_a_span, lose_the_number])
def test_one_that_differs_is_pinned_to_what_agrees_and_says_so(wrong, caplog):
    engine, gpu = routed(wrong=wrong)
    residency = engine.load(load("gpt2"))
    assert residency.engine == "cpu"
    assert residency.encoder == "warptok C++"
    assert residency.self_test.num_different > 0
    assert residency.fallback_reason.startswith("the GPU differs on")
    assert "the GPU differs on" in caplog.text
    assert not gpu.is_resident(load("gpt2").digest)
    gpu.calls.clear()
    check(engine.encode(load("gpt2"), Batch(LARGE)), LARGE)
    assert engine.load(load("gpt2")) == residency
    assert gpu.calls == []
    assert engine.status().fallbacks == {"self_test": 1}


@pytest.mark.parametrize("name", ["count", "decode"])
def test_counts_and_decoded_bytes_are_compared_too(name):
    gpu = FakeGpu(SHARED)
    whole = getattr(gpu, name)

    def wrong(*arguments):
        answer = whole(*arguments)
        answer[0][-1:] += 1
        return answer

    setattr(gpu, name, wrong)
    engine = HybridEngine(SHARED, gpu.opened, CROSSOVER)
    engine.settle()
    assert engine.load(load("gpt2")).fallback_reason.startswith("the GPU differs on")


def test_the_reference_answers_where_nothing_else_agrees(monkeypatch):
    """No CPU encoder agrees; as soon as the GPU can, it encodes even the smallest batch."""
    monkeypatch.setattr("service.engines.cpu.selection._candidates", lambda *_: iter(()))
    engine, gpu = routed(cpu=CpuEngine(), uncovered={load("gpt2").digest})
    assert engine.load(load("gpt2")).engine == "reference"
    assert engine.encode(load("gpt2"), Batch(["a"])).engine == "reference"
    gpu.uncovered.clear()
    engine.unload(load("gpt2").digest)
    assert engine.load(load("gpt2")).engine == "gpu"
    assert engine.encode(load("gpt2"), Batch(["a"])).engine == "gpu"


def test_an_upload_that_does_not_fit_is_tried_again_later(monkeypatch):
    engine, gpu = routed(load_error=OutOfMemory("told to be full"))
    residency = engine.load(BYTES)
    assert (residency.engine, engine.encode(BYTES, Batch(LARGE)).engine) == ("cpu", "cpu")
    assert "told to be full" in residency.fallback_reason
    gpu.load_error = None
    assert engine.load(BYTES).engine == "cpu"
    assert gpu.num_loads == 1
    engine.vocabularies.entries[BYTES.digest].retry_at = 0.0
    assert engine.encode(BYTES, Batch(LARGE)).engine == "cpu"
    assert engine.load(BYTES).engine == "gpu"
    assert engine.encode(BYTES, Batch(LARGE)).engine == "gpu"
    assert engine.status().fallbacks == {"not_resident": 2}


def test_before_the_gpu_is_ready_the_cpu_answers_at_once():
    gpu, gate = FakeGpu(CpuEngine()), threading.Event()

    def open_gpu():
        assert gate.wait(60)
        return gpu.opened()

    engine = HybridEngine(CpuEngine(), open_gpu, CROSSOVER)
    assert engine.load(load("gpt2")).engine == "cpu"
    assert engine.residency(load("gpt2").digest).fallback_reason == "the GPU is not open yet"
    check(engine.encode(load("gpt2"), Batch(LARGE)), LARGE)
    assert engine.status().engines == ("cpu",)
    gpu.gate.clear()
    gate.set()
    engine.vocabularies.wait_until_open()
    assert engine.residency(load("gpt2").digest).fallback_reason == "the GPU has yet to load it"
    assert engine.encode(load("gpt2"), Batch(LARGE)).engine == "cpu"
    gpu.gate.set()
    engine.settle()
    assert engine.residency(load("gpt2").digest).engine == "gpu"
    assert engine.encode(load("gpt2"), Batch(LARGE)).engine == "gpu"
    assert engine.status().engines == ("gpu", "cpu")
    assert engine.status().fallbacks == {"not_resident": 2}
    engine.close()
    assert gpu.is_closed
    assert engine.residency(load("gpt2").digest) is None


@pytest.mark.parametrize("error", [DeviceUnavailable("none"), RuntimeError("broken")], ids=repr)
def test_without_a_gpu_it_is_the_cpu_engine(error):
    def open_gpu():
        raise error

    engine = HybridEngine(CpuEngine(), open_gpu)
    engine.settle()
    residency = engine.load(BYTES)
    assert (residency.engine, residency.fallback_reason) == ("cpu", "")
    assert engine.encode(BYTES, Batch(LARGE)).engine == "cpu"
    status = engine.status()
    assert (status.engines, status.crossover_bytes, status.fallbacks) == (("cpu",), None, {})
    with pytest.raises(DeviceUnavailable):
        engine.vocabularies.wait_until_open()
    engine.close()
