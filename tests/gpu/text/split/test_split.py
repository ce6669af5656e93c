"""Splitting long pieces on the emulated device against the reference: any text, any ranks."""

from __future__ import annotations

import random
from string import ascii_letters, ascii_lowercase

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu.text.bpe_tables import bpe_tables
from tests.gpu.text.check_ids import Cut, check_long_pieces
from tests.gpu.text.random_vocabularies import SEEDS, doubled, random_merges, vocabulary_of
from vocabularies.builtin import load


def texts_of(chance: random.Random, letters: str) -> list[str]:
    """Random ones, of periods 1, 2, 3 and 5, and one after the other."""
    texts = []
    for period in (1, 2, 3, 5, 0):
        size = chance.choice([129, 200, 600, 1024, 1025, 1500, 1800, 2600, 5000])
        unit = "".join(chance.choice(letters) for _ in range(period or size))
        texts.append((unit * size)[:size])
    between = "".join(text[: chance.randint(1, 1500)] for text in texts)
    return [*texts, "".join(text[:800] for text in texts), texts[-1][:700] + between + texts[-1]]


@settings(max_examples=60)
@given(seed=SEEDS, num_letters=st.integers(2, 4), in_order=st.booleans())
def test_long_pieces_have_the_ids_of_the_reference(seed, num_letters, in_order):
    chance = random.Random(seed)
    letters = "abcd"[:num_letters]
    merges = random_merges(chance, letters, chance.randint(4, 50))
    if not in_order:
        chance.shuffle(merges)
    check_long_pieces(vocabulary_of(merges), texts_of(chance, letters))


@pytest.mark.parametrize("unit", ["a", "ab", "abc", "abcd", "─", "é", "😀"])
@pytest.mark.parametrize("times", [0, 1, 4, 6])
def test_runs_have_the_ids_of_the_reference(unit, times):
    """Tokens of 2^k letters of one to four bytes."""
    vocabulary = vocabulary_of(doubled(unit.encode(), times))
    texts = [(unit * size)[:size] for size in (129, 340, 512, 1000, 1023, 1024, 1026, 2049, 5000)]
    cut = check_long_pieces(vocabulary, texts)
    assert cut.pieces > 0 or (times == 0 and len(unit) < len(unit.encode()))
    if len(unit.encode()) == 1:
        assert cut.whole == 0  # Windows begin where the run's tokens do.


@pytest.mark.parametrize("times", [1, 2, 3, 6])
def test_a_period_of_a_few_letters_has_the_ids_of_the_reference(times):
    texts = ["abcde" * 900, "cdeab" * 500 + "a", "abcde" * 7000, "abcde" * 4000 + "ba"]
    assert check_long_pieces(vocabulary_of(doubled(b"abcde", times)), texts).pieces == 4


def test_a_piece_with_one_seam_is_merged_whole_and_its_neighbours_are_not():
    text = (" " * 143 + "\n") * 304
    assert check_long_pieces(load("cl100k_base"), [text]) == Cut(1, 1, len(text))
    neighbours = ["cd" * 300, "ab" * 700, "dc" * 400]
    assert check_long_pieces(vocabulary_of(doubled(b"ab", 6)), neighbours).whole < 3


@pytest.mark.parametrize("period", [33, 50, 51, 170])
@pytest.mark.slow
def test_a_long_period_has_the_ids_of_the_reference(period):
    """No window inside agrees with the next one: pieces of different lengths are merged whole."""
    chance, letters = random.Random(period), [chr(33 + number) for number in range(94)]
    unit = "".join(chance.sample(letters, 94) + chance.sample(letters, 94))[:period]
    parts = [unit * (9000 // period), "".join(chance.choices(ascii_letters, k=300)), unit * 90]
    texts = [unit * (5000 // period), unit[2:] + parts[0] + "a", "".join(parts)]
    cut = check_long_pieces(vocabulary_of(doubled(unit.encode(), 3)), texts)
    assert cut == Cut(3, 3, sum(map(len, texts)))


@pytest.mark.parametrize("shift", [1, 2, 3, 5, 31, 200, 801, 1023])
def test_a_run_amid_other_letters_is_split_by_windows(shift):
    """Windows in the run begin where the run's tokens do, whatever stands before."""
    chance = random.Random(shift)
    merges = doubled(b"a", 6) + random_merges(chance, "bcd", 30)
    front, back = ("".join(chance.choice("bcd") for _ in range(size)) for size in (shift, 3000))
    texts = [front + "a" * 2500 + back + "a" * 999 + back[:500] + "a" * 1100 + "b"]
    assert check_long_pieces(vocabulary_of(merges), texts).pieces == 1


@pytest.mark.parametrize("unit", ["a", "bcd", "ab"])
@pytest.mark.slow
def test_runs_far_from_each_other_have_the_ids_of_the_reference(unit):
    chance = random.Random(7)
    merges = doubled(unit.encode(), 5) + random_merges(chance, "xyz", 30)
    texts = []
    for size in (9000, 20_000, 40_001):
        sizes = [chance.randint(1, size) for _ in range(4)]
        parts = ["".join(chance.choice("xyzw") for _ in range(size)) for size in sizes]
        texts.append((unit * 900).join(parts))
    assert check_long_pieces(vocabulary_of(merges), texts).pieces == 3


@pytest.mark.parametrize("times", [8, 9])
def test_tokens_of_more_than_a_window_s_step_are_merged_as_a_whole(times):
    texts = ["abcde" * 900, "e" + "abcde" * 1111]
    cut = check_long_pieces(vocabulary_of(doubled(b"abcde", times)), texts)
    assert (cut.pieces, cut.whole, cut.whole_bytes) == (2, 2, sum(map(len, texts)))


@pytest.mark.parametrize("size", [129, 1024, 1025, 1793, 2600])
def test_a_new_pair_of_lower_rank_is_merged_before_the_rest(size):
    """In "aaaaa" aa is merged once: then (aa, a) has a lower rank, and then (aaa, a)."""
    lower = [(b"aaa", b"a"), (b"aa", b"a"), (b"a", b"a"), (b"aaaa", b"c"), (b"aaaa", b"aaaa")]
    texts = ["a" * size, "a" * (size - 1) + "c", "aac" * (size // 3), "aaaac" * (size // 5)]
    for merges in (lower, lower[::-1], [*lower[1:], lower[0]]):
        check_long_pieces(vocabulary_of(merges), texts)


def test_merges_in_any_order_reach_every_level():
    """Each letter of "abcdeabcde" joins the token before it, which is made last."""
    merges = doubled(b"abcde", 2)
    shuffled = [merges[i] for i in (3, 0, 5, 2, 4, 1)]
    assert not bpe_tables(vocabulary_of(shuffled), 1).rank_bounds.all()
    assert bpe_tables(vocabulary_of(merges), 1).rank_bounds.all()
    cut = check_long_pieces(vocabulary_of(shuffled), ["abcde" * 500, "eabcd" * 300])
    assert cut.pieces == 2
    cut = check_long_pieces(vocabulary_of([merges[0], *merges[2:], merges[1]]), ["abcde" * 500])
    assert cut.pieces == 1


@pytest.mark.parametrize("size", [2048, 32 * 64 * 3, 70_000])
@pytest.mark.slow
def test_a_piece_after_a_long_gap_begins_where_it_does(size):
    """A piece's end is looked for in steps; the next one begins in any word behind it."""
    vocabulary = vocabulary_of(doubled(b"a", 6))
    for end in (size, size + 63, size + 64, size + 64 * 31 + 5):
        cut = check_long_pieces(vocabulary, ["a" * end, "b" * 5, "a" * 130, "b"])
        assert cut.pieces == 2


def runs_of(chance: random.Random, letters: str, size: int) -> str:
    """Runs of one to three letters, now and then something else between them."""
    parts: list[str] = []
    while sum(map(len, parts)) < size:
        length = chance.randint(1, chance.choice([10, 100, 300, 1000]))
        unit = "".join(
            chance.choice(letters) for _ in range(chance.choice([1, 1, 1, 2, 3, length]))
        )
        parts.append((unit * length)[:length])
    return "".join(parts)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, num_letters=st.integers(2, 4), in_order=st.booleans())
def test_runs_behind_runs_have_the_ids_of_the_reference(seed, num_letters, in_order):
    chance = random.Random(seed)
    letters = "abcd"[:num_letters]
    merges = random_merges(chance, letters, chance.randint(4, 40))
    for unit in chance.sample(["a", "b", "ab", "aab"], 2):
        merges += [merge for merge in doubled(unit.encode(), 5) if merge not in merges]
    if not in_order:
        chance.shuffle(merges)
    texts = [runs_of(chance, letters, size) for size in (300, 2000, 12_000)]
    check_long_pieces(vocabulary_of(merges), texts)


@pytest.mark.parametrize("size", [500, 700, 999])
def test_long_runs_behind_each_other_are_merged_whole(size):
    """Windows that begin amid one run and end in the next do not meet."""
    units = [b"ab", b"cd", b"ef"]
    vocabulary = vocabulary_of([merge for unit in units for merge in doubled(unit, 6)])
    text = "".join((unit.decode() * size)[:size] for unit in units * 8)
    assert check_long_pieces(vocabulary, [text]) == Cut(1, 1, len(text))


@pytest.mark.parametrize(
    ("seed", "number", "size"), [(1, 24, 300), (1, 24, 700), (6, 24, 700), (3, 9, 4096)]
)
def test_a_window_that_begins_wrong_is_not_followed(seed, number, size):
    """The merges between two runs depend on how many letters of the first run remain."""
    chance = random.Random(seed)
    runs = (chance.choice(ascii_lowercase) * chance.randint(size, 3 * size) for _ in range(number))
    assert check_long_pieces(load("gpt2"), ["".join(runs)]).whole == 1


@pytest.mark.parametrize("length", [60, 150, 300, 800])
@pytest.mark.parametrize("letters", [" \n\t", "-=_*#.", "etaoin"])
@pytest.mark.slow
def test_runs_of_published_vocabularies_have_the_ids_of_the_reference(letters, length):
    chance = random.Random(length)
    runs = (chance.choice(letters) * chance.randint(length // 2, 2 * length) for _ in range(60))
    cut = check_long_pieces(load("cl100k_base"), ["".join(runs)])
    if letters == "-=_*#.":
        assert cut.whole == 0  # Windows begin where a run's tokens do, so they meet.


@pytest.mark.parametrize("name", ["gpt2", "cl100k_base"])
def test_rounds_merge_pairs_of_many_ranks_at_once(name):
    """Trained ranks have bounds far above them: pairs of several ranks are merged in one round."""
    chance, vocabulary = random.Random(4), load(name)
    letters = "".join(chance.choices("etaoinshrdlucmfw", k=2500))
    marks = "".join(chance.choice("-=_*#./") * chance.randint(1, 9) for _ in range(500))
    texts = [letters, marks, "".join(sorted(letters))]
    tokens = [
        token.decode() for token in vocabulary.tokens[300:20_000] if token and token.isalpha()
    ]
    texts.append("".join(chance.choices(tokens, k=600)))
    assert check_long_pieces(vocabulary, texts).pieces >= 3
