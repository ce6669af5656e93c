"""Cutting long pieces on the emulated device against the reference: all levels, any ranks."""

from __future__ import annotations

import random
from dataclasses import dataclass
from string import ascii_letters, ascii_lowercase

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu.batch.transfer import STATUS, fetch, launch, pack_rows, status_of
from gpu.engine import GpuEngine
from gpu.kernels.families import encode_kernels
from gpu.kernels.job import constant
from gpu.text.bpe_tables import bpe_tables
from tests.gpu.text.test_merge import SEEDS, vocabulary_of
from tests.support.emulated_device import EmulatedDevice
from vocabularies.builtin import load
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference.tokenizer import encode

MAX_TOKEN, PART_BYTES = 40, constant("PART_BYTES")


@dataclass
class Cut:
    """Pieces, seams, bridges that lead past windows and lost ones; pieces and bytes of level 2."""

    pieces: int
    seams: int
    past: int
    lost: int
    whole: int
    whole_bytes: int


def check(vocabulary: Vocabulary, texts: list[str], *, few: bool = True) -> Cut:
    """Every text, a piece of its own, has the ids that the reference gives it.

    `few`: by the kernels of a batch of few tiles, else by those of others.
    """
    made = GpuEngine(EmulatedDevice(), 1 << 27)
    data = np.frombuffer("".join(texts).encode(), np.uint8)
    offsets = np.cumsum([0, *(len(text.encode()) for text in texts)]).astype(np.int64)
    with (
        made.residents.using(vocabulary) as resident,
        made.workspaces.lend(len(data), len(texts)) as workspace,
    ):
        pack_rows(workspace, resident, data, offsets, made.processors)
        launch(
            workspace,
            encode_kernels(resident.family, num_rounds=resident.num_rounds, few=few),
            made.processors,
        )
        ids = fetch(workspace, "ids", np.int32, int(status_of(workspace)[STATUS["NUM_IDS"]]))
        ends = fetch(workspace, "id_offsets", np.int64, len(offsets))
        counts = fetch(workspace, "window_counts", np.uint64, 7).tolist()
    made.close()
    for i, text in enumerate(texts):
        assert ids[ends[i] : ends[i + 1]].tolist() == encode(vocabulary, text).ids, text[:200]
    (_, pieces), (seams, past), (whole_bytes, whole) = (
        (count & (1 << 40) - 1, count >> 40) for count in counts[:3]
    )
    return Cut(pieces, seams, past, counts[6], whole, whole_bytes)


def doubled(unit: bytes, times: int) -> list[tuple[bytes, bytes]]:
    """Merges that give `unit`, and that one twice, four times ... up to 2 ** times."""
    merges = [(unit[:i], unit[i : i + 1]) for i in range(1, len(unit))]
    return merges + [(unit * 2**i, unit * 2**i) for i in range(times)]


def random_merges(chance: random.Random, letters: str, number: int) -> list[tuple[bytes, bytes]]:
    """Merges in the order of training; now and then several give one token."""
    symbols = [letter.encode() for letter in letters]
    merges: list[tuple[bytes, bytes]] = []
    for _ in range(number):
        pair = chance.choice(symbols), chance.choice(symbols[-6:])
        pair = pair[::-1] if chance.random() < 0.5 else pair
        if len(pair[0] + pair[1]) <= MAX_TOKEN and pair not in merges:
            merges.append(pair)
            symbols.append(pair[0] + pair[1])
    return merges


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
    check(vocabulary_of(merges), texts_of(chance, letters))


@pytest.mark.parametrize("unit", ["a", "ab", "abc", "abcd", "─", "é", "😀"])
@pytest.mark.parametrize("times", [0, 1, 4, 6])
def test_runs_end_at_level_1(unit, times):
    """Tokens of 2^k letters of one to four bytes: bridges slide along them."""
    vocabulary = vocabulary_of(doubled(unit.encode(), times))
    texts = [(unit * size)[:size] for size in (129, 340, 512, 1000, 1023, 1024, 1026, 2049, 5000)]
    cut = check(vocabulary, texts)
    assert cut.pieces > 0 or (times == 0 and len(unit) < len(unit.encode()))
    assert cut.whole == 0


@pytest.mark.parametrize("times", [1, 2, 3, 6])
def test_a_period_of_a_few_letters_is_cut_by_bridges(times):
    texts = ["abcde" * 900, "cdeab" * 500 + "a", "abcde" * 7000, "abcde" * 4000 + "ba"]
    cut = check(vocabulary_of(doubled(b"abcde", times)), texts)
    assert (cut.pieces, cut.whole) == (4, 0)


def test_a_bridge_slides_along_tokens_of_more_than_64_bytes():
    """Of 64 blanks, 79 and a line break: the first two look the same for 64 bytes."""
    cut = check(load("cl100k_base"), [(" " * 143 + "\n") * 304])
    assert (cut.pieces, cut.seams, cut.whole) == (1, 1, 0)


@pytest.mark.parametrize("period", [33, 37, 50, 51])
def test_a_period_that_a_window_has_three_times_is_cut_by_bridges(period):
    """No window inside agrees with the next one: bridges slide along, wherever a run begins."""
    chance, unit = random.Random(period), ascii_letters[:period]
    vocabulary = vocabulary_of(doubled(unit.encode(), 3))
    parts = [unit * (9000 // period), "".join(chance.choices(ascii_letters, k=300)), unit * 90]
    texts = [unit * (5000 // period), unit[2:] + parts[0] + "a", "".join(parts)]
    cut = check(vocabulary, texts)
    assert (cut.pieces, cut.whole) == (3, 0)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.slow
def test_a_longer_period_that_no_window_agrees_on_is_encoded_whole(seed):
    """Of which a window does not have three, and the bridges of which do not meet."""
    chance, letters = random.Random(seed), [chr(33 + number) for number in range(94)]
    unit = "".join(chance.sample(letters, 94) + chance.sample(letters, 94))[:165]
    texts = [unit * 96]
    cut = check(vocabulary_of(doubled(unit.encode(), 1)), texts)
    assert (cut.pieces, cut.whole, cut.whole_bytes) == (1, 1, len(texts[0]))


@pytest.mark.slow
def test_a_piece_of_which_most_bridges_are_lost_is_given_up():
    """The others of it are not built, those of another piece are."""
    chance, letters = random.Random(2), [chr(33 + number) for number in range(94)]
    unit = "".join(chance.sample(letters, 94) + chance.sample(letters, 94))[:170]
    cut = check(vocabulary_of(doubled(unit.encode(), 2)), [unit * 160, unit[1:] * 5, unit * 90])
    assert (cut.pieces, cut.whole) == (3, 2)
    assert 64 < cut.lost < cut.seams // 2


@pytest.mark.parametrize("shift", [1, 2, 3, 5, 31, 200, 801, 1023])
def test_a_run_amid_other_letters_is_cut_by_bridges(shift):
    """Windows that begin in the run at an odd place do not meet the one in which it begins."""
    chance = random.Random(shift)
    merges = doubled(b"a", 6) + random_merges(chance, "bcd", 30)
    front, back = ("".join(chance.choice("bcd") for _ in range(size)) for size in (shift, 3000))
    texts = [front + "a" * 2500 + back + "a" * 999 + back[:500] + "a" * 1100 + "b"]
    cut = check(vocabulary_of(merges), texts)
    assert (cut.pieces, cut.whole) == (1, 0)


@pytest.mark.parametrize("unit", ["a", "bcd", "ab"])
def test_a_bridge_goes_over_to_windows_of_level_0_again(unit):
    """Runs that no window agrees on, far from each other: what is between them is kept."""
    chance = random.Random(7)
    merges = doubled(unit.encode(), 5) + random_merges(chance, "xyz", 30)
    texts = []
    for size in (9000, 20_000, 40_001):
        sizes = [chance.randint(1, size) for _ in range(4)]
        parts = ["".join(chance.choice("xyzw") for _ in range(size)) for size in sizes]
        texts.append((unit * 900).join(parts))
    cut = check(vocabulary_of(merges), texts)
    assert (cut.pieces, cut.whole) == (3, 0)


@pytest.mark.parametrize("times", [8, 9])
def test_tokens_of_more_than_a_window_s_step_are_merged_as_a_whole(times):
    texts = ["abcde" * 900, "e" + "abcde" * 1111]
    cut = check(vocabulary_of(doubled(b"abcde", times)), texts)
    assert (cut.pieces, cut.whole, cut.whole_bytes) == (2, 2, sum(map(len, texts)))


@pytest.mark.parametrize("size", [129, 1024, 1025, 1793, 2600])
def test_a_new_pair_of_lower_rank_is_merged_before_the_rest(size):
    """Of "aaaaa" aa is merged once: then (aa, a) is lower, and then (aaa, a)."""
    lower = [(b"aaa", b"a"), (b"aa", b"a"), (b"a", b"a"), (b"aaaa", b"c"), (b"aaaa", b"aaaa")]
    texts = ["a" * size, "a" * (size - 1) + "c", "aac" * (size // 3), "aaaac" * (size // 5)]
    for merges in (lower, lower[::-1], [*lower[1:], lower[0]]):
        check(vocabulary_of(merges), texts)


def test_merges_in_any_order_reach_every_level():
    """Each letter of "abcdeabcde" joins the token before it, which is made last."""
    merges = doubled(b"abcde", 2)
    shuffled = [merges[i] for i in (3, 0, 5, 2, 4, 1)]
    assert not bpe_tables(vocabulary_of(shuffled), 1).rank_bounds.all()
    assert bpe_tables(vocabulary_of(merges), 1).rank_bounds.all()
    cut = check(vocabulary_of(shuffled), ["abcde" * 500, "eabcd" * 300])
    assert cut.pieces == 2
    cut = check(vocabulary_of([merges[0], *merges[2:], merges[1]]), ["abcde" * 500])
    assert cut.pieces == 1


@pytest.mark.parametrize("size", [2048, 32 * 64 * 3, 200_000])
def test_a_piece_after_a_long_gap_begins_where_it_does(size):
    """A piece's end is looked for in steps; the next one begins in any word behind it."""
    vocabulary = vocabulary_of(doubled(b"a", 6))
    for end in (size, size + 63, size + 64, size + 64 * 31 + 5):
        cut = check(vocabulary, ["a" * end, "b" * 5, "a" * 130, "b"])
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
    check(vocabulary_of(merges), [runs_of(chance, letters, size) for size in (300, 2000, 12_000)])


@pytest.mark.parametrize("size", [500, 700, 999])
def test_long_runs_behind_each_other_are_cut_by_bridges(size):
    """Windows begin amid one run and end in the next: where they do not meet, bridges lead on."""
    units = [b"ab", b"cd", b"ef"]
    vocabulary = vocabulary_of([merge for unit in units for merge in doubled(unit, 6)])
    cut = check(vocabulary, ["".join((unit.decode() * size)[:size] for unit in units * 8)])
    assert cut.seams > 10
    assert cut.whole == 0


@pytest.mark.parametrize(
    ("seed", "number", "size"),
    [(1, 24, 300), (1, 24, 700), (6, 24, 700), (3, 9, PART_BYTES)],
)
def test_a_bridge_leads_past_a_window_that_begins_wrong(seed, number, size):
    """Which letters merge between two runs depends on how many of the first are left over.

    What the bridge of that window cut is dropped.
    """
    chance = random.Random(seed)
    runs = (chance.choice(ascii_lowercase) * chance.randint(size, 3 * size) for _ in range(number))
    cut = check(load("gpt2"), ["".join(runs)])
    assert cut.past > 0
    assert cut.whole == 0


@pytest.mark.parametrize("length", [60, 150, 300, 800])
@pytest.mark.parametrize("letters", [" \n\t", "-=_*#.", "etaoin"])
def test_runs_of_published_vocabularies_are_cut_by_bridges(letters, length):
    """Windows that begin where a run's tokens do meet, but for letters that merge across runs."""
    chance = random.Random(length)
    runs = (chance.choice(letters) * chance.randint(length // 2, 2 * length) for _ in range(60))
    cut = check(load("cl100k_base"), ["".join(runs)])
    assert cut.whole == 0
    assert cut.seams <= (25 if letters == "etaoin" else 1)


@pytest.mark.parametrize("unit", ["a", "abc", "abcdefg"])
def test_long_runs_are_repeated_by_all(unit):
    """Runs of several times PART_BYTES, at odd places, and bridges that a detour builds again."""
    chance = random.Random(11)
    merges = doubled(unit.encode(), 4) + random_merges(chance, "xyz", 30)
    runs = [(unit * size)[:size] for size in (5 * PART_BYTES + 77, 2 * PART_BYTES + 5, 9001)]
    between = ["".join(chance.choice("xyz") for _ in range(size)) for size in (1, 333, 70)]
    texts = ["".join(front + run for front, run in zip(between, runs, strict=True)), runs[0]]
    cut = check(vocabulary_of(merges), texts)
    assert (cut.pieces, cut.whole) == (2, 0)


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
    assert check(vocabulary, texts).pieces >= 3
