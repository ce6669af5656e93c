"""The command `statistics`: its table, its JSON, its plot and what it refuses."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from service.cli.parser import main

FASTA = b">one\nACGTACGTAN\n>two\nACGTAC\n>short\nACG\n"
Capture = pytest.CaptureFixture[bytes]


@pytest.fixture
def genomes(tmp_path: Path) -> str:
    path = tmp_path / "genomes.fa.gz"
    path.write_bytes(gzip.compress(FASTA))
    return str(path)


def test_json_has_every_figure(capfdbinary: Capture, genomes: str) -> None:
    assert main(["statistics", "-v", "mtdna6", "--json", "--top", "1", genomes]) == 0
    answer = json.loads(capfdbinary.readouterr().out)
    assert len(answer.pop("never_seen")) == 4096 - 4
    assert answer.pop("digest").startswith("sha256:")
    assert answer == {
        "vocabulary": "mtdna6",
        "num_sequences": 3,
        "num_tokens": 6,
        "num_possible": 4096,
        "num_seen": 4,
        "share_seen": 4 / 4096,
        "num_unknown": 1,
        "unknown_share": 1 / 6,
        "tokens_per_sequence": {"mean": 2.0, "min": 0, "max": 5},
        "most_frequent": [{"token": "ACGTAC", "id": 439, "count": 2, "share": 2 / 6}],
        "num_refused": 0,
    }


def test_a_table_and_a_plot(capfdbinary: Capture, genomes: str, tmp_path: Path) -> None:
    drawn = tmp_path / "statistics.svg"
    assert main(["statistics", "-v", "mtdna6", "--plot", str(drawn), genomes]) == 0
    table = capfdbinary.readouterr().out.decode()
    assert "k-mers seen           4 of 4,096 (0.1%)" in table
    assert "[UNK]                 1 (16.667% of the tokens)" in table
    assert ElementTree.parse(drawn).getroot().tag.endswith("svg")


def test_a_refused_sequence_is_named_and_not_counted(capfdbinary: Capture, genomes: str) -> None:
    assert main(["statistics", "-v", "mtdna6", "--circular", "--json", genomes]) == 1
    captured = capfdbinary.readouterr()
    answer = json.loads(captured.out)
    assert (answer["num_sequences"], answer["num_refused"]) == (2, 1)
    assert answer["tokens_per_sequence"] == {"mean": 8.0, "min": 6, "max": 10}
    assert b"warptok: short: " in captured.err
    assert b"[too_short_for_circular]" in captured.err
