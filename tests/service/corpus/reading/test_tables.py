"""Parquet and Arrow: the same documents from any row on, nulls, and columns that are no text."""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from service.corpus import inputs
from service.corpus.documents import Reject
from service.corpus.inputs import InputDigest, UnreadableInput, find_inputs
from service.corpus.job import Job
from service.corpus.reading import tables
from service.corpus.reading.readers import read_documents

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
TEXTS = [None if i % 23 == 5 else f"text {i} " + "é" * (i % 40) for i in range(500)]
KINDS = ["string", "large_string", "binary", "large_binary", "dictionary"]


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "TASK_BYTES", 2000)
    monkeypatch.setattr(tables, "LARGE_BYTES", 5000)
    monkeypatch.setattr(tables, "DIGEST_BYTES", 512)
    monkeypatch.setattr(inputs, "DIGEST_BYTES", 512)


def make_table(kind: str) -> Any:
    if kind == "dictionary":
        column = pa.array(TEXTS).dictionary_encode()
    else:
        column = pa.array(TEXTS).cast(getattr(pa, kind)())
    return pa.table({"id": list(range(len(TEXTS))), "text": column})


def write(folder: Path, name: str, table: Any, group_rows: int) -> Path:
    path = folder / name
    if name.endswith(".parquet"):
        pq.write_table(table, path, row_group_size=group_rows, compression="zstd")
        return path
    make = pa.ipc.new_stream if name.startswith("stream") else pa.ipc.new_file
    with make(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=group_rows)
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(path.read_bytes()))
    return path


def read(path: Path, start: int = 0, **options: Any) -> tuple[dict[int, bytes], list[Reject], Any]:
    (file,), _ = find_inputs([str(path)], None)
    found: dict[int, bytes] = {}
    rejects: list[Reject] = []
    digest = InputDigest(file.size)
    num_bytes = 0
    for load in read_documents(file, start, Job((file,), "", **options), lambda: None):
        documents = load()
        data = documents.data.tobytes()
        texts = [data[begin:end] for begin, end in pairwise(documents.offsets.tolist())]
        found |= dict(zip(documents.places.tolist(), texts, strict=True))
        rejects += documents.rejects
        digest.blocks.update(documents.digests)
        num_bytes += documents.num_bytes
        assert all(place < documents.end for place in documents.places.tolist())
    assert num_bytes == file.size
    return found, rejects, digest.result()


EXPECTED = {row: text.encode() for row, text in enumerate(TEXTS) if text is not None}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("group_rows", [7, 50, 500])
@pytest.mark.parametrize("name", ["a.parquet", "file.arrow", "stream.arrow", "stream.arrow.gz"])
def test_texts_from_any_row_on(tmp_path: Path, kind: str, group_rows: int, name: str) -> None:
    path = write(tmp_path, name, make_table(kind), group_rows)
    found, rejects, digest = read(path)
    assert found == EXPECTED
    assert [reject.place for reject in rejects] == [
        r for r, text in enumerate(TEXTS) if text is None
    ]
    assert digest is not None
    for start in (1, 5, 6, 49, 250, 499):
        found, rejects, _ = read(path, start)
        assert found == {row: text for row, text in EXPECTED.items() if row >= start}
        assert all(reject.place >= start for reject in rejects)


@pytest.mark.parametrize("group_rows", [7, 50, 500])
@pytest.mark.parametrize("name", ["a.parquet", "stream.arrow"])
def test_blocks_are_digested_beside_their_documents(
    tmp_path: Path, name: str, group_rows: int
) -> None:
    (file,), _ = find_inputs([str(write(tmp_path, name, make_table("string"), group_rows))], None)
    loads = list(read_documents(file, 0, Job((file,), ""), lambda: None))
    tasks = [load() for load in loads]
    assert all(len(task.digests) <= 1 for task in tasks)
    last = max(number for number, task in enumerate(tasks) if len(task.places))
    assert sum(task.num_bytes for task in tasks[: last + 1]) > file.size / 2
    digested = sum(len(task.digests) for task in tasks[: last + 1])
    assert digested * inputs.DIGEST_BYTES > file.size / 2


def test_long_texts_are_rejected(tmp_path: Path) -> None:
    path = write(tmp_path, "a.parquet", make_table("string"), 100)
    found, rejects, _ = read(path, max_document_bytes=60)
    assert found == {row: text for row, text in EXPECTED.items() if len(text) <= 60}
    assert {reject.code for reject in rejects} == {"not_text", "too_long"}


@pytest.mark.parametrize("name", ["a.parquet", "file.arrow", "stream.arrow"])
@pytest.mark.parametrize(
    ("key", "message"), [("id", "int64, not text"), ("x", "the columns are id, text")]
)
def test_columns_that_are_no_text(tmp_path: Path, name: str, key: str, message: str) -> None:
    path = write(tmp_path, name, make_table("string"), 100)
    with pytest.raises(UnreadableInput, match=message):
        read(path, key=key)


@pytest.mark.parametrize("name", ["a.parquet", "file.arrow", "stream.arrow"])
def test_empty_tables_and_damaged_files(tmp_path: Path, name: str) -> None:
    table = make_table("string")
    found, rejects, _ = read(write(tmp_path, name, table.slice(0, 0), 100))
    assert (found, rejects) == ({}, [])
    path = write(tmp_path, name, table, 100)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(UnreadableInput, match=str(path)):
        read(path)


@pytest.mark.parametrize("name", ["a.parquet", "file.arrow", "stream.arrow"])
def test_a_column_of_nulls_and_two_columns_of_one_name(tmp_path: Path, name: str) -> None:
    nulls = pa.table({"text": pa.nulls(7)})  # As pandas writes a column without a text.
    found, rejects, _ = read(write(tmp_path, name, nulls, 3))
    assert (found, [reject.place for reject in rejects]) == ({}, [*range(7)])
    twins = pa.table([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    with pytest.raises(UnreadableInput, match="2 columns are named 'text'"):
        read(write(tmp_path, name, twins, 3))
