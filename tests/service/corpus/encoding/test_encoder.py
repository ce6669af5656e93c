"""Begin and end tokens: the extension and Python code copy the same ids; windows and loss masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from service.corpus.encoding import encoder
from service.corpus.encoding.encoder import (
    NONE,
    copy_with_begin_end_tokens,
    cut_windows,
    make_rows,
    mask_of,
)
from vocabularies.batch.batch import Encoded

IDS, OFFSETS = [7, 8, 9, 65_535, 3], np.array([0, 2, 2, 5], np.int64)


@pytest.mark.parametrize("begin", [NONE, 1])
@pytest.mark.parametrize("end", [NONE, 2])
@pytest.mark.parametrize("given", [np.uint16, np.int32])
@pytest.mark.parametrize("wanted", [np.uint16, np.int32])
def test_copies_of_rows(
    monkeypatch: pytest.MonkeyPatch, begin: int, end: int, given: Any, wanted: Any
) -> None:
    arguments = (np.array(IDS, given), OFFSETS, begin, end, wanted)
    first, last = [begin] * (begin >= 0), [end] * (end >= 0)
    expected = [*first, 7, 8, *last, *first, 9, 65_535, 3, *last]
    for _ in range(2):
        ids, offsets = copy_with_begin_end_tokens(*arguments)
        assert (ids.dtype, ids.tolist()) == (wanted, expected)
        empty = 2 + len(first) + len(last)
        assert offsets.tolist() == [0, empty, empty, len(expected)]
        monkeypatch.setattr(encoder, "native", None)


@pytest.mark.parametrize("stride", [1, 2, 3, 4, 7])
def test_windows_are_slices_of_documents(monkeypatch: pytest.MonkeyPatch, stride: int) -> None:
    monkeypatch.setattr(encoder, "PIECE_IDS", 7)
    texts = [[1, 2, 3], [], [4], [5, 6, 7, 8, 9, 10, 11], []]
    ids = np.array([token_id for text in texts for token_id in text], np.uint16)
    offsets = np.cumsum([0, *map(len, texts)])
    places = np.arange(len(texts))
    cut = cut_windows(make_rows(ids, offsets, places, 5, 0), places, 3, stride)
    windows = [text[i : i + 3] for text in texts for i in range(0, len(text), stride)]
    assert [row.tolist() for row in np.split(cut.ids, cut.offsets[1:-1])] == windows


def test_windows_side_by_side_copy_no_ids() -> None:
    ids, places = np.arange(9, dtype=np.uint16), np.zeros(1, np.int64)
    cut = cut_windows(make_rows(ids, np.array([0, 9]), places, 1, 0), places, 4, 4)
    assert np.shares_memory(cut.ids, ids)


def test_an_empty_document_has_no_mask_of_another() -> None:
    texts = np.array([0, 0, 2, 2], np.int64)  # An empty text before and behind one of two bytes.
    spans = [[0, 0], [0, 0], [0, 0], [0, 1], [1, 2], [0, 0], [0, 0], [0, 0]]
    ids = Encoded(
        np.arange(8, dtype=np.int32),
        np.array([0, 2, 6, 8], np.int64),
        spans=np.array(spans, np.int64),
    )
    mask = mask_of(np.array([1, 1], np.uint8), texts, ids)
    assert mask.tolist() == [0, 0, 1, 1, 1, 1, 0, 0]
