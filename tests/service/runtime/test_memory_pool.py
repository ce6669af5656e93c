"""Memory of large arrays: whose it is, when it is lent again, and when the system gets it back."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from service.runtime.memory_pool import SMALLEST_BYTES, GrowableArray, MemoryPool
from tests.support.waiting import GIVEN_UP_S


@pytest.fixture
def memory():
    memory = MemoryPool()
    yield memory
    memory.close()


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def is_mapped(place: int) -> bool:
    """Return whether the system knows an address of this process."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(word, 16) for word in line.split()[0].split("-"))
        if begin <= place < end:
            return True
    return False


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + GIVEN_UP_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_block_is_lent_again_only_when_its_last_view_is_gone(memory):
    block = memory.take(SMALLEST_BYTES + 1)
    assert len(block) >= SMALLEST_BYTES + 1
    place = address(block)
    other = memoryview(block[:800].view(np.int32)[3:][::2][1:])
    block[:] = 7
    del block
    assert address(memory.take(SMALLEST_BYTES + 1)) != place
    assert other[0] == 0x07070707
    del other
    assert place in {
        address(block) for block in [memory.take(SMALLEST_BYTES + 2) for _ in range(3)]
    }


def test_blocks_never_overlap_and_small_ones_are_of_their_size(memory):
    sizes = [1, SMALLEST_BYTES - 1, SMALLEST_BYTES, SMALLEST_BYTES + 1, 3 * SMALLEST_BYTES]
    blocks = [memory.take(size) for size in sizes]
    for number, block in enumerate(blocks):
        block[:] = number
    assert [set(block.tolist()) for block in blocks] == [{number} for number in range(len(sizes))]
    assert [len(block) for block in blocks[:2]] == sizes[:2]


def test_the_steady_state_asks_the_system_for_nothing(memory):
    for _ in range(100):
        kept = [memory.take(size) for size in (SMALLEST_BYTES, 3 * SMALLEST_BYTES)]
    assert memory.num_mapped <= 2 * len(kept)  # Those of two rounds: the last is held meanwhile.


def test_of_free_blocks_the_first_in_memory_is_lent(memory):
    blocks = [memory.take(SMALLEST_BYTES) for _ in range(5)]
    places = sorted(map(address, blocks))
    for number in (1, 3, 0, 4, 2):
        blocks[number] = None
    held = []
    for place in places:
        held.append(memory.take(SMALLEST_BYTES))
        assert address(held[-1]) == place


def test_blocks_come_back_from_cycles_and_other_threads(memory):
    cycle: list[object] = [memory.take(SMALLEST_BYTES)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    held = [memory.take(SMALLEST_BYTES)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    memory.take(SMALLEST_BYTES)
    assert memory.num_mapped == 1


def test_what_is_more_than_is_kept_goes_back_to_the_system():
    memory = MemoryPool(kept_bytes=3 * SMALLEST_BYTES)
    blocks = [memory.take(SMALLEST_BYTES << number) for number in range(3)]
    places = [address(block) for block in blocks]
    del blocks
    wait_until(lambda: memory.free_bytes == 3 * SMALLEST_BYTES and not is_mapped(places[2]))
    assert is_mapped(places[0])
    assert is_mapped(places[1])
    held = memory.take(SMALLEST_BYTES)
    memory.close()
    assert [is_mapped(place) for place in places] == [True, False, False]
    held[:] = 5
    assert held[-1] == 5
    del held
    memory.take(SMALLEST_BYTES)  # Whoever takes after the end gets memory all the same.
    wait_until(lambda: memory.free_bytes == 0)
    memory.close()


@pytest.mark.parametrize("expected", [0, 10, SMALLEST_BYTES])
def test_what_grows_keeps_what_was_written(memory, expected):
    grown = GrowableArray(np.dtype(np.int64), memory.take, (2,))
    wanted = np.arange(2 * 300_000).reshape(-1, 2)
    for begin in range(0, len(wanted), 7_000):
        part = wanted[begin : begin + 7_000]
        grown.extend(len(part), expected)[:] = part
    assert (grown.array == wanted).all()
    grown.size -= 5
    assert (grown.array == wanted[:-5]).all()
