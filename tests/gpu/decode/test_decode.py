"""Ids to bytes on the emulated device against the CPU's decoding."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu.errors import NotCovered
from gpu.kernels.job import constant
from gpu.vocabulary.decode_table import decode_table
from service.engines.cpu.decode import decode_rows
from tests.support.emulation.kernels import launch, make_job
from vocabularies.model.tables import token_table
from vocabularies.model.types import Bpe, SpecialToken, Upstream
from vocabularies.model.vocabulary import Vocabulary

BLOCK, NO_BYTE = constant("BLOCK"), constant("NO_BYTE")
DECODE_TILE = constant("DECODE_TILE")
LENGTHS = [*range(1, 40), 63, 64, 65, 128, 255, 3000]


def spelled(length: int) -> bytes:
    return bytes((i * 7 + length) % 251 for i in range(length))


SPECIAL = (SpecialToken("<|end|>", 47), SpecialToken("<tool>", 48, special=False))
VOCABULARY = Vocabulary(
    (*map(spelled, LENGTHS), None, None, b"<|end|>", b"<tool>", "<|ein längeres|>".encode()),
    Bpe((), byte_level=False),
    special_tokens=(*SPECIAL, SpecialToken("<|ein längeres|>", 49)),
)
HOLE, END = 46, 47


def run(
    rows: Sequence[Sequence[int]], skip: bool, dtype: type, room: int = 0, blocks: int = 2
) -> tuple[bytes, list[int], dict[int, int]]:
    """Text, offsets and the place of the first wrong id of each row that has one."""
    tokens = token_table(VOCABULARY)
    ids = np.array([i for row in rows for i in row], dtype)
    offsets = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    known = np.clip(ids.astype(np.int64), 0, len(VOCABULARY) - 1)
    capacity = int(np.maximum(tokens.lengths[known], 0).sum()) + room
    memory = np.full(max(0, capacity) + 32, 0xEE, np.uint8)
    begin = -memory.ctypes.data % 16
    arrays = {
        "token_table": decode_table(VOCABULARY),
        "token_bytes": np.concatenate([tokens.data, np.zeros(16, np.uint8)]),
        "decode_ids": ids,
        "decode_offsets": offsets,
        "decode_states": np.zeros(2 * (len(ids) // DECODE_TILE + 2), np.uint64),
        "decode_faults": np.zeros(1, np.uint32),
        "decoded": memory[begin : begin + max(0, capacity)],
        "decoded_offsets": np.full(len(rows) + 1, -1, np.int64),
        "row_errors": np.zeros(len(rows), np.uint32),
    }
    numbers = {
        "num_rows": len(rows),
        "num_ids": len(VOCABULARY),
        "num_decode_ids": len(ids),
        "decode_wide": dtype is np.int64,
        "skip_special": skip,
        "decoded_capacity": max(0, capacity),
    }
    job = make_job(**arrays, **numbers)
    for name in ("clear_faults", "decode_spell", "decode_spell_again"):
        launch(name, blocks, BLOCK, job)
    total = int(arrays["decoded_offsets"][-1])
    assert (memory[:begin] == 0xEE).all() and (memory[begin + max(0, capacity) :] == 0xEE).all()
    errors = arrays["row_errors"]
    wrong = {int(row): int(errors[row] - offsets[row]) for row in np.flatnonzero(errors != NO_BYTE)}
    return arrays["decoded"][:total].tobytes(), arrays["decoded_offsets"].tolist(), wrong


def check(
    rows: Sequence[Sequence[int]], skip: bool = False, dtype: type = np.int64, blocks: int = 2
) -> None:
    ids = np.array([i for row in rows for i in row], np.int64)
    offsets = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    expected = decode_rows(VOCABULARY, token_table(VOCABULARY), ids, offsets, skip)
    data, ends, wrong = run(rows, skip, dtype, blocks=blocks)
    assert data == expected.data.tobytes()
    assert ends == expected.offsets.tolist()
    assert wrong == {row: int(e.where[4:-1]) for row, e in expected.errors.items()}


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 1023, 1024, 1025, 2047, 2048, 4097])
def test_rows_around_the_borders_of_tiles(dtype: type, length: int) -> None:
    source = random.Random(length)
    rows = [source.choices(range(46), k=length), [], source.choices(range(46), k=3), []]
    check(rows, dtype=dtype)
    check([[], *rows[1:], rows[0]], dtype=dtype, blocks=5)


@pytest.mark.parametrize("token_id", [0, 11, 12, 38, 45])
def test_one_token_again_and_again(token_id: int) -> None:
    check([[token_id] * n for n in (1, 15, 16, 17, 1500 if token_id < 45 else 90)])


def test_special_tokens_are_left_out() -> None:
    rows = [[47, 0, 47, 47, 48, 1, 49], [47], [], [49] * 2000, [5, *[47] * 1500, 5], [47, 48]]
    check(rows, skip=True)
    check(rows, skip=False)


@pytest.mark.parametrize("wrong", [-1, -(1 << 31), HOLE, 50, (1 << 31) - 1])
def test_ids_that_mean_nothing(wrong: int) -> None:
    rows = [[0, 1, wrong, 2, wrong], [3] * 2000, [], [wrong], [4] * 3000 + [wrong], [5, 47]]
    for dtype in (np.int32, np.int64):
        check(rows, dtype=dtype)
        check(rows, skip=True, dtype=dtype)


@pytest.mark.parametrize("wrong", [1 << 32, (1 << 32) + 3, -(1 << 63), (1 << 63) - 1])
def test_ids_that_mean_nothing_though_their_lower_half_would(wrong: int) -> None:
    check([[0, wrong], [1]])


def test_nothing_is_written_where_there_is_too_little_room() -> None:
    rows = [[1, 2, 3], [38] * 20]
    data, offsets, _ = run(rows, False, np.int64, room=-1)
    assert offsets == [0, 9, 9 + 39 * 20]
    assert set(data) == {0xEE}


def test_a_hundred_thousand_short_rows() -> None:
    source = random.Random(4)
    check([source.choices(range(6), k=source.choice((0, 1, 1, 2))) for _ in range(20_000)])


ROW = st.lists(
    st.one_of(st.integers(0, 45), st.just(END), st.integers(0, 3), st.integers(-2, 52)), max_size=30
)


@settings(max_examples=100)
@given(rows=st.lists(ROW, min_size=1, max_size=9), skip=st.booleans(), repeated=st.integers(1, 40))
def test_random_rows(rows: list[list[int]], skip: bool, repeated: int) -> None:
    check([row * repeated for row in rows], skip)


def test_what_is_not_covered() -> None:
    with pytest.raises(NotCovered, match="upstream"):
        decode_table(Vocabulary((b"a",), Upstream("{}", "a test")))
