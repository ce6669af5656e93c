"""Rows of ids written by the extension and by orjson: the same bytes, and nothing out of bounds."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.operations.rendering.json_rows import row_and_size_json, rows_and_sizes_json, rows_json
from tests.support.compiled import extension
from tests.support.data_files import ROOT

SOURCE = ROOT / "service/operations/rendering/json_rows.cpp"
BORDERS = [0, 9, 10, 99, 100, 999, 1000, 1001, 9_999, 10_000, 999_999, 1_000_000, -1]
IDS = st.sampled_from(BORDERS) | st.integers(0, 50_256) | st.integers(-(2**31), 2**31 - 1)
AROUND = st.tuples(st.binary(max_size=40), st.binary(max_size=40), st.binary(max_size=40))


@pytest.fixture(scope="module")
def built():
    return extension(SOURCE, "_json_rows")


def flat(rows):
    ids = np.array([each for row in rows for each in row], np.int32)
    return ids, [0, *np.cumsum([len(row) for row in rows], dtype=np.int64).tolist()]


@given(data=st.data(), rows=st.lists(st.lists(IDS, max_size=9), max_size=9), around=AROUND)
def test_both_write_the_same(built, data, rows, around):
    begin = data.draw(st.integers(0, len(rows)))
    end = data.draw(st.integers(begin, len(rows)))
    ids, offsets = flat(rows)
    written = rows_json(ids, offsets, begin, end, built)
    assert written == rows_json(ids, offsets, begin, end, None)
    assert json.loads(written) == rows[begin:end]
    sizes = json.dumps([*map(len, rows[begin:end])], separators=(",", ":")).encode()
    expected = around[0] + written + around[1] + sizes + around[2]
    for by in (built, None):
        assert rows_and_sizes_json(around, ids, offsets, begin, end, by) == expected
    for row, own in enumerate(rows):
        expected = json.dumps(own, separators=(",", ":")).encode()
        expected = around[0] + expected + around[1] + b"%d" % len(own) + around[2]
        for by in (built, None):
            assert row_and_size_json(around, ids, offsets, row, by) == expected


def test_every_number_of_digits_is_written(built):
    ids = np.array([*range(12_000), *range(99_000, 101_000), *range(998_000, 1_002_000)], np.int32)
    assert json.loads(rows_json(ids, [0, len(ids)], 0, 1, built)) == [ids.tolist()]


def test_rows_without_ids_and_many_ids_are_counted(built):
    ids, offsets = flat([[1] * 1_234_567, [], [2]])
    expected = b"],[],[2]]|[1234567,0,1]"
    written = rows_and_sizes_json((b"", b"|", b""), ids, offsets, 0, 3, built)
    assert written[-len(expected) :] == expected
    assert row_and_size_json((b"", b"|", b""), ids, offsets, 0, built)[-9:] == b"]|1234567"


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_narrow_ids_are_written_too(built, dtype):
    ids = np.arange(200, 256, dtype=dtype)
    assert json.loads(rows_json(ids, [0, 56], 0, 1, built)) == [ids.tolist()]


@pytest.mark.parametrize(
    ("offsets", "begin", "end", "error"),
    [
        ([0, 5], 0, 1, ValueError),
        ([0, 3, 2, 4], 0, 3, ValueError),
        ([0, 6, 4], 0, 2, ValueError),
        ([-2, 4], 0, 1, ValueError),
        ([0, 4], 0, 2, IndexError),
        ([0, 4], -1, 1, IndexError),
        ([0, 2, 4], 2, 1, IndexError),
        ([], 0, 0, IndexError),
        ([0, "4"], 0, 1, TypeError),
        ([0, 2**70], 0, 1, OverflowError),
    ],
)
def test_rows_that_are_none_are_refused(built, offsets, begin, end, error):
    ids = np.arange(4, dtype=np.int32)
    with pytest.raises(error):
        built.rows(ids, offsets, begin, end)
    with pytest.raises(error):
        built.rows_and_sizes(b"", b"", b"", ids, offsets, begin, end)


@pytest.mark.parametrize("row", [-1, 2, 2**63 - 1])
def test_a_row_that_is_none_is_refused(built, row):
    ids = np.arange(4, dtype=np.int32)
    with pytest.raises(IndexError):
        built.row_and_size(b"", b"", b"", ids, [0, 2, 4], row)
    with pytest.raises(ValueError, match="ascend"):
        built.row_and_size(b"", b"", b"", ids, [0, 5], 0)


def test_wrong_arguments_are_refused(built):
    ids = np.arange(4, dtype=np.int32)
    for call in (
        lambda: built.rows(ids, [0, 4], 0),
        lambda: built.rows(ids, (0, 4), 0, 1),
        lambda: built.rows([1, 2], [0, 2], 0, 1),
        lambda: built.rows(ids, [0, 4], "0", 1),
        lambda: built.rows_and_sizes("", b"", b"", ids, [0, 4], 0, 1),
        lambda: built.rows_and_sizes(b"", b"", b"", ids, [0, 4], 0),
        lambda: built.row_and_size(b"", b"", None, ids, [0, 4], 0),
        lambda: built.row_and_size(),
    ):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(ValueError, match="contiguous"):
        built.rows(ids[::2], [0, 2], 0, 1)
