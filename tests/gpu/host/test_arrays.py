"""Rows that end before they begin are refused by name, and nothing is read where they would lie."""

from __future__ import annotations

import numpy as np
import pytest

from gpu.engine import GpuEngine
from gpu.errors import DescendingOffsets
from gpu.host.arrays import address_of, put_begins
from gpu.streaming import encode_stream
from tests.support.emulation.device import EmulatedDevice, note_launches
from vocabularies.batch.batch import Batch
from vocabularies.builtin import load

NAMES = ("gpt2", "dnabert2", "hyenadna", "dnabert1_6mer")
FAR = np.iinfo(np.int64).max


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 7, 64, 1000])
def test_begins_are_copied_and_the_first_row_that_falls_is_named(rows):
    chance = np.random.default_rng(rows)
    begins = np.cumsum(chance.integers(0, 3, rows + 1))
    to = np.full(rows + 5, -7, np.int64)
    put_begins(to, begins)
    assert to.tolist() == [*begins.tolist(), *[-7] * 4]
    for row in range(rows):
        for number in (begins[row] - 1, -1, -FAR):
            wrong = begins.copy()
            wrong[row + 1] = number
            with pytest.raises(DescendingOffsets, match=f"^row {row} begins at {begins[row]} and"):
                put_begins(to, wrong)
        if row:
            wrong = begins.copy()
            wrong[row] = FAR
            with pytest.raises(DescendingOffsets, match=f"^row {row} begins at {FAR} and ends at"):
                put_begins(to, wrong)


def test_begins_may_lie_apart():
    begins = np.arange(20)[::2]
    to = np.zeros(10, np.int64)
    put_begins(to, begins)
    assert to.tolist() == begins.tolist()


def test_more_begins_than_there_is_room_for_are_not_written():
    with pytest.raises(ValueError, match="short"):
        put_begins(np.zeros(3, np.int64), np.arange(4))


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("size", [300, 5000, 140_000, 600_000])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_no_kernel_runs_on_rows_that_fall(monkeypatch, name, size, pinned):
    engine, vocabulary = GpuEngine(EmulatedDevice(), 1 << 28), load(name)
    launches = note_launches(monkeypatch)
    data = np.frombuffer(b"ACGT" * (size // 4), np.uint8)
    if pinned:
        lent = engine.host_memory(size)
        lent[:] = data
        data = lent
    offsets = np.array([0, 100, 60, size])
    for _ in range(5):  # More often than there are workspaces.
        with pytest.raises(DescendingOffsets, match="row 1 begins at 100 and ends at 60"):
            engine.encode_ids(vocabulary, data, offsets)
    assert launches == []
    out = engine.device.allocate_pinned(4 * size).view(np.int32)
    with pytest.raises(DescendingOffsets, match="row 1 begins"):
        encode_stream(engine, vocabulary, data, offsets, out)
    assert launches == []


@pytest.mark.parametrize("name", NAMES)
def test_in_a_batch_of_chunks_it_is_named_by_its_number_in_the_batch(name):
    engine = GpuEngine(EmulatedDevice(), 1 << 28)
    engine.pipeline.chunk_bytes = 1 << 13
    rows, each = 400, 100
    data = np.frombuffer(b"ACGT" * (rows * each // 4), np.uint8)
    offsets = np.arange(rows + 1) * each
    right, _ = engine.count(load(name), Batch(data=data, offsets=offsets))
    for row in (1, 150, 398):
        wrong = offsets.copy()
        wrong[row + 1] = wrong[row] - 30
        with pytest.raises(DescendingOffsets, match=f"row {row} begins at {each * row} and ends"):
            engine.count(load(name), Batch(data=data, offsets=wrong))
        again, _ = engine.count(load(name), Batch(data=data, offsets=offsets))
        assert again.tolist() == right.tolist()


def test_an_address_is_that_of_the_first_item():
    array = np.arange(100, dtype=np.int32)
    array.flags.writeable = False
    for view in (array, array[3:], array[5::2], array[:0], array.view(np.uint8)):
        assert address_of(view) == view.ctypes.data
