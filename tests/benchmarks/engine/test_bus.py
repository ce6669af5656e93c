"""The benchmark of bulk calls beside PCIe runs on an emulation and compares ids before timing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from benchmarks.engine import bus, bus_calls
from gpu.engine import GpuEngine

NO_FILES = Path()
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ for the kernels")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus_calls, "ONCE_BYTES", 1 << 13)
    for name, value in {
        "SHAPES": ((4, 4096),),
        "MOST_BYTES": 1 << 22,
        "ROUNDS": 2,
        "WARMUPS": 0,
        "TEXTS": {"gpt2": ("hostile",), "o200k_base": ("hostile",)},
    }.items():
        monkeypatch.setattr(bus, name, value)


def measured(out: Path, *arguments: str) -> list[dict[str, object]]:
    bus.main(["--data", str(NO_FILES), "--out", str(out), "--emulate", *arguments])
    results: list[dict[str, object]] = json.loads(out.read_text())["results"]
    return results


@pytest.mark.slow
def test_every_call_is_proved_and_timed(small: None, tmp_path: Path) -> None:
    results = measured(tmp_path / "bus.json", "--only", "gpt2", "o200k_base", "hyenadna")
    calls = {(row["vocabulary"], row["call"]) for row in results}
    assert len(calls) == len(results) == 16 + 14 + 19
    assert ("hyenadna", "windows, ordinary") in calls
    assert all(row["times_the_bus"] > 0 and row["bytes_in"] > 0 for row in results)


def test_nothing_is_timed_where_an_answer_is_another(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = GpuEngine.decode

    def wrong(self, *given):
        data, offsets, errors = decode(self, *given)
        data = data.copy()
        data[-1] ^= 1
        return data, offsets, errors

    monkeypatch.setattr(GpuEngine, "decode", wrong)
    with pytest.raises(SystemExit, match="decode, int32, pinned: another answer"):
        measured(tmp_path / "bus.json", "--only", "gpt2", "--calls", "decode")
    assert not (tmp_path / "bus.json").exists()


def test_repeated_rows_are_whole_texts() -> None:
    text = bus_calls.make_text("runs", NO_FILES, 1024, 8192)
    assert len(text.offsets) == 1025
    assert np.array_equal(text.data[: len(text.data) // 4], text.data[-len(text.data) // 4 :])
