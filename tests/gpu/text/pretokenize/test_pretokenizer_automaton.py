"""The automata of the kernels against the published patterns, read by plain Python."""

from __future__ import annotations

import functools
import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu.text.pretokenizer_automaton import (
    ANYWHERE,
    COVERED,
    ENTRY_AMBIGUOUS,
    ENTRY_AMBIGUOUS_BEFORE,
    ENTRY_COMMIT,
    ENTRY_MARK,
    ENTRY_OPEN_PENDING,
    ENTRY_OPEN_PREV,
    ENTRY_START,
    ENTRY_START_PREV,
    ENTRY_STATE_SHIFT,
    MAX_STATES,
    ONE_ROW,
    ROW_END,
    ROW_INNER,
    automaton,
)
from gpu.text.pretokenizer_rules import RULES
from tests.support.inputs.nasty_texts import TEXTS
from tests.vocabularies.preprocessing.test_pretokenizers import every_tuple_once
from vocabularies.preprocessing.class_patterns import to_code_points
from vocabularies.preprocessing.pretokenizers import PRETOKENIZERS, pretokenize

MAX_OWN_TEXTS = 140_000
MAX_JOINED = 1_000_000


@functools.cache
def rows(name: str) -> np.ndarray:
    """uint8[0x110000], the row of every code point, as a kernel looks it up."""
    tables = automaton(name)
    points = np.arange(0x110000)
    pages = tables.pages[points >> 8]
    one_row = pages >= ONE_ROW
    found = (pages & 0xFF).astype(np.uint8)
    found[~one_row] = tables.page_rows[pages[~one_row], points[~one_row] & 0xFF]
    return found


@functools.cache
def steps(name: str) -> list[list[int]]:
    return automaton(name).entries.tolist()


def state_of(entry: int) -> int:
    return entry >> ENTRY_STATE_SHIFT & 31


@functools.cache
def representatives(name: str) -> tuple[str, ...]:
    """For each class a character or two, the first and the one in the middle."""
    found = []
    for row in np.unique(rows(name)):
        members = np.flatnonzero(rows(name) == row)
        members = members[(members < 0xD800) | (members > 0xDFFF)]
        found.append(chr(members[0]) + chr(members[len(members) // 2]))
    return tuple(found)


def starts(name: str, text: str) -> list[int]:
    """Where pretokens begin, in characters, as the tables say."""
    table, found, entry, pending = steps(name), set(), 0, -1
    for place, row in enumerate([*rows(name)[to_code_points(text)].tolist(), ROW_END]):
        entry = table[row][state_of(entry)]
        if entry & ENTRY_COMMIT:
            assert pending >= 0
            found.add(pending)
        if entry & ENTRY_START_PREV:
            found.add(place - 1)
        if entry & ENTRY_START:
            found.add(place)
        if entry & ENTRY_MARK:
            pending = place
    return sorted(found)


def assert_equals_the_pattern(name: str, text: str) -> None:
    found, expected = set(starts(name, text)), {begin for begin, _ in pretokenize(name, text)}
    if found != expected:
        first = min(found ^ expected)
        near = ascii(text[max(first - 30, 0) : first + 30])
        raise AssertionError(
            f"{name}: place {first} of ...{near}..., expected: {first in expected}"
        )


@pytest.mark.parametrize("name", COVERED)
@pytest.mark.slow
def test_every_short_string_of_classes_as_a_text_of_its_own(name: str) -> None:
    firsts = [two[0] for two in representatives(name)]
    for length in range(7):
        if len(firsts) ** length > MAX_OWN_TEXTS:
            break
        for text in itertools.product(firsts, repeat=length):
            assert_equals_the_pattern(name, "".join(text))


@pytest.mark.parametrize("name", COVERED)
@pytest.mark.slow
def test_every_string_of_classes_inside_a_text(name: str) -> None:
    lasts = "".join(two[1] for two in representatives(name))
    lasts = lasts if len(lasts) > 1 else "ab"
    length = max(n for n in range(1, 8) if len(lasts) ** n <= MAX_JOINED and n <= len(lasts))
    assert_equals_the_pattern(name, every_tuple_once(lasts, length))


@pytest.mark.parametrize("name", COVERED)
def test_long_runs_of_classes(name: str) -> None:
    source = random.Random(name)
    for _ in range(8000):
        text = ""
        for _ in range(source.randint(1, 9)):
            letters = source.choice(representatives(name))
            text += "".join(source.choices(letters, k=source.choice((1, 1, 1, 2, 3, 4, 9))))
        assert_equals_the_pattern(name, text)


@pytest.mark.parametrize("name", COVERED)
@settings(max_examples=150)
@given(
    text=st.text(max_size=30)
    | st.text(st.sampled_from(" \n\ta1'sSlLrReEvV!/中Aé\u0301"), max_size=30)
)
def test_random_texts(name: str, text: str) -> None:
    if not any("\ud800" <= character <= "\udfff" for character in text):
        assert_equals_the_pattern(name, text)


@pytest.mark.parametrize("name", COVERED)
def test_nasty_texts(name: str) -> None:
    for text in TEXTS:
        assert_equals_the_pattern(name, text)


@pytest.mark.parametrize("name", COVERED)
def test_every_code_point_has_the_row_of_its_class(name: str) -> None:
    masks = RULES[name].classes()
    unclassified = np.ones(0x110000, np.bool_)
    for row, mask in enumerate(masks.values(), ROW_INNER + 1):
        assert (rows(name)[mask & unclassified] == row).all()
        unclassified &= ~mask
    assert not unclassified.any()
    for point in range(128):
        assert steps(name)[point][:MAX_STATES] == steps(name)[rows(name)[point]][:MAX_STATES]


@pytest.mark.parametrize("name", COVERED)
def test_reading_from_anywhere_is_right_or_says_that_it_is_ambiguous(name: str) -> None:
    source, table, tables = random.Random(name), steps(name), automaton(name)
    classes = np.unique(rows(name)).tolist()
    ambiguous = certain = 0
    for _ in range(4000):
        runs = [[source.choice(classes)] * source.choice((1, 1, 2, 5)) for _ in range(8)]
        true, seen, marked = 0, ANYWHERE << ENTRY_STATE_SHIFT, False
        skipped = source.randint(0, 6)
        for place, row in enumerate([*itertools.chain(*runs), ROW_END]):
            true = table[row][state_of(true)]
            if place < skipped:
                continue
            seen = table[row][state_of(seen)]
            if seen & ENTRY_AMBIGUOUS:
                ambiguous, marked = ambiguous + 1, False
                continue
            outputs = ENTRY_START | ENTRY_MARK | (ENTRY_START_PREV if place > skipped else 0)
            outputs |= ENTRY_COMMIT if marked else 0
            assert true & outputs == seen & outputs
            marked = (marked and not seen & ENTRY_COMMIT) or bool(seen & ENTRY_MARK)
            certain += state_of(seen) < tables.num_certain
    assert certain > 4 * ambiguous


@pytest.mark.parametrize("name", COVERED)
def test_what_the_kernels_rely_on(name: str) -> None:
    tables, table = automaton(name), steps(name)
    assert tables.num_classes <= MAX_STATES
    assert tables.num_certain < tables.num_states <= MAX_STATES
    assert tables.entries.shape == (128 + tables.num_classes, 33)
    for array in (tables.entries, tables.pages, tables.page_rows):
        assert not array.flags.writeable
    states = [*range(tables.num_states - 1), ANYWHERE]
    openness = dict.fromkeys(states, 0)
    for row, state in itertools.product(range(len(table)), states):
        entry = table[row][state]
        after = openness[state_of(entry)] or entry & 3
        assert after == entry & 3, "one openness a state"
        openness[state_of(entry)] = after
        assert bool(entry & ENTRY_AMBIGUOUS) >= bool(entry & ENTRY_AMBIGUOUS_BEFORE)
        if state < tables.num_certain:
            assert not entry & ENTRY_AMBIGUOUS
            assert state_of(entry) < tables.num_certain
        if row == ROW_END:
            assert state_of(entry) == 0
        if row == ROW_INNER:
            assert state_of(entry) == state
            assert not entry >> 7
        if state == 0:
            assert row in (ROW_END, ROW_INNER) or entry & ENTRY_START
            assert not entry & (ENTRY_START_PREV | ENTRY_COMMIT)
        # Behind a start nothing stays pending but what the same step marks.
        if entry & (ENTRY_START | ENTRY_START_PREV | ENTRY_COMMIT) and not entry & ENTRY_MARK:
            assert not entry & ENTRY_OPEN_PENDING
    for row, state in itertools.product(range(len(table)), states):
        entry = table[row][state]
        is_open = state < tables.num_certain and openness[state] & ENTRY_OPEN_PENDING
        if entry & ENTRY_MARK and is_open:
            assert entry & ENTRY_COMMIT, "a place is marked while another is pending"
        if entry & ENTRY_COMMIT:
            assert openness[state] & ENTRY_OPEN_PENDING
        if entry & ENTRY_START_PREV:
            assert openness[state] & ENTRY_OPEN_PREV


def test_rules_that_drop_bytes_or_have_a_literal_are_refused() -> None:
    for name in ("whitespace", "whitespace_split", "isolate:-", "gpt-2"):
        with pytest.raises(ValueError, match="no automaton for"):
            automaton(name)
    assert set(COVERED) == set(PRETOKENIZERS) - {"whitespace", "whitespace_split", "motifs"}
