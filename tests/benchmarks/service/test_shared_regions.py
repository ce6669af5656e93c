"""The benchmark of shared memory: it compares the ids of every region; a wrong id ends it."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.engine.gpu_calls import GpuWays
from benchmarks.service.shared_regions import Pair, check, proved
from benchmarks.support.corpora import FILES
from benchmarks.support.texts import cut_rows
from tests.support.data_files import ROOT
from tests.support.emulation.device import EmulatedDevice
from vocabularies.builtin import load


@pytest.mark.slow
def test_regions_of_the_host_are_proved_and_timed(tmp_path):
    (tmp_path / "text").mkdir()
    for name in FILES["english"]:
        (tmp_path / "text" / name).write_text("It was a dark and stormy night.\n" * 30)
    out = tmp_path / "regions.json"
    command = [sys.executable, "-m", "benchmarks.service.shared_regions", "--data", str(tmp_path)]
    command += ["--megabytes", "1", "--rounds", "2", "--out", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=300, stdout=subprocess.DEVNULL)
    rows = [row for row in json.loads(out.read_text())["regions"] if "kind" in row]
    kinds = {(row["kind"], row["dtype"], row["callers"]) for row in rows}
    assert {("system", "int32", 1), ("system", "uint16", 1), ("system", "int32", 2)} <= kinds
    assert all(row["num_ids"] > 1 << 17 and row["gb_per_s"] > 0 for row in rows)


DATA = np.frombuffer(b"Hello, world. " * 100, np.uint8)


@pytest.mark.slow
def test_the_engine_alone_gives_the_same_ids():
    rows = cut_rows("greetings", DATA, 2, 700)
    ways = GpuWays(EmulatedDevice(), 1 << 28)
    with ways.from_device(load("gpt2"), rows.data, rows.offsets) as engine:
        engine.run()
        check(engine.ids(), rows, "gpt2", "the engine alone")
        assert len(engine.ids()) == 402
    ways.engine.close()


def test_other_ids_end_it():
    rows = cut_rows("greetings", DATA, 2, 700)
    pair = Pair("system", lambda size: np.zeros(size, np.uint8), lambda: None)
    with pytest.raises(SystemExit, match="system: other ids"):
        proved(pair, 4000, "int32", rows, "gpt2")
