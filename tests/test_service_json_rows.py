"""Rows of ids written by the extension and by orjson: the same bytes, and nothing out of bounds."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.json_rows import rows_json
from tests.compiled import extension
from tests.data_files import ROOT

SOURCE = ROOT / "service/json_rows.cpp"
IDS = st.integers(0, 50_256) | st.integers(-(2**31), 2**31 - 1)


@pytest.fixture(scope="module")
def built():
    return extension(SOURCE, "_json_rows")


@given(data=st.data(), rows=st.lists(st.lists(IDS, max_size=9), max_size=9))
def test_both_write_the_same(built, data, rows):
    begin = data.draw(st.integers(0, len(rows)))
    end = data.draw(st.integers(begin, len(rows)))
    ids = np.array([each for row in rows for each in row], np.int32)
    offsets = [0, *np.cumsum([len(row) for row in rows], dtype=np.int64).tolist()]
    written = rows_json(ids, offsets, begin, end, built)
    assert written == rows_json(ids, offsets, begin, end, None)
    assert json.loads(written) == rows[begin:end]


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
    with pytest.raises(error):
        built.rows(np.arange(4, dtype=np.int32), offsets, begin, end)
