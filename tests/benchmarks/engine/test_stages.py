"""The benchmark of a batch's stages: on the CPU, and on the emulated device."""

from __future__ import annotations

import pytest

from benchmarks.engine import stages
from tests.support.emulation.device import EmulatedDevice


@pytest.mark.slow
def test_all_stages_are_timed_and_ids_are_compared(monkeypatch):
    monkeypatch.setattr(stages, "VOCABULARIES", ("gpt2", "hyenadna"))
    monkeypatch.setattr(stages, "SLICE_S", 0)
    monkeypatch.setattr(stages, "WORKSPACE_BYTES", 1 << 26)
    english = b"It's a truth universally acknowledged, that a batch has stages. " * 40
    rows = stages.run(english, ((16, 128),), 1, EmulatedDevice())
    assert [(row["vocabulary"], row["engine"]) for row in rows] == [
        ("gpt2", "cpu"),
        ("gpt2", "gpu"),
        ("hyenadna", "cpu"),
        ("hyenadna", "gpu"),
    ]
    for row in rows:
        encoding = ["copy in", "kernels", "copy out"] if row["engine"] == "gpu" else ["encode"]
        assert {*row["stages"]} == {"read", "join", "write", *encoding}
        assert all(each["median_s"] > 0 for each in (*row["stages"].values(), row["whole"]))
        assert (row["rows"], row["bytes"]) == (16, 2048)
