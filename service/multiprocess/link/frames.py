"""Packs messages of a link into frames of bytes, and unpacks them.

    frame   head length u64 │ body length u64 │ head: JSON, padded to 8 │ body: arrays, each padded

This module does not depend on sockets, and does not interpret messages.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

SIZES = struct.Struct("<QQ")
ALIGNMENT = 8
MAX_JOINED_BYTES = 1 << 16  # Frames with larger bodies are written in several pieces.
Place = int | Sequence[int]
"""An array's place in shared memory: an offset, or the number of a memory and an offset in it."""


@dataclass(slots=True)
class Message:
    """A message from one end of a link to the other.

    Attributes:
        kind: the name of the call or notification.
        values: values that can be encoded as JSON.
        arrays: arrays of any shapes and numeric dtypes.
    """

    kind: str
    values: dict[str, Any] = field(default_factory=dict)
    arrays: list[NDArray[Any]] = field(default_factory=list)


class PlacedArray(NamedTuple):
    """A contiguous array of a message.

    Attributes:
        array: the array.
        place: its place in shared memory; None: the frame contains the array.
    """

    array: NDArray[Any]
    place: Place | None = None


def pack(
    message: Message, placed: Sequence[PlacedArray], number: int, loan: int, released: list[int]
) -> list[bytes | memoryview]:
    """Pack a message into the pieces of its frame.

    Args:
        message: the message.
        placed: its arrays.
        number: the number of the call that the message makes, answers or cancels.
        loan: the number of the loan of the arrays in shared memory.
        released: the numbers of the peer's loans that are released.
    """
    shapes = [(array.dtype.str, array.shape, place) for array, place in placed]
    head = orjson.dumps([message.kind, number, message.values, shapes, loan, released])
    head += b" " * (-len(head) % ALIGNMENT)
    contained = [array for array, place in placed if place is None]
    size = sum([array.nbytes + -array.nbytes % ALIGNMENT for array in contained])
    pieces: list[bytes | memoryview] = [SIZES.pack(len(head), size), head]
    is_small = size <= MAX_JOINED_BYTES
    for array in contained:
        pieces.append(array.tobytes() if is_small else _get_bytes(array))
        pieces.append(bytes(-array.nbytes % ALIGNMENT))
    return [b"".join(pieces)] if is_small else pieces


def _get_bytes(array: NDArray[Any]) -> memoryview | bytes:
    """Return the bytes of an array, without a copy if it is contiguous."""
    if not array.nbytes:
        return b""
    return memoryview(np.ascontiguousarray(array).data).cast("B")


@dataclass(slots=True)
class Frame:
    """A received frame whose head is read.

    Attributes:
        content: the bytes of the frame.
        body: the place in `content` where the arrays begin.
        message: the message, without arrays until `read_arrays` is called.
        number, loan, released: the arguments of `pack`.
        shapes: the dtype, shape and place of each array.
    """

    content: bytearray
    body: int
    message: Message
    number: int
    shapes: list[Any]
    loan: int
    released: list[int]

    @classmethod
    def of(cls, content: bytearray) -> Frame:
        """Read the head of a complete frame."""
        head_bytes, _ = SIZES.unpack_from(content)
        body = SIZES.size + head_bytes
        head = orjson.loads(memoryview(content)[SIZES.size : body])
        kind, number, values, shapes, loan, released = head
        return cls(content, body, Message(kind, values), number, shapes, loan, released)

    def read_arrays(self, borrow: Callable[[Any, str, tuple[int, ...]], NDArray[Any]]) -> None:
        """Add the arrays to the message; `borrow` returns those that are in shared memory."""
        place = self.body
        for dtype, shape, offset in self.shapes:
            if offset is not None:
                self.message.arrays.append(borrow(offset, dtype, shape))
                continue
            size = math.prod(shape)
            array = np.frombuffer(self.content, dtype, size, place if size else 0)
            self.message.arrays.append(array if len(shape) == 1 else array.reshape(shape))
            place += array.nbytes + -array.nbytes % ALIGNMENT
