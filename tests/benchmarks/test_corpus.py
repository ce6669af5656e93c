"""The benchmark of corpora, small: its files hold the same documents, and its figures are rates."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
import pytest

from benchmarks.corpus import cluster, growth
from benchmarks.corpus.__main__ import run, subtract_start, summarize
from benchmarks.corpus.files import write_files
from benchmarks.corpus.processes import CommandFailed, Measurement, measure
from tests.support.data_files import DATA, data_bytes

pq = pytest.importorskip("pyarrow.parquet")


def test_files_hold_the_same_documents(tmp_path: Path) -> None:
    data_bytes("text/war_and_peace.txt")
    paths = write_files(tmp_path, DATA, 100_000)
    again = write_files(tmp_path / "again", DATA, 100_000)
    texts = [orjson.loads(line)["text"] for line in paths["jsonl"].read_bytes().splitlines()]
    assert pq.read_table(paths["parquet"]).column("text").to_pylist() == texts
    assert 100_000 <= sum(map(len, texts)) < 120_000
    assert paths["jsonl"].read_bytes() == again["jsonl"].read_bytes()


def test_a_command_is_measured_with_its_children() -> None:
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', PROGRAM])"
    child = "x = bytearray(50_000_000); sum(range(10_000_000))"
    taken = measure(["python3", "-c", program.replace("PROGRAM", repr(child))])
    assert taken.seconds >= 0.1
    assert taken.cpu_seconds > 0.05
    assert taken.peak_bytes > 50_000_000
    with pytest.raises(CommandFailed, match="no such thing"):
        measure(["python3", "-c", "raise SystemExit('no such thing'[::1] + exit(3))"])


@pytest.mark.slow
def test_a_small_run_without_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data_bytes("text/war_and_peace.txt")
    monkeypatch.setattr("benchmarks.corpus.__main__.OUR_TIMES", 1)
    arguments = argparse.Namespace(
        data=DATA, megabytes=3, part=2, rounds=1, other_python=None, only=(), add=None
    )
    document = run(arguments, tmp_path)
    assert {row["kind"] for row in document["rows"]} == {"jsonl", "jsonl.zst", "parquet"}
    assert document["text_bytes"]["whole"] > 1_500_000


def test_the_start_is_subtracted() -> None:
    start, whole = Measurement(1.0, 1.5, 5), Measurement(3.0, 2.0, 7)
    assert subtract_start(start, whole) == Measurement(2.0, 0.5, 7)
    assert subtract_start(None, whole) is None
    assert subtract_start(start, None) is None


def test_a_difference_of_nothing_is_no_figure() -> None:
    start = Measurement(1.0, 1.5, 5)
    assert subtract_start(start, Measurement(3.0, 1.5, 7)) is None
    assert subtract_start(start, Measurement(0.9, 1.6, 7)) is None


def test_figures_are_medians_of_rounds() -> None:
    common = {"who": "a", "kind": "jsonl", "text_bytes": 10_000_000, "peak_bytes": 5}
    rows = [{**common, "seconds": s, "cpu_seconds": s} for s in (1.0, 2.0, 4.0)]
    (figure,) = summarize([*rows, {"who": "b", "kind": "jsonl", "text_bytes": 1}])
    assert figure["mb_per_s"] == [2.5, 5.0, 10.0]
    assert figure["mb_per_cpu_s"] == 5.0


def test_nodes_are_compared_with_one() -> None:
    rows = [
        {"nodes": nodes, "tokens": 100 * nodes, "cpu_seconds": 9.0, "remote_cpu_seconds": seconds}
        for nodes, seconds in ((1, 2.0), (4, 10.0), (1, 5.0))
    ]
    alone, four = cluster.summarize(rows)
    assert (alone["share_of_linear"], alone["tokens_per_part_cpu_s"]) == (1.0, 50.0)
    assert (four["share_of_linear"], four["tokens_per_part_cpu_s"]) == (0.8, 40.0)


@pytest.mark.slow
def test_files_that_grow(tmp_path: Path) -> None:
    """Each size is read whole, and its ids are as many as those of its files."""
    data_bytes("text/war_and_peace.txt")
    options = {"gigabytes": [0.002, 0.004], "megabytes": 1, "parts": 2, "no_digests": True}
    arguments = argparse.Namespace(
        data=DATA, formats=["jsonl", "parquet"], gpus=[0], cold=False, **options
    )
    rows = growth.run(arguments, tmp_path)
    assert [(row["format"], row["files"]) for row in rows] == [
        (format, files) for format in ("jsonl", "parquet") for files in (2, 4)
    ]
    assert [row["tokens"] // row["files"] for row in rows] == [rows[0]["tokens"] // 2] * 4
    assert all(row["verified"] > 0 for row in rows)
    assert all(row["seconds"] > 0 and row["limit_gb_per_s"] > 0 for row in rows)
    assert all(row["writing_limit_gb_per_s"] > 0 for row in rows)


def test_files_in_memory_are_never_cold(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_bytes(b"{}\n")
    files = growth.repeat(source, tmp_path / "files", 2, shutil.copyfile)
    assert [path.read_bytes() for path in files] == [b"{}\n"] * 2
    with TemporaryDirectory(dir="/dev/shm") as name:
        with pytest.raises(RuntimeError, match="page cache"):
            growth.drop_from_cache(growth.repeat(source, Path(name) / "files", 1, shutil.copyfile))
