"""The link between a front end and the engine process: messages, refusals."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from service.core.errors import EngineLost, QueueFull, ServiceError
from service.multiprocess.link.channel import Link
from service.multiprocess.link.frames import Message
from tests.support.waiting import run

DTYPES = (np.uint8, np.int32, np.int64, np.float64)
SHAPES = ((0,), (1,), (5,), (3, 2), (0, 2), (70_001,), (300_000,))


class Pipe:
    """A transport that hands what is written to the other end, in pieces of given sizes."""

    def __init__(self, other: Link, sizes: list[int]) -> None:
        self.other, self.sizes = other, sizes

    def writelines(self, pieces: list[Any]) -> None:
        self.write(b"".join(bytes(piece) for piece in pieces))

    def write(self, data: bytes) -> None:
        number = 0
        while data:
            view = self.other.get_buffer(-1)
            size = min(len(view), len(data), self.sizes[number % len(self.sizes)])
            view[:size] = data[:size]
            view.release()
            self.other.buffer_updated(size)
            data, number = data[size:], number + 1


def random_message(random: Random) -> Message:
    arrays = []
    for _ in range(random.randrange(4)):
        shape = random.choice(SHAPES)
        array = np.arange(int(np.prod(shape))).astype(random.choice(DTYPES))
        arrays.append(array.reshape(shape))
    values = {"é" * random.randrange(5): random.choice([1, "x", None]) for _ in range(3)}
    return Message(random.choice(["batch", "status", "é"]), values, arrays)


@pytest.mark.parametrize("seed", range(20))
def test_messages_arrive_complete_from_pieces_of_any_size(seed):
    random = Random(seed)
    sent = [random_message(random) for _ in range(random.randrange(8))]
    sizes = [random.randint(1, 10 ** random.randint(1, 6)) for _ in range(3)]
    # A byte alone takes as long as a whole piece; only short frames come in such.
    sizes.append(1 if sum(array.nbytes for m in sent for array in m.arrays) < 1000 else 100_000)
    got: list[Message] = []
    receiver = Link(lambda _, message, reply: got.append(message), lambda _: None)
    sender = Link(lambda *_: None, lambda _: None)
    sender.connection_made(Pipe(receiver, sizes))
    for message in sent:
        sender.notify(message)
    assert [(each.kind, each.values) for each in got] == [(m.kind, m.values) for m in sent]
    for message, found in zip(sent, got, strict=True):
        for array, other in zip(message.arrays, found.arrays, strict=True):
            assert (array.dtype, array.shape) == (other.dtype, other.shape)
            assert np.array_equal(array, other)


def test_refusals_keep_their_kind_and_words(tmp_path):
    async def scenario():
        async def refuse(error: Exception) -> Message:
            raise error

        errors = iter([QueueFull("full", "/x"), ServiceError("else", "/y"), ValueError("secret")])
        answering = Link(
            lambda link, message, reply: reply.complete_by(refuse(next(errors))), lambda _: None
        )
        asking = Link(lambda *_: None, lambda _: None)
        asking.connection_made(Pipe(answering, [1 << 20]))
        answering.connection_made(Pipe(asking, [1 << 20]))
        with pytest.raises(QueueFull, match="full") as full:
            await asking.call(Message("a"))
        assert (full.value.where, dict(full.value.headers)) == ("/x", {b"retry-after": b"1"})
        with pytest.raises(ServiceError, match="else"):
            await asking.call(Message("a"))
        with pytest.raises(ServiceError, match="an error of ours") as ours:
            await asking.call(Message("a"))
        assert "secret" not in ours.value.message
        asking.connection_lost(None)
        with pytest.raises(EngineLost):
            await asking.call(Message("a"))

    run(scenario)
