"""Answers of nothing but ids, written whole: the bytes that a JSON library writes."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.operations.encode import write_short_batch, write_short_text
from service.operations.rendering.json_stream import ragged_json

BORDERS = [0, 9, 10, 99, 100, 999, 1000, 1001, 9_999, 10_000, 999_999, 1_000_000, -1]
IDS = st.sampled_from(BORDERS) | st.integers(0, 50_256) | st.integers(-(2**31), 2**31 - 1)
ENTRY = SimpleNamespace(
    name='a "name"', vocabulary=SimpleNamespace(digest="sha256:0", unknown_id=None)
)


@given(data=st.data(), rows=st.lists(st.lists(IDS, max_size=9), max_size=9))
def test_some_rows_of_a_batch_are_written_as_json_writes_them(data, rows):
    begin = data.draw(st.integers(0, len(rows)))
    end = data.draw(st.integers(begin, len(rows)))
    ids = np.array([each for row in rows for each in row], np.int32)
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    output = SimpleNamespace(ids=ids, offsets=offsets, engine="cpu")
    result = SimpleNamespace(output=output, offsets=offsets.tolist(), begin=begin, end=end)
    chosen = rows[begin:end]
    assert b"".join(ragged_json(ids, offsets, range(begin, end))) == written(chosen)
    sizes = [len(row) for row in chosen]
    assert write_short_batch(ENTRY, result) == document(chosen, sizes)
    for result.begin, row in enumerate(rows):
        assert write_short_text(ENTRY, result) == document(row, len(row))


def document(ids, num_tokens):
    answer = {"vocabulary": ENTRY.name, "digest": "sha256:0", "ids": ids}
    return written(answer | {"num_tokens": num_tokens, "engine": "cpu"})


def written(value):
    return json.dumps(value, separators=(",", ":")).encode()
