"""The CPU answers calls that the GPU does not support or fails on."""

from __future__ import annotations

import numpy as np
import pytest

from service.engines.hybrid.engine import (
    Fallbacks,
)
from tests.service.engines.hybrid.routed import (
    BYTES,
    LARGE,
    Clock,
    check,
    right,
    routed,
)
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.builtin import load


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
