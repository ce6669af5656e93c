"""Messages of a link as frames of bytes; see channel.py.

    frame   head length u64 │ body length u64 │ head: JSON, padded to 8 │ body: arrays, each padded

Knows neither sockets nor what the messages mean.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

SIZES = struct.Struct("<QQ")
ALIGNMENT = 8
JOINED_BYTES = 1 << 16  # Frames up to this size are one piece for the socket.


@dataclass(slots=True)
class Message:
    """What one side says to the other.

    Attributes:
        kind: what it is about.
        values: anything that JSON can say.
        arrays: any shapes and numeric dtypes.
    """

    kind: str
    values: dict[str, Any] = field(default_factory=dict)
    arrays: list[NDArray[Any]] = field(default_factory=list)


def pack(
    message: Message,
    number: int,
    places: Sequence[int | None],
    loan: int,
    ended: list[int],
) -> list[bytes | memoryview]:
    """A message as the pieces of its frame.

    Args:
        message: what is said.
        number: of the call that it is, or answers.
        places: where each array lies in shared memory; None: it goes along.
        loan: the number of what is lent with it.
        ended: numbers of loans that are over.
    """
    parts = [*zip(message.arrays, places, strict=True)]
    shapes = [(array.dtype.str, array.shape, place) for array, place in parts]
    head = orjson.dumps([message.kind, number, message.values, shapes, loan, ended])
    head += b" " * (-len(head) % ALIGNMENT)
    sent = [array for array, place in parts if place is None]
    size = sum([array.nbytes + -array.nbytes % ALIGNMENT for array in sent])
    pieces: list[bytes | memoryview] = [SIZES.pack(len(head), size), head]
    is_small = size <= JOINED_BYTES
    for array in sent:
        pieces.append(array.tobytes() if is_small else _bytes_of(array))
        pieces.append(bytes(-array.nbytes % ALIGNMENT))
    return [b"".join(pieces)] if is_small else pieces


def _bytes_of(array: NDArray[Any]) -> memoryview | bytes:
    """The bytes of an array where they lie, or copied where they do not lie together."""
    if not array.nbytes:
        return b""
    return memoryview(np.ascontiguousarray(array).data).cast("B")


@dataclass(slots=True)
class Frame:
    """A frame that has come, its head read.

    Attributes:
        content: all of it.
        message: without its arrays.
        number, loan, ended: as `pack` was given.
        shapes: the dtype, shape and place of each array.
    """

    content: bytearray
    message: Message
    number: int
    shapes: list[Any]
    loan: int
    ended: list[int]

    @classmethod
    def of(cls, content: bytearray) -> Frame:
        """Read the head of a whole frame."""
        end = SIZES.size + SIZES.unpack_from(content)[0]
        head = orjson.loads(memoryview(content)[SIZES.size : end])
        kind, number, values, shapes, loan, ended = head
        return cls(content, Message(kind, values), number, shapes, loan, ended)

    def read_arrays(self, borrowed: Callable[[int, str, tuple[int, ...]], NDArray[Any]]) -> None:
        """Give the message its arrays: views of the frame, or what `borrowed` finds at a place."""
        place = SIZES.size + SIZES.unpack_from(self.content)[0]
        for dtype, shape, where in self.shapes:
            if where is not None:
                self.message.arrays.append(borrowed(where, dtype, shape))
                continue
            size = math.prod(shape)
            array = np.frombuffer(self.content, dtype, size, place if size else 0)
            self.message.arrays.append(array if len(shape) == 1 else array.reshape(shape))
            place += array.nbytes + -array.nbytes % ALIGNMENT
