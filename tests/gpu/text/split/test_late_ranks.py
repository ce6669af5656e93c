"""Ranks whose merges may give pairs of lower ones: all pairs of such a rank are a round.

In windows and in pieces that are merged whole, on the emulated device, against the reference.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu.engine import GpuEngine
from gpu.errors import NotCovered
from gpu.kernels.job import constant
from gpu.text import bpe_tables as tables
from gpu.text.bpe_tables import bpe_tables
from tests.gpu.text.check_ids import check_long_pieces
from tests.gpu.text.random_vocabularies import SEEDS, doubled, vocabulary_of
from tests.gpu.text.split.test_whole_piece import check as check_whole
from tests.support.emulation.device import EmulatedDevice
from vocabularies.batch.batch import Batch
from vocabularies.reference.tokenizer import encode

LATE = [(b"ab", b"c"), (b"d", b"ab"), (b"a", b"b")]
"""ab is made last of all, but in front of c and behind d."""
STEPS = 3
"""To begin, to ask whether a pair of the late rank is loud, and to merge all; the last one ends."""


@pytest.mark.slow
def test_a_late_rank_is_one_round():
    """Pairs that stay as they are, and some that grow on either side."""
    vocabulary = vocabulary_of(LATE)
    assert bpe_tables(vocabulary, 1).rank_bounds[2] == 0
    texts = ["ab" * 512, "ab" * 200 + "c" + "ab" * 200, "xdabx" * 3 + "ab" * 300]
    texts += ["dabc" * 90 + "ab", "c" * 40 + "dab"]
    for text in texts:
        assert check_whole(vocabulary, [text], 3) <= STEPS
    cut = check_long_pieces(vocabulary, [text * 9 for text in texts])
    assert cut.pieces == len(texts)


def test_a_pair_that_merges_with_its_like_is_loud():
    """In "abababx" the first two pairs merge before the third, which x and then ab would take."""
    merges = [(b"ab", b"abx"), (b"ab", b"x"), (b"ab", b"ab"), (b"a", b"b")]
    vocabulary = vocabulary_of(merges)
    check_whole(vocabulary, ["abababx", "ab", "xababababx" * 40], 2)
    check_long_pieces(vocabulary, ["abababx" * 40, "abababx" * 900])


def test_a_pair_is_loud_that_merges_with_nothing_but_its_like():
    """In "ababab" two of them merge, and then with a, before the third is made."""
    vocabulary = vocabulary_of([(b"abab", b"a"), (b"ab", b"ab"), (b"a", b"b")])
    check_whole(vocabulary, ["ababab", "ab", "xababab" * 100], 2)
    check_long_pieces(vocabulary, ["ababab" * 40, "cababab" * 900])


def test_pairs_of_a_late_rank_that_overlap_are_one_round():
    """In "aaaa" each pair has this rank, and so has what remains after the first three letters."""
    vocabulary = vocabulary_of([(b"aa", b"a"), (b"a", b"a")])
    texts = ["a" * 1024, "a" * 500 + "b" + "a" * 32 + "b" + "a" * 70]
    for text in texts:
        assert check_whole(vocabulary, [text], 3) <= STEPS
    check_long_pieces(vocabulary, [*texts, "a" * 5000 + "b" * 100 + "a" * 130])


def test_a_piece_that_is_merged_as_a_whole_has_late_ranks_too(monkeypatch):
    """Its tokens are longer than a window's step, so that no window agrees with the next one."""
    monkeypatch.setattr(tables, "MAX_LATE_TOKEN", 1 << 20)
    merges = [*doubled(b"abcde", 8), (b"uv", b"uvx"), (b"uv", b"x"), (b"uv", b"uv"), (b"u", b"v")]
    unit = "abcde" * 700
    texts = [unit + "uv" * 300 + "x" + "uv" * 99, unit + "uvuvuvx" * 50 + unit]
    cut = check_long_pieces(vocabulary_of(merges), texts)
    assert (cut.pieces, cut.whole) == (2, 2)


@pytest.mark.parametrize("number", [3000, 10_000])
@pytest.mark.slow
def test_long_whole_pieces_whose_pairs_are_loud_are_not_covered(number):
    """One thread merges such pairs, so that it may have few bytes to go through."""
    units = [b"ab", b"cd", b"ef"]
    merges = [merge for unit in units for merge in doubled(unit, 6)]
    merges += [(b"uv", b"uvx"), (b"uv", b"x"), (b"uv", b"uv"), (b"u", b"v")]
    seams = "".join((unit.decode() * 500)[:500] for unit in units * 8)
    vocabulary, text = vocabulary_of(merges), seams + "uvuvuvx" * number
    made = GpuEngine(EmulatedDevice(), 1 << 28)
    if len(text) > constant("MOST_GROWN"):
        with pytest.raises(NotCovered, match="a long piece merges out of order"):
            made.encode(vocabulary, Batch([text]))
    else:
        assert made.encode(vocabulary, Batch([text])).ids.tolist() == encode(vocabulary, text).ids
    made.close()


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, is_long=st.booleans())
def test_late_ranks_have_the_ids_of_the_reference(seed, is_long):
    """Pairs that merge with their neighbours before their like, at random."""
    chance = random.Random(seed)
    merges = [
        (b"a", b"b"),
        (b"b", b"a"),
        (b"c", b"ab"),
        (b"ab", b"c"),
        (b"ab", b"ab"),
        (b"ba", b"b"),
    ]
    merges += [(b"abab", b"ab"), (b"ab", b"abc"), (b"cab", b"ab"), (b"a", b"a"), (b"aa", b"b")]
    merges = chance.sample(merges, chance.randint(4, len(merges)))
    known = {b"a", b"b", b"c"} | {left + right for left, right in merges}
    while any(not {left, right} <= known for left, right in merges):
        merges = [merge for merge in merges if set(merge) <= known]
        known = {b"a", b"b", b"c"} | {left + right for left, right in merges}
    units = ["ab", "abc", "cab", "aab", "abab", "c", "ababc", "b", "a"]
    parts = [chance.choice(units) * chance.choice([1, 1, 2, 9]) for _ in range(400)]
    text = "".join(parts)
    if is_long:
        check_long_pieces(vocabulary_of(merges), [text, chance.choice(units) * 300])
    else:
        texts = [text[: chance.randint(1, 1024)] for _ in range(4)]
        check_whole(vocabulary_of(merges), texts, chance.choice([1, 3, 40]))
