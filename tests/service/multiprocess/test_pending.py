"""A front end's batch in the engine process is answered once, whatever happens on the way."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from service.batching.work import Result
from service.core.errors import QueueFull
from service.engines.base import Counted
from service.multiprocess.link.frames import Message
from service.multiprocess.link.pending import BatchCall
from tests.support.waiting import run, until

COUNTS = np.array([3, 4])


def result(num_rows: int = 2) -> Result:
    return Result(0, num_rows, Counted(COUNTS), 7)


async def doubled(message: Message) -> Message:
    return Message(message.kind, message.values, [2 * message.arrays[0]])


async def failing(message: Message) -> Message:
    raise MemoryError("no room")


class Told:
    """The link: what it was told, and the answer then."""

    def __init__(self, call: BatchCall) -> None:
        self.calls: list[BatchCall] = []
        call.add_done_callback(self.calls.append)

    @property
    def times(self) -> int:
        return len(self.calls)


def test_small_results_are_answered_at_once_and_large_ones_when_they_lie_right():
    async def scenario():
        small, large = BatchCall(lambda message: None), BatchCall(doubled)
        told_small, told_large = Told(small), Told(large)
        for call in (small, large):
            assert not call.done()
            call.set_result(result())
            assert call.done()
            assert not call.cancelled()
            assert call.exception() is None
        assert (told_small.times, told_large.times) == (1, 0)
        assert small.result().arrays[0].tolist() == [3, 4]
        await until(lambda: told_large.times)
        assert large.result().arrays[0].tolist() == [6, 8]
        assert (told_small.times, told_large.times) == (1, 1)

    run(scenario)


def test_what_fails_refuses_the_batch():
    def broken(message):
        raise ValueError("broken")

    async def scenario():
        for placing, error in ((broken, ValueError), (failing, MemoryError)):
            call = BatchCall(placing)
            told = Told(call)
            call.set_result(result())
            await until(lambda told=told: told.times)
            assert isinstance(call.exception(), error)
            with pytest.raises(error):
                call.result()
        refused = BatchCall(broken)
        refused.set_exception(QueueFull("full"))  # Before the link has seen it.
        assert refused.done()
        assert Told(refused).times == 1
        with pytest.raises(QueueFull):
            refused.result()

    run(scenario)


def test_a_batch_that_nobody_waits_for_any_more_is_over():
    async def scenario():
        waiting, placing = BatchCall(lambda message: None), BatchCall(doubled)
        told = [Told(call) for call in (waiting, placing)]
        placing.set_result(result())
        for call in (waiting, placing):
            call.cancel()
            assert call.done()
            assert call.cancelled()
        await asyncio.sleep(0.01)  # The copy comes too late.
        waiting.set_result(result())
        waiting.set_exception(QueueFull("full"))
        assert [each.times for each in told] == [1, 1]
        assert waiting.cancelled()
        assert placing.cancelled()

    run(scenario)
