"""Formats of shards, read by other readers; bytes do not depend on the pieces that rows come in."""

from __future__ import annotations

import gc
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.corpus.documents import Rows
from service.corpus.writing import mds, shuffled, tables
from service.corpus.writing.flat import human_count
from service.corpus.writing.formats import FORMATS
from service.corpus.writing.shard_files import ShardPlan
from service.corpus.writing.shuffled import ShuffledWriter, make_piece, shuffled_order
from tests.support.inputs.corpora import folder_bytes, megatron_bytes

pa = pytest.importorskip("pyarrow")
SOURCE = np.random.default_rng(3)
LENGTHS = [0, *SOURCE.integers(0, 300, 60).tolist(), 70_000, 1, 0]
IDS = [SOURCE.integers(0, 50_000, length).tolist() for length in LENGTHS]


def make_rows(rows: list[list[int]], dtype: Any, has_mask: bool) -> Rows:
    ids = np.array([token_id for row in rows for token_id in row], dtype)
    lengths = np.array([*map(len, rows)], np.int64)
    mask = (ids % 3 == 0).astype(np.uint8) if has_mask else None
    return make_piece(ids, lengths, mask)


def write(
    folder: Path, format: str, sizes: list[int], *, num_ids: int = 50_000, **options: Any
) -> dict[str, bytes]:
    """Write all rows, in pieces of so many; return the files."""
    folder.mkdir()
    dtype = FORMATS[format].id_dtype(num_ids)
    seed = options.pop("seed", None)
    plan = ShardPlan(folder, "s", dtype, True, vocabulary="sha256:00", **options)
    writer = FORMATS[format].make_writer(plan)
    if seed is not None:
        writer = ShuffledWriter(plan, writer, seed)
    rows = make_rows(IDS, dtype, plan.has_mask)
    begin = 0
    for size in sizes:
        writer.write(rows.part(begin, min(begin + size, len(rows))))
        begin = min(begin + size, len(rows))
    files = writer.finish()
    found = folder_bytes(folder)
    assert {file.name: file.size for file in files} == {n: len(data) for n, data in found.items()}
    return found


ALL = [len(IDS)]
PIECES = [1, 5, 0, 30, 2, len(IDS)]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("seed", [None, 7])
@pytest.mark.parametrize("has_mask", [False, True])
def test_bytes_do_not_depend_on_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, seed: int | None, has_mask: bool
) -> None:
    if has_mask and not FORMATS[format].has_mask:
        pytest.skip("the format has no mask")
    monkeypatch.setattr(tables, "GROUP_TOKENS", 1000)
    monkeypatch.setattr(shuffled, "PIECE_TOKENS", 500)
    options = {"seed": seed, "has_mask": has_mask}
    whole = write(tmp_path / "whole", format, ALL, **options)
    assert write(tmp_path / "pieces", format, PIECES, **options) == whole


@pytest.mark.parametrize("num_ids", [65_499, 65_500, 65_536, 65_537, 1 << 31])
@pytest.mark.parametrize("format", FORMATS)
def test_the_largest_id_fits(format: str, num_ids: int) -> None:
    assert np.iinfo(FORMATS[format].id_dtype(num_ids)).max >= num_ids - 1


@pytest.mark.parametrize("num_ids", [65_499, 65_500, 65_536, 65_537])
def test_megatron(tmp_path: Path, num_ids: int) -> None:
    found = write(tmp_path / "out", "megatron", PIECES, num_ids=num_ids)
    assert (found["s.bin"], found["s.idx"]) == megatron_bytes(IDS, is_narrow=num_ids < 65_500)


@pytest.mark.parametrize("num_ids", [65_536, 65_537])
def test_datatrove(tmp_path: Path, num_ids: int) -> None:
    found = write(tmp_path / "out", "datatrove", PIECES, num_ids=num_ids, has_mask=True)
    dtype = np.uint16 if num_ids == 65_536 else np.uint32
    flat = [token_id for row in IDS for token_id in row]
    assert np.frombuffer(found["s.ds"], dtype).tolist() == flat
    assert np.frombuffer(found["s.ds.index"], np.uint64).tolist() == np.cumsum(LENGTHS).tolist()
    assert np.frombuffer(found["s.ds.loss"], np.bool_).tolist() == [i % 3 == 0 for i in flat]
    lines = found["s.ds.metadata"].decode().split("\n")
    assert lines == [
        f"sha256:00|{np.dtype(dtype).itemsize}",
        str(len(flat)),
        human_count(len(flat)),
    ]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0.00 T"),
        (7, "7.00 T"),
        (42, "42.0 T"),
        (999, "999 T"),
        (1234567, "1.23 MT"),
        (9999, "10.0 kT"),
        (99999, "100 kT"),
        (999999, "1.00 MT"),
        (10**12, "1.00 TT"),
    ],
)
def test_counts_for_people(count: int, text: str) -> None:
    assert human_count(count) == text


def test_numpy(tmp_path: Path) -> None:
    write(tmp_path / "out", "npy", PIECES)
    ids = np.load(tmp_path / "out" / "s.npy", mmap_mode="r")
    offsets = np.load(tmp_path / "out" / "s.offsets.npy")
    assert [row.tolist() for row in np.split(ids, offsets[1:-1])] == IDS


@pytest.mark.parametrize(("num_ids", "head"), [(50_000, (20240520, 1)), (70_000, (20240801, 7))])
def test_llmc_and_raw(tmp_path: Path, num_ids: int, head: tuple[int, int]) -> None:
    found = write(tmp_path / "out", "llm.c", PIECES, num_ids=num_ids)["s.bin"]
    flat = [token_id for row in IDS for token_id in row]
    header = struct.unpack("<256i", found[:1024])
    assert header == (*head, len(flat), *[0] * 253)
    assert np.frombuffer(found[1024:], FORMATS["llm.c"].id_dtype(num_ids)).tolist() == flat
    assert write(tmp_path / "raw", "raw", PIECES, num_ids=num_ids)["s.bin"] == found[1024:]


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str) -> None:
    monkeypatch.setattr(tables, "GROUP_TOKENS", 1000)
    write(tmp_path / "out", format, PIECES, has_mask=True)
    path = tmp_path / "out" / f"s.{format}"
    if format == "parquet":
        table = pytest.importorskip("pyarrow.parquet").read_table(path)
    else:
        table = pa.ipc.open_file(path).read_all()
    assert table.column("input_ids").type.value_type == pa.int32()
    assert table.column("input_ids").to_pylist() == IDS
    assert table.column("loss_mask").to_pylist() == [[i % 3 == 0 for i in row] for row in IDS]


def test_mds(tmp_path: Path) -> None:
    (name, data), *rest = write(tmp_path / "out", "mds", PIECES, has_mask=True).items()
    assert (name, rest) == ("s.mds", [])
    (count,) = struct.unpack("<I", data[:4])
    places = np.frombuffer(data[4 : 8 + 4 * count], np.uint32).tolist()
    config = json.loads(data[8 + 4 * count : places[0]])
    assert config["column_encodings"] == ["ndarray:uint8", "ndarray:uint16"]
    rows = [row for row in IDS if row]
    assert count == len(rows)
    for row, begin, end in zip(rows, places[:-1], places[1:], strict=True):
        sizes = struct.unpack("<2I", data[begin : begin + 8])
        mask, tokens = data[begin + 8 : begin + 8 + sizes[0]], data[begin + 8 + sizes[0] : end]
        assert len(tokens) == sizes[1]
        head = len(mds.pack_length(len(row)))
        assert mask[:head] == tokens[:head] == mds.pack_length(len(row))
        assert np.frombuffer(tokens[head:], np.uint16).tolist() == row
        assert [*mask[head:]] == [i % 3 == 0 for i in row]


def test_an_order_is_a_permutation_and_stays_for_ever() -> None:
    assert shuffled_order(8, 0).tolist() == ORDER
    orders = {tuple(shuffled_order(50, seed).tolist()) for seed in range(100)}
    assert len(orders) == 100
    assert all(sorted(order) == list(range(50)) for order in orders)
    firsts = np.array([shuffled_order(10, seed)[0] for seed in range(2000)])
    assert np.bincount(firsts, minlength=10).min() > 140


ORDER = [2, 4, 6, 5, 1, 7, 0, 3]


def test_shuffled_rows_are_the_same_rows(tmp_path: Path) -> None:
    write(tmp_path / "out", "npy", ALL, seed=5)
    ids = np.load(tmp_path / "out" / "s.npy")
    offsets = np.load(tmp_path / "out" / "s.offsets.npy")
    rows = [row.tolist() for row in np.split(ids, offsets[1:-1])]
    assert rows == [IDS[number] for number in shuffled_order(len(IDS), 5)]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("has_mask", [False, True])
def test_a_shuffled_shard_of_empty_rows_is_that_shard(
    tmp_path: Path, format: str, has_mask: bool
) -> None:
    if has_mask and not FORMATS[format].has_mask:
        pytest.skip("the format has no mask")
    dtype = FORMATS[format].id_dtype(50_000)
    found = []
    for seed in (None, 7):
        folder = tmp_path / str(seed)
        folder.mkdir()
        plan = ShardPlan(folder, "s", dtype, True, has_mask=has_mask)
        writer = FORMATS[format].make_writer(plan)
        if seed is not None:
            writer = ShuffledWriter(plan, writer, seed)
        writer.write(make_rows([[], []], dtype, has_mask))
        writer.finish()
        found.append(folder_bytes(folder))
    assert found[0] == found[1]


def test_a_full_mds_shard_of_single_ids_has_places_of_32_bits(tmp_path: Path) -> None:
    plan = ShardPlan(tmp_path, "s", np.int32, True, vocabulary="sha256:00", has_mask=True)
    writer = mds.MdsWriter(plan)
    writer.write(make_rows([[1]] * 10_000, np.int32, True))
    (file,) = writer.finish()
    assert file.size / 10_000 * mds.MAX_SHARD_TOKENS < mds.MAX_BYTES


@pytest.mark.parametrize("format", FORMATS)
def test_an_abandoned_shard_leaves_nothing_and_says_nothing(tmp_path: Path, format: str) -> None:
    dtype = FORMATS[format].id_dtype(50_000)
    writer = FORMATS[format].make_writer(ShardPlan(tmp_path, "s", dtype, True))
    writer.write(make_rows(IDS, dtype, False))
    writer.abandon()
    del writer
    gc.collect()  # pytest shows as an error what pyarrow's writer raises now.
    assert [*tmp_path.iterdir()] == []
