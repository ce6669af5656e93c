"""A front end's batch in the engine process is answered once, whatever happens on the way."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from service.batch_call import BatchCall
from service.errors import QueueFull
from service.link import Message
from service.work import Result
from tests.waiting import run

COUNTS = np.array([3, 4])


def result(num_rows: int = 2) -> Result:
    return Result(0, num_rows, "cpu", 7, {}, counts=COUNTS)


async def doubled(message: Message) -> Message:
    return Message(message.kind, message.values, [2 * message.arrays[0]])


async def failing(message: Message) -> Message:
    raise MemoryError("no room")


def test_small_results_are_answered_at_once_and_large_ones_when_they_lie_right():
    async def scenario():
        small, large = BatchCall(lambda message: None), BatchCall(doubled)
        for call in (small, large):
            assert not call.done()
            call.set_result(result())
            assert call.done()
            assert not call.cancelled()
            assert call.exception() is None
        assert small.answer.result().arrays[0].tolist() == [3, 4]
        assert not large.answer.done()
        assert (await large.answer).arrays[0].tolist() == [6, 8]

    run(scenario)


def test_what_fails_refuses_the_batch():
    def broken(message):
        raise ValueError("broken")

    async def scenario():
        for placing, error in ((broken, ValueError), (failing, MemoryError)):
            call = BatchCall(placing)
            call.set_result(result())
            with pytest.raises(error):
                await call.answer
            assert isinstance(call.exception(), error)
        refused = BatchCall(broken)
        refused.set_exception(QueueFull("full"))
        assert refused.done()
        with pytest.raises(QueueFull):
            await refused.answer

    run(scenario)


def test_a_batch_that_nobody_waits_for_any_more_is_over():
    async def scenario():
        waiting, placing = BatchCall(lambda message: None), BatchCall(doubled)
        placing.set_result(result())
        for call in (waiting, placing):
            call.answer.cancel()
            assert call.done()
            assert call.cancelled()
        await asyncio.sleep(0.01)
        assert placing.answer.cancelled()

    run(scenario)
