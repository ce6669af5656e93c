"""Augmentation: known random numbers, and rows that depend on seed, number and letters alone."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocabularies.sequences.augmentation import Augmentation, augment, philox

ROWS = st.lists(st.text("ACGTNacgt-", max_size=30), max_size=6)


def rows_of(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([0, *map(len, texts)]).astype(np.int64)
    return np.frombuffer("".join(texts).encode(), np.uint8), offsets


def made(texts: list[str], augmentation: Augmentation) -> list[str]:
    data, offsets = augment(*rows_of(texts), augmentation)
    text = data.tobytes().decode()
    return [text[begin:end] for begin, end in pairwise(offsets)]


def test_philox_gives_the_published_numbers():
    ones, pi = [0xFFFFFFFF] * 4, [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]
    for seed, counter, wanted in (
        (0, [0] * 4, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ((1 << 64) - 1, ones, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (0x299F31D0A4093822, pi, [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]),
    ):
        assert philox(seed, np.array(counter, np.uint64)).tolist() == wanted


@given(ROWS, st.integers(0, 2**64 - 1), st.none() | st.integers(1, 9), st.floats(0, 1))
def test_rows_do_not_depend_on_their_batch(texts, seed, crop, rate):
    together = made(texts, Augmentation(seed, crop, rate, 7))
    alone = [made([t], Augmentation(seed, crop, rate, 7 + i))[0] for i, t in enumerate(texts)]
    assert together == alone


@given(ROWS, st.integers(0, 2**64 - 1), st.integers(1, 9))
def test_a_part_is_a_part_of_its_row(texts, seed, crop):
    for text, part in zip(texts, made(texts, Augmentation(seed, crop)), strict=True):
        assert len(part) == min(len(text), crop)
        assert part in text


@given(ROWS, st.integers(0, 2**64 - 1), st.integers(1, 9))
def test_letters_are_substituted_before_a_row_is_cut(texts, seed, crop):
    whole = made(texts, Augmentation(seed, None, 0.5))
    for text, part in zip(whole, made(texts, Augmentation(seed, crop, 0.5)), strict=True):
        assert part in text


def test_every_letter_becomes_each_other_one_and_every_crop_occurs():
    (text,) = made(["ACGTacgtNn" * 3000], Augmentation(3, None, 1.0))
    for place, letter in enumerate("ACGTacgtNn"):
        others = "acgt" if letter.islower() else "ACGT"
        wanted = {letter} if letter in "Nn" else set(others) - {letter}
        assert set(text[place::10]) == wanted
    changed = sum(
        a != b for a, b in zip(*made(["A" * 40_000] * 2, Augmentation(1, None, 0.3)), strict=True)
    )
    assert 17_000 < changed < 21_000  # 2 * 0.3 * 0.7 + 0.3 * 0.3 * 2 / 3 = 0.48 of 40,000.
    parts = made(["ACGTNRY"] * 500, Augmentation(9, 3))
    assert set(parts) == {"ACG", "CGT", "GTN", "TNR", "NRY"}


def test_what_is_out_of_range_is_refused():
    for wrong in ({"seed": -1}, {"seed": 1 << 64}, {"seed": 0, "first_row": -1}):
        with pytest.raises(ValueError, match="must be"):
            Augmentation(**wrong)
    for crop, rate in ((0, 0.0), (1, -0.1), (1, 1.1), (1, float("nan"))):
        with pytest.raises(ValueError, match="must be"):
            Augmentation(0, crop, rate)
    for wrong in ({"seed": 1.5}, {"seed": 1, "crop_letters": 2.0}, {"seed": "1"}):
        with pytest.raises(TypeError):
            Augmentation(**wrong)
    assert Augmentation(np.uint64(1 << 63), np.int8(5)) == Augmentation(1 << 63, 5)
