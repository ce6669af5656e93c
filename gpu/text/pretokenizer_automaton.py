r"""Makes a deterministic automaton for each pretokenizer rule, as tables for kernels.

A thread starts in the middle of a text, where the state is unknown. So the automaton's states are
*sets* of the rule's states. ANYWHERE is the set of all, and reading makes sets smaller:

    reads        ANYWHERE   t            h         e
    may be in    all        word, fresh  word      word      ("fresh" is after a contraction, "'t")

A set of one is *certain*. Outputs that the members of a set do not agree on are AMBIGUOUS. A set
that began in the text's middle does not COMMIT: the place was marked before it, by another thread.
Equivalent sets, which have the same outputs for all continuations of the text, are one state.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gpu.text.pretokenizer_rules import (
    COMMIT,
    END,
    FRESH,
    MARK,
    RULES,
    START,
    START_PREV,
    Rule,
)
from vocabularies.preprocessing.unicode_classes import NUM_CODE_POINTS

COVERED = tuple(RULES)
MAX_STATES = 32
ANYWHERE = MAX_STATES - 1  # The state before anything is read.
ROW_END = 128  # Rows before it are ASCII characters; it stands for the end of a text.
ROW_INNER = 129  # A byte inside a character: changes nothing. Rows after it are classes.
ONE_ROW = 1 << 15  # In `pages`: all code points of the page are in the row of the low byte.
ROW_STRIDE = 33  # Entries from row to row: odd, so that threads in one state use all 32 banks.

# Bits of an entry. The four outputs are the top bits of its four bytes: eight entries, each shifted
# one further, make one byte of bits for each output.
ENTRY_OPEN_PREV = 1 << 0  # In the next state, START_PREV may still come.
ENTRY_OPEN_PENDING = 1 << 1  # In the next state, COMMIT may still come, no MARK before it.
ENTRY_STATE_SHIFT = 2  # Five bits: the next state.
ENTRY_START = 1 << 7
ENTRY_AMBIGUOUS = 1 << 8  # The outputs are not known (and 0 here).
ENTRY_AMBIGUOUS_BEFORE = 1 << 9  # Nor are the outputs for earlier places.
ENTRY_START_PREV = 1 << 15
ENTRY_MARK = 1 << 23
ENTRY_COMMIT = 1 << 31
_ENTRY_BITS = {
    START: ENTRY_START,
    START_PREV: ENTRY_START_PREV,
    MARK: ENTRY_MARK,
    COMMIT: ENTRY_COMMIT,
}
_AMBIGUOUS, _AMBIGUOUS_BEFORE = 16, 32

_State = TypeVar("_State", bound=Hashable)
_Set = tuple[frozenset[str], bool]  # The states; whether their pending place is the reader's own.
_Step = Callable[[_State, str], tuple[_State, int]]


@dataclass(frozen=True, slots=True)
class Automaton:
    """A rule as flat tables; all arrays are read-only.

    State 0 is a text's beginning. States below `num_certain` are certain, ANYWHERE is the last.

    Attributes:
        name: the rule's name.
        num_classes: rows after the ASCII ones: ROW_END, ROW_INNER, then classes of characters.
        num_certain: certain states.
        num_states: all states in use, ANYWHERE among them.
        entries: uint32[128 + num_classes, ROW_STRIDE], see ENTRY_*; entries[row, state] is the step
            of a state on a row: an ASCII character, or ROW_END + class. Unused entries are 0, but
            entries[0, -1]: whether the rule ever MARKs.
        pages: uint16[0x110000 >> 8], the page of `page_rows` of each 256 code points, or
            ONE_ROW + row.
        page_rows: uint8[pages, 256], the row of a code point's class (for ASCII, too).
    """

    name: str
    num_classes: int
    num_certain: int
    num_states: int
    entries: NDArray[np.uint32]
    pages: NDArray[np.uint16]
    page_rows: NDArray[np.uint8]


@functools.cache
def automaton(name: str) -> Automaton:
    """Make the tables of a rule.

    Raises:
        ValueError: there is no automaton for the rule; it drops bytes or depends on a literal.
    """
    if name not in RULES:
        raise ValueError(f"no automaton for {name!r}; there is one for {', '.join(COVERED)}")
    rule = RULES[name]
    row_of, kinds = _rows(rule)
    entries, num_certain, num_states = _entries(rule, kinds)
    entries = np.concatenate([entries[row_of[:128] - ROW_END], entries])
    entries[0, -1] = (entries & ENTRY_MARK).any()
    pages, page_rows = _pages(row_of)
    return Automaton(
        name=name,
        num_classes=len(entries) - ROW_END,
        num_certain=num_certain,
        num_states=num_states,
        entries=_frozen(entries),
        pages=_frozen(pages),
        page_rows=_frozen(page_rows),
    )


@functools.cache
def certain_automaton(name: str) -> Automaton:
    """Make the tables of a rule for reading from the begin of a text or pretoken.

    All of its states are certain.

    Raises:
        ValueError: as `automaton`.
    """
    if name not in RULES:
        raise ValueError(f"no automaton for {name!r}; there is one for {', '.join(COVERED)}")
    rule = RULES[name]
    row_of, kinds = _rows(rule)
    states = _reachable([FRESH], kinds, rule.step)
    same = _first_equal(states, kinds, rule.step)
    number = {state: index for index, state in enumerate(dict.fromkeys(same.values()))}
    entries = np.zeros((len(kinds) + 1, ROW_STRIDE), np.uint32)
    for state, index in number.items():
        entries[ROW_INNER - ROW_END, index] = index << ENTRY_STATE_SHIFT
        for kind, row in zip(kinds, (0, *range(2, len(kinds) + 1)), strict=True):
            after, outputs = rule.step(state, kind)
            entry = number[same[after]] << ENTRY_STATE_SHIFT
            entry |= sum(bit for output, bit in _ENTRY_BITS.items() if outputs & output)
            entries[row, index] = entry
    entries = np.concatenate([entries[row_of[:128] - ROW_END], entries])
    pages, page_rows = _pages(row_of)
    return Automaton(
        name=name,
        num_classes=len(entries) - ROW_END,
        num_certain=len(number),
        num_states=len(number),
        entries=_frozen(entries),
        pages=_frozen(pages),
        page_rows=_frozen(page_rows),
    )


_Array = TypeVar("_Array", bound=NDArray[np.generic])


def _frozen(array: _Array) -> _Array:
    array.flags.writeable = False
    return array


def _rows(rule: Rule) -> tuple[NDArray[np.uint8], list[str]]:
    """Return uint8[NUM_CODE_POINTS], the row of each code point, and the classes, END first."""
    masks = rule.classes()
    rows = np.zeros(NUM_CODE_POINTS, np.uint8)
    for number, mask in reversed(list(enumerate(masks.values(), ROW_INNER + 1))):
        rows[mask] = number
    return rows, [END, *masks]


def _pages(row_of: NDArray[np.uint8]) -> tuple[NDArray[np.uint16], NDArray[np.uint8]]:
    """Return `Automaton.pages` and `Automaton.page_rows`."""
    blocks = row_of.reshape(-1, 256)
    even = (blocks == blocks[:, :1]).all(axis=1)
    page_rows, numbers = np.unique(blocks[~even], axis=0, return_inverse=True)
    pages = blocks[:, 0].astype(np.uint16) + np.uint16(ONE_ROW)
    pages[~even] = numbers.reshape(-1)
    return pages, np.ascontiguousarray(page_rows)


def _reachable(states: Iterable[_State], kinds: Sequence[str], step: _Step[_State]) -> list[_State]:
    seen = dict.fromkeys(states)
    unread = list(seen)
    for state in unread:
        for kind in kinds:
            after, _ = step(state, kind)
            if after not in seen:
                seen[after] = None
                unread.append(after)
    return unread


def _first_equal(
    states: Sequence[_State], kinds: Sequence[str], step: _Step[_State]
) -> dict[_State, _State]:
    """Map each state to the first equivalent one (Moore's partition refinement)."""
    first = dict.fromkeys(states, states[0])
    while True:
        earliest: dict[Hashable, _State] = {}
        refined = {}
        for state in states:
            steps = [step(state, kind) for kind in kinds]
            signature = (first[state], *((first[after], outputs) for after, outputs in steps))
            refined[state] = earliest.setdefault(signature, state)
        if refined == first:
            return first
        first = refined


def _set_step(rule: Rule, same: dict[str, str], state: _Set, kind: str) -> tuple[_Set, int]:
    members, own = state
    steps = [rule.step(member, kind) for member in members]
    after = frozenset(same[next_state] for next_state, _ in steps)
    outputs = {out if own else out & ~COMMIT for _, out in steps}
    marked = own or all(out & MARK for _, out in steps)
    if len(outputs) == 1:
        return (after, marked), outputs.pop()
    before = len({out & (START_PREV | COMMIT) for out in outputs}) > 1
    return (after, marked), _AMBIGUOUS | (_AMBIGUOUS_BEFORE if before else 0)


def _widened(first: dict[_Set, _Set], kinds: Sequence[str], step: _Step[_Set]) -> tuple[_Set, _Set]:
    """Choose a set and a larger one that replaces it, which is always sound.

    With the larger one, a thread may never become certain in a run of one class. The replacement
    is chosen that makes the outputs of the fewest classes ambiguous, then leaves the fewest classes
    uncertain, then adds the fewest states.
    """
    sets = [state for state in dict.fromkeys(first.values()) if len(state[0]) > 1]
    assert not any(own for _, own in sets), "a larger set would not know its pending place"

    def harm(small: _Set, large: _Set) -> tuple[int, int, int]:
        ambiguous = unsure = 0
        for kind in kinds:
            state, outputs = large, 0
            for _ in range(MAX_STATES):
                after, outputs = step(state, kind)
                state = large if first[after] == small else first[after]
            ambiguous += bool(outputs & _AMBIGUOUS)
            unsure += len(state[0]) > 1
        return ambiguous, unsure, len(large[0]) - len(small[0])

    pairs = [(small, large) for small in sets for large in sets if small[0] < large[0]]
    return min(pairs, key=lambda pair: harm(*pair))


def _states_and_step(rule: Rule, kinds: Sequence[str]) -> tuple[list[_Set], int, _Step[_Set]]:
    """Return the states in order, the number of certain ones, and the step function among them."""
    plain = _reachable([FRESH], kinds, rule.step)
    same = _first_equal(plain, kinds, rule.step)
    singles = list(dict.fromkeys(same.values()))
    certain: list[_Set] = [(frozenset([state]), True) for state in singles]
    anywhere: _Set = (frozenset(singles), False)
    instead: dict[_Set, _Set] = {}

    @functools.cache
    def step(state: _Set, kind: str) -> tuple[_Set, int]:
        after, outputs = _set_step(rule, same, state, kind)
        while after in instead:
            after = instead[after]
        return after, outputs

    while True:
        first = _first_equal(_reachable([*certain, anywhere], kinds, step), kinds, step)
        states = [s for s in dict.fromkeys(first.values()) if s != anywhere] + [anywhere]
        if len(states) <= MAX_STATES:
            break
        small, large = _widened(first, kinds, step)
        instead |= {state: large for state, kept in first.items() if kept == small}
        step.cache_clear()

    def among(state: _Set, kind: str) -> tuple[_Set, int]:
        after, outputs = step(state, kind)
        return first[after], outputs

    return states, len(certain), among


def _entries(rule: Rule, kinds: Sequence[str]) -> tuple[NDArray[np.uint32], int, int]:
    """Return the entries from ROW_END on, the number of certain states and that of all states."""
    states, num_certain, step = _states_and_step(rule, kinds)
    number = {state: index for index, state in enumerate(states)} | {states[-1]: ANYWHERE}
    open_bits = _open_bits(states, kinds, step)
    entries = np.zeros((len(kinds) + 1, ROW_STRIDE), np.uint32)
    for state in states:
        inner = number[state] << ENTRY_STATE_SHIFT | open_bits[state]
        entries[ROW_INNER - ROW_END, number[state]] = inner
        for kind, row in zip(kinds, (0, *range(2, len(kinds) + 1)), strict=True):
            after, outputs = step(state, kind)
            entry = number[after] << ENTRY_STATE_SHIFT | open_bits[after]
            if outputs & _AMBIGUOUS:
                entry |= ENTRY_AMBIGUOUS
                entry |= ENTRY_AMBIGUOUS_BEFORE if outputs & _AMBIGUOUS_BEFORE else 0
            else:
                entry |= sum(bit for output, bit in _ENTRY_BITS.items() if outputs & output)
            entries[row, number[state]] = entry
    return entries, num_certain, len(states)


def _open_bits(states: Sequence[_Set], kinds: Sequence[str], step: _Step[_Set]) -> dict[_Set, int]:
    """Return the ENTRY_OPEN_* bits of each state; ambiguous earlier outputs count as open."""
    steps = {state: [step(state, kind) for kind in kinds] for state in states}
    prev = {s for s in states if any(out & (START_PREV | _AMBIGUOUS_BEFORE) for _, out in steps[s])}
    pending: set[_Set] = set()
    while True:
        more = {
            state
            for state in states
            for after, outputs in steps[state]
            if outputs & (COMMIT | _AMBIGUOUS_BEFORE) or (after in pending and not outputs & MARK)
        }
        if more == pending:
            break
        pending = more
    return {
        state: ENTRY_OPEN_PREV * (state in prev) | ENTRY_OPEN_PENDING * (state in pending)
        for state in states
    }
