"""The benchmark of the bulk APIs: it compares the ids of every API, and a wrong id ends it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.service.bulk_apis.__main__ import Api, make_rows, prove
from tests.support.data_files import ROOT


@pytest.mark.slow
def test_all_apis_are_proved_and_timed(tmp_path):
    out = tmp_path / "bulk_apis.json"
    command = [
        sys.executable,
        "-m",
        "benchmarks.service.bulk_apis",
        "--megabytes",
        "1",
        "--rounds",
        "1",
    ]
    command += ["--only", "TCP", "octet", "Arrow", "FASTA", "gRPC", "JSON http", "--out", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=600, stdout=subprocess.DEVNULL)
    document = json.loads(out.read_text())
    names = [row["api"] for row in document["apis"]]
    ways = ["octet-stream", "Arrow", "FASTA", "gRPC"]
    assert {f"{way} {dtype}" for way in ways for dtype in ("uint8", "int32")} <= {*names}
    assert {"TCP alone", "gRPC alone", "JSON http"} <= {*names}
    assert all(row["gb_per_s"] > 0 for row in document["apis"])


def test_an_api_with_other_ids_ends_it():
    rows = make_rows(1000)
    wrong = np.full(1000, 7, np.int32)
    api = Api(lambda: wrong, lambda came: came, 1000, os.getpid())
    with pytest.raises(SystemExit, match="octet gives other ids"):
        prove({"octet": api}, rows)
