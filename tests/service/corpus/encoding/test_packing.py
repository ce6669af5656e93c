"""Packed rows: the documents' ids in order, and cursors from which the same rows follow."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from service.corpus.documents import Rows
from service.corpus.encoding.encoder import make_rows
from service.corpus.encoding.packing import Packer

LENGTHS = st.lists(st.integers(0, 9), max_size=12)


def documents(lengths: list[int], begin: int, first_place: int) -> Rows:
    """Make documents of rising ids, at rising places."""
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    ids = np.arange(begin, begin + int(offsets[-1]), dtype=np.int32)
    places = np.arange(first_place, first_place + len(lengths))
    return make_rows(ids, offsets.astype(np.int64), places, first_place + len(lengths), 3)


@settings(max_examples=300)
@given(st.lists(LENGTHS, max_size=5), st.integers(1, 7))
def test_rows_follow_one_another_and_can_begin_at_any(groups: list[list[int]], size: int) -> None:
    lengths = [length for group in groups for length in group]
    total = sum(lengths)
    packer, begin, place = Packer(size, 0, 3, 0), 0, 0
    ids: list[int] = []
    cursors: list[tuple[int, int]] = []
    num_documents = 0
    for group in groups:
        rows = packer.add(documents(group, begin, place))
        begin, place = begin + sum(group), place + len(group)
        assert (np.diff(rows.offsets) == size).all()
        ids += rows.ids.tolist()
        cursors += zip(rows.next_places.tolist(), rows.next_skips.tolist(), strict=True)
        num_documents += int(rows.num_documents[-1])
        assert set(rows.next_inputs.tolist()) <= {3}
    assert ids == list(range(total // size * size))
    assert packer.num_left == total % size
    ends = np.cumsum(lengths, dtype=np.int64)
    begins = ends - np.array(lengths, np.int64)
    assert num_documents == np.count_nonzero((ends <= len(ids)) & (begins < len(ids)))
    for number, (first, skip) in enumerate(cursors, 1):
        # Begin again with the document at the cursor: the same rows follow.
        start = int(ends[first - 1]) if first else 0
        assert start + skip == number * size
        again = Packer(size, skip, 3, first).add(documents(lengths[first:], start, first))
        assert again.ids.tolist() == ids[number * size :]
        assert again.next_places.tolist() == [place for place, _ in cursors[number:]]
        assert again.next_skips.tolist() == [skip for _, skip in cursors[number:]]
