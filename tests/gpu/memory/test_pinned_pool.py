"""Leased answers: who owns them, when their memory is leased again, and the cap."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from gpu.memory.caller_pinned import CallerPinned
from gpu.memory.pinned_pool import SMALLEST, PinnedPool
from service.runtime.memory_pool import MemoryPool
from tests.support.emulation.device import EmulatedDevice


@pytest.fixture(params=["the device's memory", "memory of the caller's"])
def leases(request):
    device = EmulatedDevice()
    if request.param == "the device's memory":
        yield PinnedPool(device, 8 * SMALLEST)
        return
    memory = MemoryPool(kept_bytes=0, smallest=SMALLEST)
    leases = PinnedPool(CallerPinned(device, memory.take), 8 * SMALLEST)
    yield leases
    leases.close()
    gc.collect()
    memory.close()
    assert memory.mapped_bytes == sum(device.pinned.values())  # Of blocks that the test holds.


def device_of(leases: PinnedPool) -> EmulatedDevice:
    return getattr(leases.source, "device", leases.source)


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def test_memory_is_lent_again_only_when_the_last_view_is_gone(leases):
    block = leases.take(1000)
    assert block is not None
    assert len(block) >= 1000
    place = address(block)
    view = block[:800].view(np.int32)[3:][::2]
    other = memoryview(view[1:])
    view[:] = 7
    del block, view
    assert address(leases.take(1000)) != place
    assert other[0] == 7
    del other
    assert place in {address(block) for block in [leases.take(1000) for _ in range(4)]}


def test_lent_blocks_never_overlap_and_are_pinned(leases):
    blocks = [leases.take(SMALLEST) for _ in range(8)]
    for i, block in enumerate(blocks):
        assert device_of(leases).is_pinned(block)
        block[:] = i
    assert [set(block.tolist()) for block in blocks] == [{i} for i in range(8)]


def test_over_the_cap_nothing_is_lent_until_something_comes_back(leases):
    blocks = [leases.take(2 * SMALLEST) for _ in range(4)]
    assert all(block is not None for block in blocks)
    assert leases.used_bytes == leases.cap_bytes
    assert leases.take(1) is None
    assert leases.take(9 * SMALLEST) is None
    blocks.pop()
    assert leases.take(1) is not None  # Of a block of another size, which made room.
    assert leases.used_bytes == 7 * SMALLEST


def test_room_is_made_by_the_size_that_was_asked_for_longest_ago(leases):
    for size in (4 * SMALLEST, 2 * SMALLEST, 4 * SMALLEST):
        assert leases.take(size) is not None
    lent = [leases.take(1) for _ in range(3)]  # The third needs room.
    before = leases.num_allocations
    lent.append(leases.take(4 * SMALLEST))
    assert leases.num_allocations == before
    assert all(block is not None for block in lent)


def test_the_steady_state_allocates_nothing(leases):
    for _ in range(100):
        kept = [leases.take(size) for size in (100, SMALLEST + 1)]
        assert all(block is not None for block in kept)
    assert leases.num_allocations <= 4  # Those of two rounds: the last is held meanwhile.


def test_blocks_come_back_from_cycles_and_other_threads(leases):
    cycle: list[object] = [leases.take(8 * SMALLEST)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    block = leases.take(8 * SMALLEST)
    assert block is not None
    thread = threading.Thread(target=lambda held: held.clear(), args=([block],))
    del block
    thread.start()
    thread.join()
    del thread
    assert leases.take(8 * SMALLEST) is not None

    def use(i: int) -> bool:
        held = leases.take(SMALLEST)
        if held is None:
            return True
        held[:] = i
        return bool((held == i).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(use, range(200)))
    assert leases.used_bytes <= leases.cap_bytes


def test_closing_gives_back_what_nobody_holds(leases):
    held, free = leases.take(1), leases.take(1)
    held[:] = 5
    del free
    leases.close()
    assert leases.used_bytes == SMALLEST
    assert leases.take(1) is None
    assert set(held.tolist()) == {5}


def test_a_device_without_memory_lends_nothing(leases, monkeypatch):
    def full(num_bytes: int) -> None:
        from gpu.errors import OutOfMemory

        raise OutOfMemory(f"{num_bytes} bytes")

    if isinstance(leases.source, CallerPinned):
        monkeypatch.setattr(leases.source.device, "pin", lambda address, num_bytes: full(num_bytes))
    else:
        monkeypatch.setattr(leases.source, "allocate_pinned", full)
    assert leases.take(1) is None
    assert leases.used_bytes == 0
