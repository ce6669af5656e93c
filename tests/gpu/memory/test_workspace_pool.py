"""Workspaces of DNA: how much memory a batch holds, and which ones its successors get."""

from __future__ import annotations

import pytest

from gpu.engine import GpuEngine
from gpu.memory.workspace_layout import (
    BYTES_A_ROW,
    LAYOUTS,
    MAX_TEMPLATE,
    Capacity,
    device_bytes,
    field_places,
)
from gpu.memory.workspace_pool import WorkspacePool
from tests.gpu.dna.test_parts import bases
from tests.support.emulation.device import EmulatedDevice
from vocabularies.batch.batch import Batch
from vocabularies.builtin import load

BYTES_A_BASE = 16
SIZES = [
    int(1e6 * m) for m in (1, 1.05, 2, 2.1, 2.63, 4.2, 4.64, 8.4, 17, 46.7, 67.2, 135, 248, 269)
]


@pytest.fixture
def workspaces(monkeypatch):
    """On a device whose memory is there in name only."""

    class Named:
        def __init__(self, device, capacity):
            self.capacity, self.is_closed = capacity, False

        def close(self):
            self.is_closed = True

    monkeypatch.setattr("gpu.memory.workspace_pool.Workspace", Named)
    return WorkspacePool(EmulatedDevice(), 1 << 40)


@pytest.mark.parametrize("row", [64, 75, 150, 512, 4096, 0])
@pytest.mark.parametrize("size", SIZES)
def test_a_batch_of_dna_holds_at_most_16_bytes_a_base(workspaces, size, row):
    """From a megabase on, in rows of 64 bases and more, or in one."""
    workspaces.take(size, -(-size // row) if row else 1, "dna")
    assert workspaces.used_bytes <= BYTES_A_BASE * size


@pytest.mark.parametrize("size", [1 << 20, 1 << 21, 5 << 20, 1 << 24, 1 << 28])
def test_rows_of_16_bases_fit_into_as_much(size):
    assert device_bytes(Capacity(size, size // BYTES_A_ROW, "dna")) <= BYTES_A_BASE * size


@pytest.mark.parametrize("rows", [1, 64, BYTES_A_ROW])
@pytest.mark.parametrize("size", [1 << 13, 1 << 20, 5 << 20, 1 << 24, 1 << 28])
def test_ids_of_dna_that_lie_where_paths_did_have_room(size, rows):
    places, _, end = field_places(Capacity(size, size // rows, "dna"))
    room = places["row_not_ascii"] - places["post_processed_ids"]
    assert room >= 4 * (size + MAX_TEMPLATE * (size // rows))
    assert room >= 4 * size  # Those to decode, eight bytes each, and narrow ones.
    fields = sorted({*places.values(), end})
    behind_ids = fields[fields.index(places["special_matches"]) + 1]
    assert behind_ids - places["special_matches"] >= 4 * size


def test_an_encoded_megabase_holds_at_most_16_bytes_a_base():
    engine, text = GpuEngine(EmulatedDevice(1 << 33), 1 << 30), bases(1, 1_060_000)
    assert len(engine.encode(load("dnabert2"), Batch([text])).ids)
    assert 0 < engine.memory()["workspaces"] <= BYTES_A_BASE * len(text)
    engine.close()


def test_a_larger_workspace_takes_the_place_of_one_that_is_too_small(workspaces):
    first = workspaces.take(1_100_000, 1, "dna")
    workspaces.give(first)
    for size, rows in ((3_900_000, 1), (1_100_000, 60_000)):
        workspaces.give(workspaces.take(size, rows, "dna"))
    assert workspaces.num_allocations == 2 and first.is_closed
    held = workspaces.used_bytes
    workspaces.give(workspaces.take(1_100_000, 68_000, "dna"))
    assert workspaces.num_allocations == 3 and workspaces.used_bytes > held
    for size, rows in ((3_900_000, 1), (1_100_000, 68_000), (2_000_000, 100)):
        workspaces.give(workspaces.take(size, rows, "dna"))
    assert workspaces.num_allocations == 3


def test_those_that_are_lent_stay(workspaces):
    small = workspaces.take(1_100_000, 1, "dna")
    large = workspaces.take(3_900_000, 1, "dna")
    assert not small.is_closed and workspaces.num_allocations == 2
    workspaces.give(large)
    workspaces.give(small)
    assert workspaces.take(3_000_000, 1, "dna") is large


@pytest.mark.parametrize("layout", sorted(set(LAYOUTS) - {"dna"}))
def test_those_of_other_layouts_hold_the_largest_batch_of_their_size(workspaces, layout):
    workspaces.give(workspaces.take(1_100_000, 1, layout))
    taken = workspaces.take(4 << 20, 1 << 18, layout)
    assert taken.capacity.num_bytes >= 4 << 20 and taken.capacity.num_rows >= 1 << 18
    assert workspaces.num_allocations == 1


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
@pytest.mark.parametrize("size", [300_000_000, (1 << 28) + 1, 1 << 29])
def test_a_workspace_of_an_unusual_size_is_lent_again(workspaces, size, layout):
    """A size that no other batch has had: as large as the batch, or fitted."""
    for _ in range(6):
        taken = workspaces.try_take(size, 1, layout)
        assert taken is not None and taken.capacity.num_bytes >= size
        workspaces.give(taken)
    assert workspaces.num_allocations == 1
    workspaces.close()
    assert workspaces.used_bytes == 0
