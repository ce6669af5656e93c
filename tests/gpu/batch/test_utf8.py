"""Which rows are not UTF-8, and from which byte on: the emulated device against bytes.decode."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu.kernels.job import constant
from tests.support.emulation.kernels import launch, make_job
from tests.support.inputs.nasty_texts import TEXTS

BLOCK, NO_BYTE = constant("BLOCK"), constant("NO_BYTE")
LEADS = (0x00, 0x7F, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF)
LEADS += (0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF)
FOLLOWERS = (0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xE1)


def first_bad_bytes(rows: Sequence[bytes]) -> list[int]:
    """The place in each row, -1 where there is none."""
    begins = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    text = np.frombuffer(b"".join(rows) + b"\x80\xbf" * 32, np.uint8)
    num_bytes = int(begins[-1])
    hard = np.zeros(-(-num_bytes // 64) * 64, bool)
    hard[begins[begins < num_bytes]] = True
    words = np.packbits(hard, bitorder="little").view(np.uint64)
    errors = np.zeros(len(rows), np.uint32)
    arrays = {"text": text, "row_begins": begins, "hard": words, "row_errors": errors}
    job = make_job(**arrays, num_bytes=num_bytes, num_rows=len(rows))
    launch("clear_faults", 1, BLOCK, job)
    launch("validate", 2, BLOCK, job)
    return np.where(errors == NO_BYTE, -1, errors - begins[:-1]).tolist()


def expected(row: bytes) -> int:
    try:
        row.decode()
    except UnicodeDecodeError as error:
        return error.start
    return -1


def check(rows: Sequence[bytes]) -> None:
    assert first_bad_bytes(rows) == [expected(row) for row in rows]


def test_every_two_bytes() -> None:
    check([bytes(pair) for pair in itertools.product(range(256), repeat=2)])


@pytest.mark.parametrize("first", LEADS[2:])
def test_every_kind_of_four_bytes(first: int) -> None:
    rest = itertools.product((*LEADS, *FOLLOWERS), FOLLOWERS, FOLLOWERS)
    check([bytes((first, *three)) for three in rest])


def test_every_character() -> None:
    text = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    assert first_bad_bytes([text.encode()]) == [-1]


@pytest.mark.parametrize("character", ["é", "中", "\U0001f600"])
def test_a_character_that_is_cut_off_by_its_rows_end(character: str) -> None:
    spelled = character.encode()
    for cut in range(1, len(spelled)):
        for length in (0, 1, 13, 14, 15, 16, 61, 62, 63, 64, 4093, 4094, 4095, 4096):
            check([b"a" * length + spelled[:cut], spelled[cut:] + b"b", b"", character.encode()])


@pytest.mark.parametrize("lead", [b"\xc3", b"\xe4", b"\xf0"])
def test_a_lead_does_not_reach_into_the_next_row(lead: bytes) -> None:
    for length in (0, 14, 15, 62, 63):
        rows = [b"a" * length + lead, b"\x80", lead, b"A\x80", lead, b"AB\x80", lead, b"ABC\x80"]
        check(rows)
        check([lead, b"A", b"B", b"\x80", lead, b"", b"A", b"\x80"])


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 4095, 4096, 4097])
def test_a_row_of_bytes_that_are_all_bad(length: int) -> None:
    for byte in (0x80, 0xC3, 0xFF):
        check([bytes([byte]) * length, b"good", bytes([byte]) * length])


@pytest.mark.parametrize("text", TEXTS)
def test_texts_with_one_byte_changed(text: str) -> None:
    source, data = random.Random(text), text.encode()[:3000]
    rows = [data]
    for _ in range(30 if data else 0):
        changed = bytearray(data)
        changed[source.randrange(len(data))] = source.randrange(256)
        rows.append(bytes(changed))
    check(rows)


@settings(max_examples=200)
@given(
    rows=st.lists(
        st.lists(
            st.one_of(
                st.text(max_size=9).map(str.encode),
                st.binary(max_size=5),
                st.lists(st.sampled_from(LEADS + FOLLOWERS), max_size=9).map(bytes),
                st.integers(0, 70).map(lambda length: b"a" * length),
            ),
            max_size=6,
        ).map(b"".join),
        min_size=1,
        max_size=9,
    )
)
def test_random_rows(rows: list[bytes]) -> None:
    check(rows)
