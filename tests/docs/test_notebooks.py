"""The notebooks run from their first cell to their last, where no data folder is, too."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.data_files import DATA, ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
PROGRAM = """
import json, sys, traceback
namespace = {"__name__": "__main__"}
for number, cell in enumerate(json.load(open(sys.argv[1], encoding="utf-8"))["cells"]):
    if cell["cell_type"] == "code":
        try:
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), namespace)
        except Exception:
            traceback.print_exc()
            sys.exit(f"cell {number} fails")
"""


def test_there_are_three_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["genomes", "mitochondria", "text"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["nbformat"] == 4
    for cell in document["cells"]:
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None


@pytest.mark.slow
@pytest.mark.parametrize("data", ["with data", "without"])
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, data: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("matplotlib") is None:
        pytest.skip("matplotlib is not installed (extra: dev)")
    folder = DATA if data == "with data" else tmp_path
    own = {"MPLBACKEND": "Agg", "MPLCONFIGDIR": str(tmp_path), "WARPTOK_DATA": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)],
        cwd=path.parent,
        env=os.environ | own | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
