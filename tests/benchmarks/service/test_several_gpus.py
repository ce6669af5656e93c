"""The benchmark of several GPUs, on the CPU engine: it proves all ids and counts each way."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from benchmarks.service.several_gpus import summary
from benchmarks.support.corpora import FILES
from tests.support.data_files import ROOT


@pytest.mark.slow
def test_regions_of_the_host_are_proved_and_timed(tmp_path):
    (tmp_path / "text").mkdir()
    for name in FILES["english"]:
        (tmp_path / "text" / name).write_text("It was a dark and stormy night.\n" * 30)
    out = tmp_path / "gpus.json"
    command = [sys.executable, "-m", "benchmarks.service.several_gpus", "--data", str(tmp_path)]
    command += ["--megabytes", "1", "--rounds", "1", "--seconds", "0.1", "--gpus", "0"]
    command += ["--out", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=300, stdout=subprocess.DEVNULL)
    (row,) = json.loads(out.read_text())["rounds"]
    assert row["gpus"] == 0 and row["host"] > 0


def test_ratios_are_those_of_one_round():
    rows = [
        {"gpus": 1, "round": 0, "host": 4.0, "device": 10.0, "copies": 5.0},
        {"gpus": 2, "round": 0, "host": 8.0, "device": 10.0, "copies": 5.0},
        {"gpus": 1, "round": 1, "host": 40.0, "device": 100.0, "copies": 50.0},
        {"gpus": 2, "round": 1, "host": 60.0, "device": 190.0, "copies": 90.0},
        {"gpus": 1, "round": 2, "host": 50.0, "device": 100.0, "copies": 50.0},
        {"gpus": 2, "round": 2, "host": 100.0, "device": 190.0, "copies": 90.0},
    ]
    found = summary(rows, [1, 2])
    assert found["host 2"] == {"gb_per_s": 80.0, "ratio": 1.75, "first": 8.0}
    assert found["device 2"]["ratio"] == 1.9
    assert found["host 1"]["ratio"] == 1.0
    assert summary(rows[:2], [1, 2])["host 2"] == {"gb_per_s": 8.0, "ratio": 2.0}
