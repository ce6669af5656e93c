"""Rows of ids written by the extension and by orjson: the same bytes, and nothing out of bounds."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sysconfig

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.json_rows import rows_json
from tests.data_files import ROOT

SOURCE = ROOT / "service/json_rows.cpp"
IDS = st.integers(0, 50_256) | st.integers(-(2**31), 2**31 - 1)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The extension, compiled for this interpreter with every warning an error."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++ for the extension")
    target = tmp_path_factory.mktemp("rows") / "_json_rows.so"
    include = sysconfig.get_paths()["include"]
    command = [compiler, "-O1", "-std=c++17", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*command, f"-I{include}", str(SOURCE), "-o", str(target)], check=True)
    spec = importlib.util.spec_from_file_location("_json_rows", target)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
