"""Replicas behind a proxy are restarted without a failed request."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from tests.support.data_files import ROOT


@pytest.mark.slow
@pytest.mark.parametrize(("proxy", "seconds"), [("haproxy", 10), ("nginx", 5)])
def test_restarted_replicas_fail_no_request(tmp_path, proxy, seconds):
    if shutil.which(proxy) is None:
        pytest.skip(f"{proxy} is not installed")
    out = tmp_path / "rolling.json"
    command = [sys.executable, "-m", "benchmarks.service.rolling", "--proxy", proxy]
    command += ["--seconds", str(seconds), "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    report = json.loads(out.read_text())
    assert report["failed"] == 0
    assert report["restarts"] > 0
    assert report["requests"] > 100
