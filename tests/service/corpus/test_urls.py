"""Files by URL: the same shards as of local files, through any file system that fsspec has."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.cli.parser import main
from service.corpus.inputs import expand, find_inputs
from tests.support.inputs.corpora import make_texts, write_jsonl

fsspec = pytest.importorskip("fsspec")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
TEXTS = make_texts(60)


@pytest.fixture
def memory() -> Iterator[Any]:
    """Give fsspec's file system in memory, with a bucket of files."""
    files = fsspec.filesystem("memory")
    yield files
    files.rm("/bucket", recursive=True)


def test_shards_of_urls_are_those_of_files(tmp_path: Path, memory: Any) -> None:
    write_jsonl(tmp_path / "a.jsonl", TEXTS)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress((tmp_path / "a.jsonl").read_bytes()))
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "c.parquet")
    names = ("a.jsonl", "b.jsonl.gz", "c.parquet")
    for name in names:
        memory.pipe(f"/bucket/{name}", (tmp_path / name).read_bytes())
    options = ["-v", "gpt2", "--append-eod", "--quiet"]
    local = [str(tmp_path / name) for name in names]
    urls = [f"memory://bucket/{name}" for name in names]
    assert main(["corpus", *local, *options, "--out", str(tmp_path / "local")]) == 0
    assert main(["corpus", *urls, *options, "--out", str(tmp_path / "urls")]) == 0
    for name in ("shard_00000_00000.bin", "shard_00000_00000.idx"):
        assert (tmp_path / "local" / name).read_bytes() == (tmp_path / "urls" / name).read_bytes()
    ids = np.fromfile(tmp_path / "urls" / "shard_00000_00000.bin", np.uint16)
    assert np.count_nonzero(ids == 50256) == 3 * sum(map(bool, TEXTS))


def test_patterns_and_what_is_missing(memory: Any) -> None:
    for name in ("b.jsonl", "a.jsonl", "c.txt"):
        memory.pipe(f"/bucket/{name}", b"")
    assert expand(["memory://bucket/*.jsonl"], None) == [
        "memory:///bucket/a.jsonl",
        "memory:///bucket/b.jsonl",
    ]
    _, faults = find_inputs(["memory://bucket/none.jsonl"], None)
    assert len(faults) == 1


def test_a_scheme_that_is_not_installed_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["corpus", "gdrive://a/b.jsonl", "-v", "gpt2", "--out", "never", "--quiet"])
    assert code == 2
    assert "warptok[urls]" in capsys.readouterr().err
