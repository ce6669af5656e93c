"""The command `windows` against the windows of the mtDNA model's document, in plain Python."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from service.cli import windows
from service.cli.parser import main
from tests.support.inputs.paper_windows import paper_windows

Capture = pytest.CaptureFixture[bytes]
GENOMES = {"one": "GATCACAGGTCTATCACCCTNATTAACC", "two": "GATTACAgattacaGATTACA"}
LEVELS = {"one": [0.0] * 27 + [0.5], "two": [0.25] + [0.0] * 20}
CUT = ("--window", "8", "--stride", "5")


@pytest.fixture
def genomes(tmp_path: Path) -> str:
    path = tmp_path / "genomes.fa.gz"
    records = "".join(f">{name} described\n{bases}\n" for name, bases in GENOMES.items())
    path.write_bytes(gzip.compress(records.encode()))
    return str(path)


def expected(**options: Any) -> list[dict[str, Any]]:
    rows = []
    for name, bases in GENOMES.items():
        for row in paper_windows(bases, window=8, stride=5, levels=LEVELS[name], **options):
            rows.append({"name": name, **row})
    return rows


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["--circular"], {"junction": "append"}),
        (["--circular", "--junction", "prepend", "--add-cls"], {"add_cls": True}),
        ([], {"circular": False, "junction": "append"}),
    ],
)
@pytest.mark.parametrize("group_ids", [1, 1 << 20])
def test_windows_are_those_of_the_document(
    capfdbinary: Capture,
    monkeypatch: pytest.MonkeyPatch,
    genomes: str,
    tmp_path: Path,
    arguments: list[str],
    options: dict[str, Any],
    group_ids: int,
) -> None:
    monkeypatch.setattr(windows, "GROUP_IDS", group_ids)
    levels = tmp_path / "levels.tsv"
    levels.write_text("one\t27\t0.5\ntwo\t0\t0.25\n")
    given = ["windows", "-v", "mtdna6", *CUT, *arguments, "--json", "--channel", str(levels)]
    assert main([*given, genomes]) == 0
    rows = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert rows == expected(**options)
    assert main(["windows", "-v", "mtdna6", *CUT, *arguments, genomes]) == 0
    for line, row in zip(capfdbinary.readouterr().out.splitlines(), rows, strict=True):
        name, start, ids = line.decode().split("\t")
        assert (name, int(start)) == (row["name"], row["start"])
        real = [i for i, m in zip(row["input_ids"], row["attention_mask"], strict=True) if m]
        assert ids == " ".join(map(str, real))


def test_a_refused_sequence_is_named(capfdbinary: Capture, tmp_path: Path) -> None:
    path = tmp_path / "genomes.fa"
    path.write_text(">short\nACG\n>long\nACGTACGT\n")
    assert main(["windows", "-v", "mtdna6", *CUT, "--circular", str(path)]) == 1
    captured = capfdbinary.readouterr()
    assert captured.out.startswith(b"long\t0\t")
    assert b"warptok: short: " in captured.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--junction", "prepend"],
            "--junction: must not be given, because the sequence is not circular",
        ),
        (["--channel", "levels.tsv"], "--channel is only allowed together with --json"),
        (["--channel-name", "levels"], "--channel-name is only allowed together with --channel"),
        (["--json", "--channel", "levels.tsv", "--channel-name", "start"], "another field"),
        (["--json", "--channel", "levels.tsv"], "levels.tsv: line 2: there is no sequence"),
        (
            ["--json", "--channel", "beyond.tsv"],
            "beyond.tsv: line 1: the position is after the 28",
        ),
        (["--json", "--channel", "broken.tsv"], "broken.tsv: line 1: the value"),
    ],
)
def test_an_option_that_does_not_fit_is_named(
    capfdbinary: Capture,
    monkeypatch: pytest.MonkeyPatch,
    genomes: str,
    tmp_path: Path,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("levels.tsv").write_text("one\t0\t1\nthree\t0\t1\n")
    Path("beyond.tsv").write_text("one\t28\t1\n")
    Path("broken.tsv").write_text("one\t28\thalf\n")
    assert main(["windows", "-v", "mtdna6", *arguments, genomes]) == 2
    assert message in capfdbinary.readouterr().err.decode()


def test_positions_of_the_other_strand_of_a_circle_are_around_the_junction(
    capfdbinary: Capture, tmp_path: Path
) -> None:
    fasta, levels = tmp_path / "one.fa", tmp_path / "levels.tsv"
    fasta.write_text(">one\nGATCACAGGT\n")
    levels.write_text("one\t0\t0.5\none\t9\t0.25\n")
    given = ["windows", "-v", "mtdna6", "--window", "10", "--stride", "10", "--circular"]
    given += ["--reverse-complement", "--json", "--channel", str(levels), str(fasta)]
    assert main(given) == 0
    [row] = map(json.loads, capfdbinary.readouterr().out.splitlines())
    assert row["position_ids"] == [4, 3, 2, 1, 0, 9, 8, 7, 6, 5]
    assert row["het_values"] == [0, 0, 0, 0, 0.5, 0.25, 0, 0, 0, 0]
