"""The benchmark of characters and k-mers runs on an emulation and compares before timing."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from benchmarks.dna import symbols
from gpu.engine import GpuEngine
from tests.support.emulation.device import EmulatedDevice

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ for the kernels")


@pytest.mark.slow
def test_every_vocabulary_and_width_is_proved_and_timed(monkeypatch):
    monkeypatch.setattr(symbols, "ROUNDS", 2)
    monkeypatch.setattr(symbols, "ROW_BASES", (0, 150))
    measured = symbols.measure(EmulatedDevice(1 << 32), 1 << 14)
    widths = sum(map(len, symbols.WIDTHS.values()))
    assert len(measured["results"]) == 4 * widths
    for result in measured["results"]:
        assert result["proved_bases"] > 0
        assert 0 < result["share_of_copy"] < result["with_places"]
        unusual = result["sequences"].startswith("N") and result["vocabulary"] == "nt_v2"
        assert (result["rare"] != 0) == unusual


def test_nothing_is_timed_where_ids_differ(monkeypatch):
    engine = GpuEngine(EmulatedDevice(1 << 32), 1 << 28)
    encode = GpuEngine.encode

    def wrong(self, vocabulary, batch):
        encoded = encode(self, vocabulary, batch)
        encoded.ids[0] += 1
        return encoded

    monkeypatch.setattr(GpuEngine, "encode", wrong)
    sequences = symbols.Sequences.of("bases", np.frombuffer(b"ACGT" * 9, np.uint8), 0)
    with pytest.raises(SystemExit, match="nothing is timed"):
        symbols.prove(engine, "hyenadna", sequences)
