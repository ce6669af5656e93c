"""The page of figures equals the results."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from benchmarks.report import figures, runs
from benchmarks.report.figures import PAGE, Beside, Figure
from benchmarks.report.results import FOLDER, Measured, exactly, load, only

# What the papers' pages are made of.
OTHERS = {
    "training/genetic_bpe.json",
    "training/genetic_bpe.md",
    "training/genetic_bpe_motifs.json",
    "training/genetic_bpe_motifs.md",
    "service/dashboard.json",
    "engine/stages.json",
    "engine/stages_h200.json",
    "papers/cpu.json",
    "papers/h200.json",
}
"""Results of no run of the table: of papers and of pictures."""


def test_the_page_is_what_the_results_say() -> None:
    written = PAGE.read_text(encoding="utf-8")
    assert written == figures.filled(written), "docs/performance.md is stale: run `make docs`"


def test_a_changed_figure_makes_the_page_stale() -> None:
    written = PAGE.read_text(encoding="utf-8")
    changed = written.replace("requests/s |", "requests/h |", 1)
    assert changed != written
    assert figures.filled(changed) == written


@pytest.mark.parametrize("change", ["<!-- begin runs -->\n", "<!-- end figures -->\n"])
def test_a_page_without_its_marks_is_refused(change: str) -> None:
    with pytest.raises(ValueError, match="has not one table of"):
        figures.filled(PAGE.read_text(encoding="utf-8").replace(change, ""))


def test_every_run_is_in_the_table_and_every_result_is_of_a_run() -> None:
    table = figures.figure_table()
    for run in runs.RUNS:
        assert f"[{run.key}](#runs)" in table, run.key
    listed = subprocess.run(
        ["git", "ls-files", "."], cwd=FOLDER, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("no checkout of git")
    assert {*listed.stdout.split()} - OTHERS == {run.file for run in runs.RUNS}


@pytest.mark.parametrize("run", runs.RUNS, ids=lambda run: run.key)
def test_a_command_is_of_a_module_that_is_there(run: runs.Run) -> None:
    module, *options = shlex.split(run.command)
    found = importlib.util.find_spec(module)
    if found is not None and found.submodule_search_locations is not None:
        found = importlib.util.find_spec(f"{module}.__main__")
    assert found is not None and found.origin is not None
    known = set(re.findall(r'"(--[a-z-]+)"', Path(found.origin).read_text(encoding="utf-8")))
    asked = {option for option in options if option.startswith("--")}
    assert asked | {"--out"} <= known, asked - known


def test_figures_of_the_table_are_those_of_the_result() -> None:
    row = only(load("engine/kernels_h200.json")["kernels"], corpus="english", vocabulary="gpt2")
    lines = figures.figure_table().splitlines()
    (line,) = [line for line in lines if line.startswith("| GPT-2, English, device to device |")]
    assert f"**{row['gb_per_s']:.0f}** GB/s" in line
    assert "H200, 16 cores" in line


def test_a_line_has_its_spread_its_share_and_the_other() -> None:
    figure = Figure(
        runs.HTTP, "it", "GB/s", Measured(20, 19, 21), Beside("PCIe", 40), Beside("other", 0.5)
    )
    assert figure.line().startswith(
        "| it | **20.0** GB/s | 19.0–21.0 | 40.0 PCIe (50 %) | 0.50 other |"
    )


@pytest.mark.parametrize(
    ("time_s", "words", "other"),
    [
        (32.5e-6, "**32.5** µs", "2.00"),
        (0.15, "**150** ms", "0.0020"),
        (7.63, "**7.63** s", "0.0000020"),
    ],
)
def test_times_stand_in_the_unit_that_can_be_read(time_s: float, words: str, other: str) -> None:
    line = Figure(runs.HTTP, "it", "s", exactly(time_s), competitor=Beside("other", 2e-6)).line()
    assert words in line
    assert f"| {other} other |" in line


def test_a_missing_figure_ends_the_command() -> None:
    with pytest.raises(LookupError, match="0 rows"):
        only([{"way": "int32"}], way="uint16")
