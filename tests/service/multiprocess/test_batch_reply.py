"""A front end's batch in the engine process is answered once, whatever happens on the way."""

from __future__ import annotations

import asyncio

import numpy as np

from service.batching.work import Result
from service.core.errors import QueueFull
from service.engines.base import Counted
from service.multiprocess.link.batch_reply import BatchReply
from service.multiprocess.link.channel import Reply
from service.multiprocess.link.frames import Message
from tests.support.waiting import run, until

COUNTS = np.array([3, 4])


def result(num_rows: int = 2) -> Result:
    return Result(0, num_rows, Counted(COUNTS), 7)


async def doubled(message: Message) -> Message:
    return Message(message.kind, message.values, [2 * message.arrays[0]])


async def failing(message: Message) -> Message:
    raise MemoryError("no room")


class SentReplies:
    """A link: what it was given to send."""

    def __init__(self) -> None:
        self.messages: list[Message | None] = []

    def send_reply(self, number: int, message: Message | None) -> None:
        assert number == 5
        self.messages.append(message)


def make(copy_large) -> tuple[BatchReply, SentReplies]:
    link = SentReplies()
    return BatchReply(Reply(link, 5), copy_large), link


def test_small_results_are_sent_at_once_and_large_ones_when_they_are_copied():
    async def scenario():
        small, small_link = make(lambda message: None)
        large, large_link = make(doubled)
        for reply in (small, large):
            assert not reply.done()
            reply.set_result(result())
            assert reply.done()
        assert (len(small_link.messages), len(large_link.messages)) == (1, 0)
        assert small_link.messages[0].arrays[0].tolist() == [3, 4]
        await until(lambda: large_link.messages)
        assert large_link.messages[0].arrays[0].tolist() == [6, 8]
        assert (len(small_link.messages), len(large_link.messages)) == (1, 1)

    run(scenario)


def test_what_fails_refuses_the_batch():
    def broken(message):
        raise ValueError("broken")

    async def scenario():
        for copy_large in (broken, failing):
            reply, link = make(copy_large)
            reply.set_result(result())
            await until(lambda link=link: link.messages)
            (message,) = link.messages
            assert (message.kind, message.values["code"]) == ("refusal", "internal")
        refused, link = make(broken)
        refused.set_exception(QueueFull("full"))
        assert refused.done()
        (message,) = link.messages
        assert message.values["code"] == "queue_full"

    run(scenario)


def test_a_batch_without_waiters_ends():
    async def scenario():
        (waiting, waiting_link), (copying, copying_link) = make(lambda message: None), make(doubled)
        copying.set_result(result())
        for reply in (waiting, copying):
            reply.cancel()
            assert reply.done()
        await asyncio.sleep(0.01)  # The copy comes too late.
        waiting.set_result(result())
        waiting.set_exception(QueueFull("full"))
        assert waiting_link.messages == copying_link.messages == [None]

    run(scenario)
