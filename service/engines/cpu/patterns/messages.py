"""Sends messages between the service and its workers; each is a JSON object and arrays.

A message is the number of bytes of its JSON (8 bytes, little-endian), the JSON, which also has the
dtype and shape of each array, and the arrays' bytes. A message never contains code.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from socket import socket
from typing import Any

import numpy as np
from numpy.typing import NDArray

SIZE = struct.Struct("<Q")
PART_BYTES = 1 << 20  # The most bytes of one system call.
ARRAYS = "arrays"
DTYPES = ("uint8", "int32", "int64")


@dataclass(slots=True)
class Message:
    """A JSON object and arrays of uint8, int32 or int64."""

    values: dict[str, Any]
    arrays: Sequence[NDArray[Any]] = field(default_factory=tuple)


def send(sock: socket, message: Message, wait: Callable[[], object]) -> None:
    """Send a message; call `wait` whenever the socket's timeout passes.

    Raises:
        OSError: the other side has ended.
    """
    arrays = [np.ascontiguousarray(array) for array in message.arrays]
    shapes = [[array.dtype.name, array.shape] for array in arrays]
    header = json.dumps(message.values | {ARRAYS: shapes}).encode()
    _send_bytes(sock, memoryview(SIZE.pack(len(header)) + header), wait)
    for array in arrays:
        _send_bytes(sock, array.reshape(-1).view(np.uint8).data, wait)


def receive(sock: socket, wait: Callable[[], object]) -> Message:
    """Receive a message; call `wait` whenever the socket's timeout passes.

    Raises:
        EOFError, OSError: the other side has ended.
        ValueError: the bytes are not a message.
    """
    (size,) = SIZE.unpack(_receive_bytes(sock, SIZE.size, wait).data)
    values = json.loads(_receive_bytes(sock, size, wait).tobytes())
    arrays = []
    for dtype, shape in values.pop(ARRAYS):
        if dtype not in DTYPES:
            raise ValueError(f"an array of {dtype}")
        num_bytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        arrays.append(_receive_bytes(sock, num_bytes, wait).view(dtype).reshape(shape))
    return Message(values, arrays)


def _send_bytes(sock: socket, view: memoryview, wait: Callable[[], object]) -> None:
    while view:
        try:
            view = view[sock.send(view[:PART_BYTES]) :]
        except TimeoutError:
            wait()


def _receive_bytes(sock: socket, num_bytes: int, wait: Callable[[], object]) -> NDArray[np.uint8]:
    data = np.empty(num_bytes, np.uint8)
    view = data.data
    while view:
        try:
            received = sock.recv_into(view[:PART_BYTES])
        except TimeoutError:
            wait()
            continue
        if not received:
            raise EOFError("the other side has ended")
        view = view[received:]
    return data
