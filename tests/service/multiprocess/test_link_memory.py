"""Memory that both ends of a link read: arrays arrive whole, loans end, nothing is overwritten."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import pytest

from gpu.memory.ipc import SharedHostMemory
from service.multiprocess.link.channel import Link, Reply
from service.multiprocess.link.frames import Message
from service.multiprocess.link.shared_memory import (
    LARGE_BYTES,
    MIN_SHARED_BYTES,
    LinkMemory,
    Loan,
    PeerMemory,
)
from tests.support.emulation.device import EmulatedDevice
from tests.support.waiting import run, until


@contextlib.asynccontextmanager
async def linked(
    folder: Path, *memories: LinkMemory, answer=None
) -> AsyncIterator[tuple[Link, Link]]:
    """Both ends of a link, each with memory of its own."""
    arrived: asyncio.Queue[Link] = asyncio.Queue()

    def give_back(link: Link, message: Message, reply: Reply) -> None:
        reply.set_result(Message("answer", message.values, message.arrays))

    def accept() -> Link:
        link = Link(answer or give_back, lambda _: None, memories[1])
        arrived.put_nowait(link)
        return link

    path, loop = str(folder / "link.sock"), asyncio.get_running_loop()
    server = await loop.create_unix_server(accept, path)
    _, front = await loop.create_unix_connection(
        lambda: Link(give_back, lambda _: None, memories[0]), path
    )
    back = await arrived.get()
    try:
        yield front, back
    finally:
        front.close()
        back.close()
        server.close()
        await until(lambda: not front.is_up and not back.is_up)
        for memory in memories:
            memory.close()


def mapped(*links: Link) -> bool:
    return all(link._is_mapped for link in links)


def random_arrays(random: Random, memory: LinkMemory) -> list[np.ndarray]:
    """Small and large ones, in the memory that the other side reads or not, whole or a part."""
    arrays = []
    for _ in range(random.randrange(1, 4)):
        size = random.choice(
            [0, 7, MIN_SHARED_BYTES - 1, MIN_SHARED_BYTES, 3 * MIN_SHARED_BYTES + 5]
        )
        made = memory.take(size + 9) if random.random() < 0.5 else np.empty(size + 9, np.uint8)
        made[:] = np.frombuffer(random.randbytes(len(made)), np.uint8)
        begin = random.randrange(9)
        array = made[begin : begin + size]
        if random.random() < 0.3:
            array = array[: size // 8 * 8].view(np.int64).reshape(-1, 1)
        arrays.append(array[:: random.choice([1, 1, 2])])
    return arrays


def test_arrays_come_back_as_they_were_sent_and_all_loans_end(tmp_path):
    async def scenario():
        memories = LinkMemory(), LinkMemory()
        async with linked(tmp_path, *memories) as (front, back):
            await until(lambda: mapped(front, back))
            random = Random(5)

            async def client() -> None:
                for _ in range(20):
                    arrays = random_arrays(random, memories[0])
                    kept = [array.copy() for array in arrays]
                    asked = front.call(Message("echo", {}, arrays))
                    del arrays
                    if random.random() < 0.2:
                        asked.cancel()
                        continue
                    answer = await asked
                    for array, other in zip(kept, answer.arrays, strict=True):
                        assert array.dtype == other.dtype
                        assert np.array_equal(array, other)

            await asyncio.gather(*(client() for _ in range(5)))
            gc.collect()
            await until(lambda: not front._loans and not back._loans)
        assert memories[0].num_mapped < 60  # Blocks are lent again.

    run(scenario)


def test_a_large_array_is_read_where_it_lies_and_its_block_waits_for_the_other_side(tmp_path):
    async def scenario():
        memories, kept = (LinkMemory(), LinkMemory()), []

        def keep(link: Link, message: Message, reply: Reply) -> None:
            kept.append(message.arrays)

        async with linked(tmp_path, *memories, answer=keep) as (front, back):
            await until(lambda: mapped(front, back))
            array = memories[0].take(MIN_SHARED_BYTES)
            array[:] = 7
            front.notify(Message("look", {}, [array]))
            await until(lambda: kept)
            assert not kept[0][0].flags.writeable
            array[3] = 8  # The other end sees it: nothing was copied.
            assert kept[0][0][:5].tolist() == [7, 7, 7, 8, 7]
            del array
            assert memories[0].take(MIN_SHARED_BYTES).ctypes.data != front._loans[1][0].ctypes.data
            view = kept.pop()[0][2:4]
            gc.collect()
            front.notify(Message("look"))
            await until(lambda: kept)
            assert front._loans
            del view
            await until(lambda: not front._loans)

    run(scenario)


def test_where_memory_cannot_be_shared_arrays_go_over_the_socket_and_the_log_says_so(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(LinkMemory, "path", "/proc/0/fd/0")

    async def scenario():
        memories = LinkMemory(), LinkMemory()
        async with linked(tmp_path, *memories) as (front, back):
            array = memories[0].take(MIN_SHARED_BYTES)
            array[:] = 3
            for _ in range(2):  # Before both know it, and when they do.
                answer = await front.call(Message("echo", {}, [array]))
                assert np.array_equal(answer.arrays[0], array)
            assert not mapped(front) and not mapped(back) and not front._loans

    run(scenario)
    assert "no memory is shared" in caplog.text


def test_what_a_lost_link_had_lent_is_free_again(tmp_path):
    async def scenario():
        memories, kept = (LinkMemory(), LinkMemory()), []
        async with linked(tmp_path, *memories, answer=lambda _, m, reply: kept.append(m)) as (
            front,
            back,
        ):
            await until(lambda: mapped(front, back))
            front.notify(Message("look", {}, [memories[0].take(MIN_SHARED_BYTES)]))
            await until(lambda: kept)
            back.close()
            await until(lambda: not front.is_up)
            assert not front._loans
        kept.clear()  # The loan ends after the loop's links: nobody is told.
        gc.collect()

    run(scenario)


def test_a_device_reads_the_front_part_where_it_lies_until_the_last_view_is_gone():
    device, ended = EmulatedDevice(), []
    memory = LinkMemory(kept_bytes=0)
    other = PeerMemory(memory.path)
    blocks = [memory.take(size) for size in (MIN_SHARED_BYTES, LARGE_BYTES + 1, MIN_SHARED_BYTES)]
    for number, block in enumerate(blocks):
        block[-10:] = number + 1

    def seen(other: PeerMemory, number: int) -> np.ndarray:
        place = memory.find_offset(blocks[number]) + len(blocks[number]) - 10
        return other.array(place, "<u2", (5,), Loan(lambda: ended.append(number)))

    assert not other.is_used
    before = seen(other, 0)
    assert other.is_used
    other.page_lock(partial(SharedHostMemory, device))
    arrays = [seen(other, number) for number in range(3)]
    assert [array.tolist() for array in arrays] == [[257 * n] * 5 for n in (1, 2, 3)]
    assert [device.is_pinned(array) for array in (before, *arrays)] == [False, True, False, True]
    blocks[2][-1] = 9
    assert arrays[2][-1] == 3 + 9 * 256
    view = arrays[0][2:]
    del other, arrays
    gc.collect()
    assert sorted(ended) == [1, 2]
    assert device.is_pinned(view)
    assert view.tolist() == [257] * 3
    del view
    assert ended.count(0) == 1
    assert not device.pinned
    memory.close()


def test_pages_that_a_device_may_read_stay_and_others_are_given_back():
    memory = LinkMemory(kept_bytes=0)
    for size, is_kept in ((MIN_SHARED_BYTES, True), (LARGE_BYTES + 1, False)):
        block = memory.take(size)
        block[:10], place = 7, memory.find_offset(block)
        del block
        memory._give_back()
        assert memory._all[place : place + 10].tolist() == [7 * is_kept] * 10
    memory.close()


def test_without_a_device_nothing_is_page_locked_and_a_process_may_end_meanwhile():
    memory = LinkMemory()
    block = memory.take(MIN_SHARED_BYTES)
    block[:] = 3
    other = PeerMemory(memory.path)
    other.page_lock(lambda number, offset, num_bytes: None)
    assert other.is_page_locked
    memory.close()
    other.page_lock(lambda number, offset, num_bytes: pytest.fail("the file is closed"))
    seen = other.array(memory.find_offset(block), "|u1", block.shape, Loan(lambda: None))
    assert np.array_equal(seen, block)


def test_no_array_ends_behind_the_file():
    memory = LinkMemory(file_bytes=1 << 21)
    other = PeerMemory(memory.path)
    with pytest.raises(ValueError, match="ends at 2097156 of 2097152"):
        other.array(1 << 20, "<i4", ((1 << 18) + 1,), Loan(lambda: None))
    memory.close()


def test_a_range_without_views_is_lent_again():
    memory = LinkMemory(kept_bytes=0, file_bytes=1 << 20)
    other = PeerMemory(memory.path)
    ended: list[bool] = []
    places = set()
    for value in range(1, 20):
        block = memory.take(1 << 19)
        block[:] = value
        place = memory.find_offset(block)
        places.add(place)
        seen = other.array(place, "|u1", (1 << 19,), Loan(lambda: ended.append(True)))
        assert (seen == value).all()
        del block, seen
        memory._give_back()
    assert places == {0} or places == {0, 1 << 19}
    assert len(ended) == 19
    held = [memory.take(1 << 19) for _ in range(4)]
    assert [memory.find_offset(block) is None for block in held].count(True) == 2
    memory.close()


@pytest.mark.parametrize("size", [0, 10, MIN_SHARED_BYTES, MIN_SHARED_BYTES + 1])
def test_an_array_is_placed_in_the_file_if_it_is_large(size):
    memory = LinkMemory(file_bytes=1 << 20)
    array = np.arange(size, dtype=np.uint8)
    placed = memory.place(array).array
    assert np.array_equal(placed, array)
    assert (memory.find_offset(placed) is not None) == (size >= MIN_SHARED_BYTES)
    assert memory.place(placed).array is placed
    memory.close()
