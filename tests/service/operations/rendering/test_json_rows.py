"""Rows of ids written by the extension and by orjson: the same bytes, and nothing out of bounds."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.operations.rendering.json_stream import rows_by_orjson
from tests.support.compiled import extension
from tests.support.data_files import ROOT

DTYPES = (np.uint8, np.uint16, np.int32, np.int64)
BORDERS = [0, 9, 10, 99, 100, 999, 1_000, 1_001, 9_999, 10_000, 99_999, 100_000, 999_999, 1_000_000]
INT32 = st.sampled_from([*BORDERS, 2**31 - 1, -1]) | st.integers(-(2**31), 2**31 - 1)
IDS = {
    np.uint8: st.integers(0, 255),
    np.uint16: st.integers(0, 65_535),
    np.int32: INT32,
    np.int64: INT32 | st.integers(-(2**63), 2**63 - 1),
}


@pytest.fixture(scope="module")
def built():
    return extension(ROOT / "service/operations/rendering/json_rows.cpp", "_json_rows")


def flat(rows, dtype=np.int32):
    ids = np.array([each for row in rows for each in row], dtype)
    return ids, np.cumsum([0, *map(len, rows)], dtype=np.int64)


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
def test_the_extension_and_orjson_write_the_same(built, dtype, data):
    rows = data.draw(st.lists(st.lists(IDS[dtype], max_size=9), max_size=9))
    ids, offsets = flat(rows, dtype)
    begin = data.draw(st.integers(0, len(rows)))
    end = data.draw(st.integers(begin, len(rows)))
    chosen = offsets[begin : end + 1]
    expected = json.dumps(rows[begin:end], separators=(",", ":")).encode()
    assert built.write_rows(ids, chosen) == expected
    assert rows_by_orjson(ids, chosen) == expected


def test_every_number_of_digits_is_written(built):
    ids = np.array([*range(12_000), *range(99_000, 101_000), *range(998_000, 1_002_000)], np.int32)
    assert json.loads(built.write_rows(ids, np.array([0, len(ids)]))) == [ids.tolist()]


@pytest.mark.parametrize(
    "rows", [[], [[]], [[], [], []], [[7]], [[2**31 - 1] * 20_000], [[]] * 20_000]
)
def test_rows_of_any_number_and_size_are_written(built, rows):
    ids, offsets = flat(rows)
    assert built.write_rows(ids, offsets) == rows_by_orjson(ids, offsets)


@given(offsets=st.lists(st.integers(-3, 8) | st.sampled_from([-(2**63), 2**63 - 1]), max_size=5))
def test_offsets_that_descend_or_pass_the_ids_are_refused(built, offsets):
    ids = np.arange(5, dtype=np.int32)
    is_valid = bool(offsets) and offsets == sorted(offsets) and offsets[0] >= 0 and offsets[-1] <= 5
    places = np.array(offsets, np.int64)
    if is_valid:
        assert built.write_rows(ids, places) == rows_by_orjson(ids, places)
    else:
        with pytest.raises(ValueError, match="offsets"):
            built.write_rows(ids, places)


def test_other_arrays_are_refused(built):
    ids, offsets = np.arange(4, dtype=np.int32), np.array([0, 4])
    for dtype in (np.uint32, np.int16, np.float32, np.float64, ">i4", np.bool_):
        with pytest.raises(ValueError, match="ids are"):
            built.write_rows(ids.astype(dtype), offsets)
    for dtype in (np.int32, np.uint64, np.float64, ">i8"):
        with pytest.raises(ValueError, match="int64"):
            built.write_rows(ids, offsets.astype(dtype))
    with pytest.raises(ValueError, match="contiguous"):
        built.write_rows(ids[::2], np.array([0, 2]))
    with pytest.raises(ValueError, match="ids are"):
        built.write_rows(np.zeros(17, np.uint8)[1:].view(np.int32), offsets)  # Not aligned.
    for arguments in ((ids,), (ids, offsets, 0), ([1, 2], offsets), (ids, [0, 4]), (None, None)):
        with pytest.raises(TypeError):
            built.write_rows(*arguments)


def test_references_are_returned(built):
    ids, offsets = np.arange(50_000, dtype=np.int32), np.array([0, 50_000])
    before = sys.getrefcount(ids), sys.getrefcount(offsets)
    for _ in range(9):
        built.write_rows(ids, offsets)
        with pytest.raises(ValueError, match="offsets"):
            built.write_rows(ids, offsets + 1)
    assert before == (sys.getrefcount(ids), sys.getrefcount(offsets))


def test_offsets_that_change_meanwhile_pass_no_bounds(built):
    ids, offsets = np.arange(200_000, dtype=np.int32), np.arange(0, 200_001, 10)
    expected = rows_by_orjson(ids, offsets)
    with ThreadPoolExecutor(1) as pool:
        for _ in range(50):
            written = pool.submit(built.write_rows, ids, offsets)
            offsets[1:-1] = 2**62
            assert isinstance(written.exception(), (ValueError, type(None)))
            offsets[:] = np.arange(0, 200_001, 10)
    assert built.write_rows(ids, offsets) == expected
