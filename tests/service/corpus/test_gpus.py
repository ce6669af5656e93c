"""All GPUs for a corpus: the vocabulary is on each of them before the first block."""

from __future__ import annotations

import pytest

from service.corpus import gpus
from service.engines.cpu.engine import CpuEngine
from tests.support.emulation.device import EmulatedDevice
from tests.support.gpus.gpu_workers import NEEDS_COMPILER
from vocabularies.batch.batch import Batch
from vocabularies.builtin import load

pytestmark = [NEEDS_COMPILER, pytest.mark.slow]


def test_the_first_blocks_are_encoded_by_the_gpus(monkeypatch):
    monkeypatch.setattr(gpus, "CudaDevice", lambda number: EmulatedDevice(1 << 28))
    monkeypatch.setattr("service.engines.hybrid.engine.measure_crossover", lambda small, large: 1)
    cpu, vocabulary = CpuEngine(num_threads=1), load("evo_bytes")
    opened = gpus.open_gpus(cpu, 2, vocabulary)
    try:
        for _ in range(2):
            encoded = opened.encode(vocabulary, Batch(["some letters " * 90]))
            assert encoded.engine == "gpu"
            right = cpu.encode(vocabulary, Batch(["some letters " * 90]))
            assert encoded.ids.tolist() == right.ids.tolist()
    finally:
        opened.close()
