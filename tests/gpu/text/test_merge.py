"""Merging on the emulated device against the reference: random vocabularies, all lengths."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu.text.bpe_tables import bpe_tables
from tests.gpu.text.check_ids import check_pieces, engine
from tests.gpu.text.random_vocabularies import (
    MAX_TOKEN,
    SEEDS,
    text_of,
    vocabularies,
    vocabulary_of,
)
from vocabularies.reference.bpe import BpeRules, Symbol, make_bpe_rules, merge

LETTERS = ["a", "b", "-", "é", "中"]
BORDERS = [
    *range(1, 10),
    12,
    13,
    *(size + i for size in (16, 32, 64, 128) for i in (-1, 0, 1)),
    140,
]


@settings(max_examples=80)
@given(data=st.data(), seed=SEEDS)
def test_pieces_of_all_lengths_have_the_ids_of_the_reference(data, seed):
    chance = random.Random(seed)
    letters = data.draw(st.lists(st.sampled_from(LETTERS), min_size=2, max_size=4, unique=True))
    vocabulary = data.draw(vocabularies(letters))
    lengths = [*BORDERS, *(chance.randint(1, 140) for _ in range(data.draw(st.integers(0, 120))))]
    chance.shuffle(lengths)
    with engine() as made:
        check_pieces(made, vocabulary, [text_of(chance, letters, length) for length in lengths])


@pytest.mark.parametrize("unit", ["-", "ab", "aab", "é", "a-b-"])
def test_runs_merge_from_the_left(unit):
    powers = [(b"-" * 2**i, b"-" * 2**i) for i in range(5)]
    others = [
        (b"a", b"b"),
        (b"ab", b"ab"),
        (b"a", b"a"),
        (b"\xc3", b"\xa9"),
        (b"\xc3\xa9", b"\xc3\xa9"),
    ]
    vocabulary = vocabulary_of([*powers, *others, (b"b", b"-"), (b"-", b"b")])
    with engine() as made:
        check_pieces(made, vocabulary, [(unit * 140)[:length] for length in range(1, 141)])


def run_merges(chance: random.Random, letter: bytes) -> list[tuple[bytes, bytes]]:
    """Merges that give runs of a letter, four of them among these."""
    merges, sizes = [(letter, letter), (letter * 2, letter * 2)], [1, 2, 4]
    for _ in range(chance.randint(0, 8)):
        left, right = chance.choice(sizes), chance.choice(sizes[-3:])
        pair = letter * left, letter * right
        if left + right <= MAX_TOKEN and pair not in merges:
            merges.append(pair)
            sizes.append(left + right)
    return merges


def merges_of_runs(chance: random.Random, letters: list[str]) -> list[tuple[bytes, bytes]]:
    """Runs of some letters; merges of them with what is beside them, earlier or later; others."""
    chosen = [letter.encode() for letter in letters[:2] if letter.isascii()]
    merges = [pair for letter in chosen for pair in run_merges(chance, letter)]
    symbols = [left + right for left, right in merges]
    symbols += [bytes([byte]) for letter in letters for byte in letter.encode()]
    for _ in range(chance.randint(0, 12)):
        pair = chance.choice(symbols), chance.choice(symbols)
        if len(pair[0] + pair[1]) <= MAX_TOKEN and pair not in merges:
            late = chance.random() < 0.6
            merges.insert(len(merges) if late else chance.randint(0, len(merges)), pair)
            symbols.append(pair[0] + pair[1])
    if chance.random() < 0.25:
        chance.shuffle(merges)
    others = [(bytes([65 + i % 26]), bytes([65 + i // 26])) for i in range(4 * len(merges))]
    return merges + others[: chance.choice([0, len(merges), len(others)])]


@settings(max_examples=60)
@given(seed=SEEDS)
def test_runs_begin_merged_only_where_nothing_beside_them_merges_earlier(seed):
    chance = random.Random(seed)
    letters = chance.choice([["-", "=", " "], ["-", "a", "|", "é"], ["-", "é"]])
    sizes = [1, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 20, 33, 50, 100]
    texts = []
    for _ in range(60):
        text = "".join(chance.choice(letters) * chance.choice(sizes) for _ in range(40))
        whole = text.encode()[: chance.randint(33, 128)]
        texts.append(whole.decode(errors="ignore"))
    with engine() as made:
        check_pieces(made, vocabulary_of(merges_of_runs(chance, letters)), texts)


@settings(max_examples=30)
@given(seed=SEEDS)
def test_rows_of_runs_are_what_the_first_quarter_of_the_merges_gives(seed):
    chance = random.Random(seed)
    vocabulary = vocabulary_of(merges_of_runs(chance, ["-", "=", "a"]))
    rules = make_bpe_rules(vocabulary)
    last = max(rank for rank, _ in rules.merges.values())
    early = {pair: found for pair, found in rules.merges.items() if found[0] < last // 4}
    tables = bpe_tables(vocabulary, 1)
    for byte in np.flatnonzero(tables.run_numbers).tolist():
        for i, row in enumerate(tables.run_rows[tables.run_numbers[byte] - 1]):
            length = 4 + i
            symbols = [Symbol(rules.token_ids[bytes([byte])], at, at + 1) for at in range(length)]
            merged = merge(symbols, BpeRules(early, rules.token_ids))
            if len(merged) > 12:
                assert not row[:12].any()
                continue
            found = [(word >> 22, tables.symbol_ids[word & 0x3FFFFF]) for word in row[:12] if word]
            assert found == [(end - begin, token_id) for token_id, begin, end in merged]
            pairs = itertools.pairwise(merged)
            ranks = [rules.merges.get((a.id, b.id), (0xFFFFFFFF,))[0] for a, b in pairs]
            assert row[12 : 12 + len(ranks)].tolist() == ranks


def test_a_new_pair_of_lower_rank_is_merged_before_the_rest_of_a_run():
    """In "aaaac" aa is merged once: then (aa, a) has a lower rank, and then (aaa, a)."""
    lower = [(b"aaa", b"a"), (b"aa", b"a"), (b"a", b"a"), (b"aaaa", b"c")]
    with engine() as made:
        for merges in (lower, lower[::-1], [lower[1], lower[2], lower[0]]):
            texts = ["a" * length + end for length in range(1, 139) for end in ("", "c")]
            check_pieces(made, vocabulary_of(merges), texts)


@pytest.mark.slow
def test_more_pieces_of_every_length_than_there_are_warps():
    chance = random.Random(1)
    merges = [(b"a", b"b"), (b"ab", b"a"), (b"b", b"b"), (b"aba", b"bb"), (b"a", b"a")]
    sizes = [4, 8, 12, 16, 24, 32, 64, 128]
    texts = [
        text_of(chance, ["a", "b"], chance.randint(size // 2 + 1, size)) for size in sizes * 1200
    ]
    with engine() as made:
        check_pieces(made, vocabulary_of(merges), texts)
