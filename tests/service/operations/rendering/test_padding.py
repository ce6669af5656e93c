"""Padding of ragged rows at the edge."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.operations.rendering.padding import pad_rows

ROWS = st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=6)


def ragged(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    return np.array([i for row in rows for i in row], np.int32), offsets


@pytest.mark.parametrize("side", ["right", "left"])
@given(rows=ROWS, least=st.integers(0, 8), skipped=st.integers(0, 2))
def test_padding_equals_the_plain_loop(side, rows, least, skipped):
    ids, offsets = ragged([[99] * skipped, *rows])
    padded, mask = pad_rows(ids, offsets[1:], 77, least, side)
    width = max([least, *map(len, rows)])
    for row, got, got_mask in zip(rows, padded.tolist(), mask.tolist(), strict=True):
        fill = width - len(row)
        if side == "right":
            assert got == row + [77] * fill
            assert got_mask == [1] * len(row) + [0] * fill
        else:
            assert got == [77] * fill + row
            assert got_mask == [0] * fill + [1] * len(row)
    assert padded.shape == (len(rows), width)
