"""Tokenizers on GPUs, emulated and real: which device computes, and ids in its memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import warptok
from gpu.errors import DeviceUnavailable
from gpu.runtime import cuda_device
from service.engines.cpu.engine import CpuEngine
from service.engines.hybrid.residency import OpenedGpu
from tests.support.each_device import DEVICES, new_engine
from tests.support.gpus.fake_gpu import FakeGpu
from vocabularies.builtin import load
from warptok import devices
from warptok.devices import open_place

SEQUENCES = ["ACGTNACGTACGTACG", "", "GATTACAGATTACA"]
CROSSOVER = 1000
CACHED = (devices._open_any, devices._open_cuda)


@pytest.fixture(autouse=True)
def opened_anew() -> Iterator[None]:
    """Let each test open its own devices."""
    for opened in CACHED:
        opened.cache_clear()
    yield
    for opened in CACHED:
        opened.cache_clear()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    """A machine with two GPUs, which have the answers of the CPU engine."""
    gpu = FakeGpu(CpuEngine())

    def open_fake(number: int) -> OpenedGpu:
        if number > 1:
            raise DeviceUnavailable(f"there is no device {number}")
        return OpenedGpu(gpu, {"name": f"fake {number}", "number": number, "total_bytes": 1})

    monkeypatch.setattr(cuda_device, "num_devices", lambda: 2)
    monkeypatch.setattr(devices, "_open_gpu", open_fake)
    monkeypatch.setattr("service.engines.hybrid.engine.measure_crossover", lambda *_: CROSSOVER)
    return gpu


@pytest.fixture(params=DEVICES)
def on_gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open an emulated or a real GPU as "cuda:0"."""
    described = {"name": str(request.param), "number": 0, "total_bytes": 1}
    opened = OpenedGpu(new_engine(request.param), described)
    monkeypatch.setattr(devices, "_open_gpu", lambda number: opened)


@pytest.mark.slow
def test_a_named_gpu_gets_all_batches(fake):
    tok = warptok.load("hyenadna", device="cuda:1")
    assert tok.device == "cuda:1"
    assert repr(tok).endswith("on cuda:1 (fake 1)>")
    assert tok.encode_batch(["ACGT"]).engine == "gpu"
    assert tok.encode("ACGT") == [7, 8, 9, 10, 1]
    assert fake.answered[-1] == 1
    assert open_place("cuda:1") is open_place("cuda:1")


@pytest.mark.slow
def test_auto_sends_large_batches_to_the_gpu(fake):
    tok = warptok.load("hyenadna")
    assert "on cuda:0 (fake 0) from 1000 bytes on, below on cpu" in repr(tok)
    assert tok.encode_batch(["ACGT" * 1000]).engine == "gpu"
    assert tok.encode_batch(["ACGT"]).engine == "cpu"


def test_auto_without_a_gpu_is_the_cpu(monkeypatch):
    monkeypatch.setattr(cuda_device, "num_devices", lambda: 0)
    assert open_place("auto") is open_place("cpu")
    assert open_place("auto", 1) is open_place("cpu", 1) is not open_place("cpu")
    assert open_place("auto", 1).cpu.num_threads == 1
    assert warptok.load("hyenadna").device == "cpu"


def test_a_vocabulary_that_the_kernels_do_not_compute(fake):
    fake.uncovered.add(load("hyenadna").digest)
    with pytest.raises(warptok.DeviceUnavailable, match=r'does not cover it.*device="auto"'):
        warptok.load("hyenadna", device="cuda")
    tok = warptok.load("hyenadna", device="auto")
    assert "on cpu (" in repr(tok)


def test_a_gpu_that_there_is_not(fake):
    with pytest.raises(warptok.DeviceUnavailable, match="there is no device 7"):
        warptok.load("gpt2", device="cuda:7")


@pytest.mark.slow
def test_ids_stay_on_the_gpu(on_gpu):
    tok = warptok.load("hyenadna", device="cuda")
    batch = tok.encode_to_device(SEQUENCES, add_special_tokens=False, dtype="uint8")
    right = tok.encode_batch(SEQUENCES, add_special_tokens=False)
    assert batch.ids.to_host().tolist() == right.ids.tolist()
    assert batch.offsets.tolist() == right.offsets.tolist()
    assert (batch.ids.dtype, batch.digest, len(batch)) == (np.uint8, tok.digest, 3)
    assert repr(batch) == "<warptok.DeviceBatch: 3 rows, 30 ids uint8>"
    assert right.engine == "gpu"
    with pytest.raises(warptok.InvalidRequest, match="cannot be put around ids in GPU memory"):
        tok.encode_to_device(SEQUENCES)
    with pytest.raises(warptok.RowRefused, match="not_utf8"):
        tok.encode_to_device([b"\xff"], add_special_tokens=False)


@pytest.mark.slow
def test_windows_stay_on_the_gpu(on_gpu):
    tok = warptok.load("mtdna6", device="cuda")
    values = np.linspace(0, 1, sum(map(len, SEQUENCES)))
    layout = {"window": 4, "stride": 2, "circular": False, "add_cls": True}
    made = tok.windows_to_device(SEQUENCES, channel=values, **layout)
    host = made.to_host()
    first = tok.windows(SEQUENCES[0], channel=values[:16], **layout)
    part = slice(made.rows[0], made.rows[1])
    assert host.input_ids[part].tolist() == first.input_ids.tolist()
    assert host.position_ids[part].tolist() == first.position_ids.tolist()
    assert host.channel is not None
    assert first.channel is not None
    assert host.channel[part].tolist() == first.channel.tolist()
    other = warptok.load("hyenadna", device="cuda")
    lower = [sequence.lower() for sequence in SEQUENCES]
    upper = other.windows_to_device(lower, window=4, stride=2, uppercase=True).to_host()
    plain = other.windows_to_device(SEQUENCES, window=4, stride=2).to_host()
    assert upper.input_ids.tolist() == plain.input_ids.tolist()
    with pytest.raises(warptok.DeviceUnavailable, match="characters and k-mers"):
        warptok.load("dnabert2", device="cuda").windows_to_device(["ACGT"])
