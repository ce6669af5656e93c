"""The GPU beside the CPU: who answers, what happens when the GPU cannot, and that it shows."""

from __future__ import annotations

import functools
import logging
import shutil
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest

import service.engines.hybrid.opening as opening
import service.engines.hybrid.residency
from gpu.engine import GpuEngine
from gpu.errors import DeviceUnavailable, OutOfMemory
from gpu.kernels.catalog import KERNELS
from gpu.kernels.families import TEXT, encode_kernels, family_on
from gpu.kernels.launch_shape import CLASSES
from service.core.settings import Settings
from service.engines.cpu.engine import CpuEngine
from service.engines.cpu.verification import verify
from service.engines.hybrid.crossover import BUDGET_S, NEVER, SIZES, Differs, measure_crossover
from service.engines.hybrid.engine import (
    DEFAULT_CROSSOVER_BYTES,
    Fallbacks,
    HybridEngine,
)
from service.engines.hybrid.opening import open_cuda
from service.engines.hybrid.residency import OpenedGpu
from service.server.app import make_engine
from tests.support.app_client import serving
from tests.support.each_engine import MARKS
from tests.support.each_engine import make_engine as engine_on
from tests.support.emulation.device import EmulatedDevice
from tests.support.fake_engine import byte_vocabulary
from tests.support.gpus.fake_gpu import FakeGpu
from tests.support.inputs.nasty_texts import TEXTS
from tests.support.inputs.tokenizer_documents import BYTES as CHARACTERS
from tests.support.inputs.tokenizer_documents import document
from tests.support.inputs.tokenizer_documents import encoded as encoded_document
from tests.support.waiting import run, until
from vocabularies.batch.batch import DEFAULT_OPTIONS, Batch, Encoded, EncodeOptions
from vocabularies.builtin import load
from vocabularies.formats import read_vocabulary
from vocabularies.preprocessing.normalizers import Normalizer

BYTES = byte_vocabulary()
OTHERS = [byte_vocabulary(256 + n) for n in range(1, 4)]
SHORT = [text for text in TEXTS if len(text) < 200]
LARGE = ["many letters " * 9] * 40
CROSSOVER = 1000


SHARED = CpuEngine()


def routed(
    crossover_bytes: int | None = CROSSOVER, cpu: CpuEngine = SHARED, **told: object
) -> tuple[HybridEngine, FakeGpu]:
    """A settled engine on a fake GPU that has been told what to do."""
    gpu = FakeGpu(SHARED)
    for name, value in told.items():
        setattr(gpu, name, value)
    engine = HybridEngine(cpu, gpu.opened, crossover_bytes)
    engine.settle()
    return engine, gpu


@functools.cache
def right(texts: tuple[str, ...], options: EncodeOptions) -> Encoded:
    return SHARED.encode(load("gpt2"), Batch(list(texts), options=options))


def check(encoded: Encoded, texts: list[str], options: EncodeOptions = DEFAULT_OPTIONS) -> None:
    expected = right(tuple(texts), options)
    assert encoded.ids.tolist() == expected.ids.tolist()
    assert encoded.offsets.tolist() == expected.offsets.tolist()
    assert encoded.errors == expected.errors
    for name in ("spans", "num_tokens"):
        got, wanted = getattr(encoded, name), getattr(expected, name)
        assert (got is None) == (wanted is None)
        assert got is None or got.tolist() == wanted.tolist()


# Loading.


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


def change_an_id(encoded: Encoded) -> None:
    encoded.ids[-1:] += 1


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
    assert residency.encoder.startswith("fastokens")
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
    """The CPU engine, too, has nothing better; the GPU is then asked for the smallest batch."""
    monkeypatch.setattr("service.engines.cpu.selection._candidates", lambda vocabulary: iter(()))
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


# Routing.


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


class Clock:
    """A clock that stands still but in the calls of its engines."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now

    def as_long_as(self, seconds):
        """An engine that takes so many seconds for so many bytes."""

        def encode(batch: Batch) -> Encoded:
            self.now += seconds(len(batch.data))
            return Encoded(batch.data.astype(np.int32), batch.offsets)

        return encode


@pytest.fixture
def clock(monkeypatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("service.engines.hybrid.crossover.perf_counter", made)
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


# Falling back.


@pytest.mark.parametrize("max_rows", [0, 1, 7, 20, 39])
@pytest.mark.parametrize(
    "options", [EncodeOptions(), EncodeOptions(max_length=9, spans=True)], ids=["ids", "spans"]
)
def test_out_of_memory_halves_the_batch(max_rows, options):
    engine, gpu = routed()
    engine.load(load("gpt2"))
    gpu.max_rows = max_rows
    gpu.calls.clear()
    texts = [f"row {i} {'of letters ' * (i % 7 + 1)}" for i in range(40)]
    encoded = engine.encode(load("gpt2"), Batch(texts, options=options))
    check(encoded, texts, options)
    assert encoded.engine == ("gpu" if max_rows else "cpu")
    assert gpu.calls[0] == 40
    assert engine.status().fallbacks["out_of_memory"] == sum(n > max_rows for n in gpu.calls)
    counted = engine.count(load("gpt2"), Batch(texts, options=options))
    assert counted.counts.tolist() == np.diff(encoded.offsets).tolist()
    decoded = engine.decode(load("gpt2"), encoded.ids.astype(np.int64), encoded.offsets, False)
    assert decoded.engine == counted.engine == encoded.engine
    if options.max_length is None:
        assert decoded.data.tobytes().decode() == "".join(texts)


def test_a_row_that_does_not_fit_goes_to_the_cpu_alone():
    engine, gpu = routed()
    engine.load(load("gpt2"))
    gpu.max_rows = 10
    gpu.calls.clear()
    gpu.answered.clear()
    texts = [f"row {i} with some letters" for i in range(64)]
    texts[17] = texts[40] = "this one is " + gpu.heavy
    options = [EncodeOptions(spans=i % 3 == 0) for i in range(64)]
    encoded = engine.encode(load("gpt2"), Batch(texts, options=options))
    assert encoded.engine == "cpu"
    for row, text in enumerate(texts):
        assert encoded.row(row).tolist() == right((text,), EncodeOptions()).ids.tolist()
        if row % 3 == 0:
            begin, end = encoded.offsets[row : row + 2]
            spans = right((text,), EncodeOptions(spans=True)).spans
            assert encoded.spans[begin:end].tolist() == spans.tolist()
    num_halved = sum(1 for num_rows in gpu.calls if num_rows > 10)
    assert engine.status().fallbacks["out_of_memory"] > num_halved
    answered = [row for row in range(64) if gpu.heavy not in texts[row]]
    assert sum(gpu.answered) == len(answered)


def test_halving_ends_where_nothing_fits_at_all():
    engine, gpu = routed()
    engine.load(BYTES)
    gpu.calls.clear()
    gpu.max_rows = 0
    texts = ["abc"] * 65536
    encoded = engine.encode(BYTES, Batch(texts))
    assert encoded.ids.tolist() == list(b"abc") * 65536
    assert len(gpu.calls) < 200


def test_a_device_that_fails_loses_nothing_and_rests_after_three_times(caplog):
    engine, gpu = routed()
    engine.fallbacks = fallbacks = Fallbacks(clock := Clock())
    engine.load(load("gpt2"))
    gpu.calls.clear()
    gpu.failing = 2
    for name in ("cpu", "cpu", "gpu"):
        encoded = engine.encode(load("gpt2"), Batch(LARGE))
        check(encoded, LARGE)
        assert encoded.engine == name
    gpu.failing = 99
    for _ in range(5):
        check(engine.encode(load("gpt2"), Batch(LARGE)), LARGE)
    assert len(gpu.calls) == 6
    assert fallbacks.counts() == {"device_error": 5, "resting": 2}
    clock.now += 61
    engine.encode(load("gpt2"), Batch(LARGE))
    engine.encode(load("gpt2"), Batch(LARGE))
    assert len(gpu.calls) == 7
    gpu.failing = 0
    clock.now += 61
    for _ in range(3):
        assert engine.encode(load("gpt2"), Batch(LARGE)).engine == "gpu"
    gpu.failing = 1
    assert engine.count(load("gpt2"), Batch(LARGE)).engine == "cpu"
    assert engine.count(load("gpt2"), Batch(LARGE)).engine == "gpu"
    lines = [record.message for record in caplog.records if "fallback" in record.message]
    assert sum("device_error" in line for line in lines) == 3
    assert "told to fail" in caplog.text


def test_a_failure_between_halves_doubles_no_row():
    engine, gpu = routed()
    engine.load(load("gpt2"))
    gpu.max_rows = 10
    texts = [f"row {i} with some letters" for i in range(64)]
    encode = gpu.encode

    def fail_on_the_third(vocabulary, batch):
        if len(gpu.calls) % 7 == 6:
            gpu.calls.append(0)
            raise RuntimeError("told to fail")
        return encode(vocabulary, batch)

    gpu.encode = fail_on_the_third
    gpu.calls.clear()
    check(engine.encode(load("gpt2"), Batch(texts)), texts)
    assert engine.status().fallbacks["device_error"] == 1


def test_what_a_row_asks_for_and_the_gpu_does_not_do_is_the_cpus():
    engine, _ = routed()
    engine.load(load("gpt2"))
    options = EncodeOptions(reverse_complement=True)
    sequences = ["ACGTACGTTG" * 10] * 20
    encoded = engine.encode(load("gpt2"), Batch(sequences, options=options))
    check(encoded, sequences, options)
    assert (encoded.engine, engine.status().fallbacks) == ("cpu", {"option": 1})
    assert engine.encode(load("gpt2"), Batch(sequences)).engine == "gpu"


def test_a_reason_is_logged_once_a_minute_with_its_number(caplog):
    fallbacks = Fallbacks(clock := Clock())
    for _ in range(5):
        fallbacks.add("out_of_memory", "first")
        fallbacks.add("device_error", "other")
    clock.now += 61
    fallbacks.add("out_of_memory", "second")
    messages = [record.message for record in caplog.records]
    assert messages == [
        "fallback out_of_memory (1 since the last line): first",
        "fallback device_error (1 since the last line): other",
        "fallback out_of_memory (5 since the last line): second",
    ]
    assert fallbacks.counts() == {"out_of_memory": 6, "device_error": 5}


# Residency.


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
