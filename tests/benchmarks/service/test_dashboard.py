"""The panels of the dashboard have lines over a real load, as Prometheus computes them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from benchmarks.service.dashboard import PANELS
from tests.support.data_files import ROOT


@pytest.mark.slow
def test_prometheus_answers_the_queries_of_the_panels(tmp_path):
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed")
    out = tmp_path / "dashboard.json"
    command = [sys.executable, "-m", "benchmarks.service.dashboard", "--seconds", "12"]
    command += ["--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    panels = {panel["title"]: panel["lines"] for panel in json.loads(out.read_text())["panels"]}
    assert list(panels) == list(PANELS)
    assert set(panels["Requests by key"]) == {"web", "search", "genomes", "assistant"}
    for title, lines in panels.items():
        assert any(value for points in lines.values() for _, value in points), title
