"""The programs of docs/recipes.md run where their packages are, and its Job makes shards."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from service.cli.parser import main
from tests.docs.test_examples import BLOCK, PRINTED, RECIPES
from tests.support.data_files import ROOT
from tests.support.inputs.corpora import write_jsonl

JOB = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAMS = {
    re.search(r"(?:from|import) (pyspark|daft|datasets)", content)[1]: content  # type: ignore[index]
    for _, content in BLOCK.findall(RECIPES.read_text(encoding="utf-8"))
}


def test_there_is_a_program_for_each_engine() -> None:
    assert set(PROGRAMS) == {"pyspark", "daft", "datasets"}


@pytest.mark.slow
@pytest.mark.parametrize("package", PROGRAMS)
def test_a_program_prints_what_the_page_says(package: str, tmp_path: Path) -> None:
    pytest.importorskip(package, reason=f"{package} is not installed; it is no dependency")
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [f"Document {number}: Hello, world!" for number in range(1000)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "texts.parquet")
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "HF_HOME": str(tmp_path),
    }
    command = [sys.executable, "-c", PROGRAMS[package]]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == PRINTED.findall(PROGRAMS[package])


def read_job() -> dict[str, Any]:
    (content,) = JOB.findall(RECIPES.read_text(encoding="utf-8"))
    job: dict[str, Any] = yaml.safe_load(content)
    return job


def test_an_indexed_job_makes_the_shards_of_its_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = read_job()["spec"]
    assert (spec["completionMode"], spec["template"]["spec"]["restartPolicy"]) == (
        "Indexed",
        "Never",
    )
    for index in range(2):
        (tmp_path / "in" / str(index)).mkdir(parents=True)
        write_jsonl(tmp_path / "in" / str(index) / "a.jsonl", ["text"] * (index + 1))
        monkeypatch.setenv("JOB_COMPLETION_INDEX", str(index))
        arguments = [
            # As Kubernetes replaces the names of variables in arguments.
            re.sub(r"\$\((\w+)\)", lambda name: os.environ[name[1]], argument).replace(
                "/corpus", str(tmp_path)
            )
            for argument in spec["template"]["spec"]["containers"][0]["args"]
        ]
        assert main(arguments) == 0
        name = f"shard_{index}_00000_00000.bin"
        ids = np.fromfile(tmp_path / "shards" / str(index) / name, np.uint16)
        assert ids.tolist() == [5239, 50256] * (index + 1)
    capsys.readouterr()
