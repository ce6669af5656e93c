"""Begin and end tokens and truncation on ragged arrays, against the same in plain Python."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from vocabularies.batch.batch import EncodeOptions, RowError
from vocabularies.batch.post_processing import (
    AddedIds,
    Content,
    join_rows,
    post_process,
    post_processed_lengths,
)
from vocabularies.batch.ragged import ragged_indices
from vocabularies.builtin import load
from vocabularies.model.types import Kmers
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference.special_tokens import Token
from vocabularies.reference.tokenizer import _post_process as reference_post_process

REFUSED = RowError("refused", "for the test")


def content_of(rows: list[list[int]], with_spans: bool, errors: dict[int, RowError]) -> Content:
    """Make content with ids 100, 101 ...; the span of an id is (id, id + 1)."""
    ids = np.array([i for row in rows for i in row], np.int32)
    spans = np.stack([ids, ids + 1], axis=1).astype(np.int64) if with_spans else None
    return Content(ids, np.cumsum([0, *map(len, rows)]), spans, errors)


def vocabulary_of(prefix: int, suffix: int, size: int | None) -> Vocabulary:
    model = Kmers(1, 4, 0, "A", max_piece_tokens=size)
    tokens = (b"<u>", b"<p>", b"<q>", b"<r>", b"A")
    return Vocabulary(tokens, model, prefix=(1, 2)[:prefix], suffix=(3, 2)[:suffix])


@settings(max_examples=400)
@given(
    sizes=st.lists(st.integers(0, 12), max_size=6),
    refused=st.sets(st.integers(0, 5)),
    prefix=st.integers(0, 2),
    suffix=st.integers(0, 2),
    size=st.none() | st.integers(1, 4),
    added=st.booleans(),
    max_length=st.none() | st.integers(0, 20),
    side=st.sampled_from(["right", "left"]),
    spans=st.booleans(),
)
def test_rows_are_framed_as_the_reference_frames_each(
    sizes, refused, prefix, suffix, size, added, max_length, side, spans
):
    vocabulary = vocabulary_of(prefix, suffix, size)
    options = EncodeOptions(added, max_length=max_length, truncation_side=side, spans=spans)
    errors = {row: REFUSED for row in refused if row < len(sizes)}
    rows = [
        [] if row in errors else [*range(100 * row + 100, 100 * row + 100 + num)]
        for row, num in enumerate(sizes)
    ]
    content = content_of(rows, spans, dict(errors))
    added = AddedIds.of(vocabulary)
    encoded = post_process(content, added, options)
    lengths, length_errors = post_processed_lengths(content, added, options)
    assert lengths.tolist() == np.diff(encoded.offsets).tolist()
    assert length_errors == encoded.errors
    any_cut = False
    for row, ids in enumerate(rows):
        begin, end = encoded.offsets[row : row + 2]
        got = encoded.ids[begin:end].tolist()
        try:
            assert row not in errors
            right = reference_post_process(vocabulary, [Token(i, i, i + 1) for i in ids], options)
        except (AssertionError, ValueError) as error:
            wanted = getattr(error, "error", REFUSED)
            assert encoded.errors[row] == wanted
            assert got == []
            continue
        assert got == right.ids
        if spans:
            assert list(map(tuple, encoded.spans[begin:end].tolist())) == right.spans
        if right.num_tokens != len(right.ids):
            any_cut = True
        if encoded.num_tokens is not None:
            assert encoded.num_tokens[row] == right.num_tokens
            assert tuple(encoded.kept[row].tolist()) == right.kept
    assert not any_cut or encoded.num_tokens is not None


def test_nothing_to_add_or_cut_copies_nothing():
    content = content_of([[7, 8], [9]], True, {})
    for added, options in (
        (AddedIds.of(load("gpt2")), EncodeOptions(spans=True)),
        (AddedIds.of(load("dnabert2")), EncodeOptions(add_special_tokens=False, spans=True)),
    ):
        encoded = post_process(content, added, options)
        assert encoded.ids is content.ids
        assert encoded.offsets is content.offsets
        assert encoded.spans is content.spans


def test_a_multiple_of_the_piece_size_ends_in_an_empty_piece():
    added = AddedIds.of(load("dnabert1_6mer"))
    for num, total in ((509, 511), (510, 514), (511, 515), (1019, 1023), (1020, 1026)):
        encoded = post_process(content_of([[9] * num], False, {}), added, EncodeOptions())
        assert len(encoded.ids) == total
    assert encoded.ids.tolist() == [2, *[9] * 510, 3, 2, *[9] * 510, 3, 2, 3]


def test_ragged_counts_from_each_begin():
    assert ragged_indices(np.array([5, 0]), np.array([2, 3])).tolist() == [5, 6, 0, 1, 2]
    assert ragged_indices(np.array([5, 9, 0]), np.array([2, 0, 3]), 4).tolist() == [5, 9, 0, 4, 8]
    assert ragged_indices(np.zeros(0, np.int64), np.zeros(0, np.int64)).tolist() == []


def test_joined_rows_stand_where_their_numbers_say():
    left = content_of([[1, 2], []], True, {1: REFUSED})
    right = content_of([[3], [4, 5, 6]], False, {})
    joined = join_rows([(np.array([2, 0]), left), (np.array([1, 3]), right)], 4)
    assert joined.ids.tolist() == [3, 1, 2, 4, 5, 6]
    assert joined.offsets.tolist() == [0, 0, 1, 3, 6]
    assert joined.spans.tolist() == [[0, 0], [1, 2], [2, 3], [0, 0], [0, 0], [0, 0]]
    assert joined.errors == {0: REFUSED}
