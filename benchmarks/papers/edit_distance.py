"""Levenshtein distance of two sequences of ids, and BlockBPE's similarity made of it."""

from __future__ import annotations

from collections.abc import Sequence

Ids = Sequence[int]


def edit_distance(first: Ids, second: Ids) -> int:
    """Return the least number of insertions, deletions and replacements between two sequences.

    A column of the table is two words of len(first) bits. Source: Hyyrö, "Explaining and extending
    the bit-parallel approximate string matching algorithm of Myers", 2001.
    """
    first, second = _without_common_ends(first, second)
    if not first or not second:
        return len(first) + len(second)
    mask, top = (1 << len(first)) - 1, 1 << (len(first) - 1)
    places: dict[int, int] = {}
    for place, value in enumerate(first):
        places[value] = places.get(value, 0) | 1 << place
    up, down, distance = mask, 0, len(first)
    for value in second:
        equal = places.get(value, 0)
        vertical = equal | down
        horizontal = (((equal & up) + up) ^ up) | equal
        more = down | (~(horizontal | up) & mask)
        less = up & horizontal
        distance += bool(more & top) - bool(less & top)
        more, less = ((more << 1) | 1) & mask, (less << 1) & mask
        up, down = less | (~(vertical | more) & mask), more & vertical
    return distance


def distance_by_pieces(first: Ids, second: Ids, widths: Sequence[int]) -> int:
    """Return an upper bound of the distance of two encodings, as a sum over pieces of the text.

    A piece ends where ids of both encodings end, so long texts are quick. `widths` has the number
    of bytes of each id; both encodings are of the same bytes.
    """
    total = place = other_place = 0
    begin = other_begin = i = j = 0
    while i < len(first) or j < len(second):
        if place <= other_place and i < len(first):
            place += widths[first[i]]
            i += 1
        else:
            other_place += widths[second[j]]
            j += 1
        if place == other_place:
            total += edit_distance(first[begin:i], second[other_begin:j])
            begin, other_begin = i, j
    return total


def similarity(expected: Ids, found: Ids, length: int) -> float:
    """Return BlockBPE's similarity of two encodings of a text of `length` characters."""
    return 1 - edit_distance(expected, found) / length if length else 1.0


def _without_common_ends(first: Ids, second: Ids) -> tuple[Ids, Ids]:
    most = min(len(first), len(second))
    begin = 0
    while begin < most and first[begin] == second[begin]:
        begin += 1
    end = 0
    while end < most - begin and first[-1 - end] == second[-1 - end]:
        end += 1
    return first[begin : len(first) - end], second[begin : len(second) - end]
