"""The distance of ids is that of the table, row by row, and pieces never fall below it."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.papers.edit_distance import distance_by_pieces, edit_distance, similarity

ROWS = st.lists(st.integers(0, 3), max_size=12)


def by_table(first: Sequence[int], second: Sequence[int]) -> int:
    row = [*range(len(second) + 1)]
    for i, value in enumerate(first, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(second, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (value != other))
    return row[-1]


@given(ROWS, ROWS)
def test_the_distance_is_that_of_the_table(first: list[int], second: list[int]) -> None:
    assert edit_distance(first, second) == by_table(first, second)


@given(st.lists(st.sampled_from([[(0, 1), (2,)], [(1,), (1,)], [(2, 0), (0, 2)]]), max_size=6))
def test_pieces_are_at_least_the_distance(pairs: list[list[tuple[int, ...]]]) -> None:
    first = [value for pair in pairs for value in pair[0]]
    second = [value for pair in pairs for value in pair[1]]
    widths = [1, 1, 2]  # (0, 1) and (2,) are of the same bytes.
    assert distance_by_pieces(first, second, widths) >= edit_distance(first, second)
    assert distance_by_pieces(first, first, widths) == 0


def test_similarity_is_by_the_characters_of_the_text() -> None:
    assert similarity([1, 2, 3], [1, 4], 10) == 0.8
    assert similarity([], [], 0) == 1.0
