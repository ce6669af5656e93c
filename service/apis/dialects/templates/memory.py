"""Memory that the service shares with one template process, for chats and their rendered text.

A long chat does not fit into a pipe, so that each side would wait for the other several times. The
pipe only says how many bytes of this memory are the message. Both sides take turns, so that one of
them uses the memory at a time. It is a memory file without a name, which nobody can make smaller.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from typing import NamedTuple

READY = b"ready"  # The first output of the process.
REQUEST = struct.Struct("<III")  # The lengths of the parts of a request.
ANSWER = struct.Struct("<IB")  # The length of an answer, and its kind.
TEXT, ERROR, UNREADABLE = range(3)
FIRST_BYTES = 1 << 16
KEPT_BYTES = 4 << 20  # The memory of longer messages is returned to the system.


class Request(NamedTuple):
    """A chat for a process.

    Attributes:
        json: what to render, without the messages if they stand in `messages`.
        messages: the messages as a JSON list; empty: they stand in `json`.
        places: uint32, begin and end of each message in `messages`.
    """

    json: bytes
    messages: bytes | memoryview = b""
    places: bytes = b""


class Answer(NamedTuple):
    """The answer of a process to a chat.

    Attributes:
        data: what the template wrote, or the error that ended it, in UTF-8.
        kind: TEXT, ERROR, or UNREADABLE: a message is none, and the service says why.
    """

    data: bytes
    kind: int


class ChatMemory:
    """The memory, as one side sees it.

    Args:
        number: the descriptor of the file; the caller closes it.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self._memory = mmap.mmap(number, 0)

    @classmethod
    def create(cls) -> ChatMemory:
        """Make a new file, with a descriptor that only a child which is given it gets."""
        number = os.memfd_create("warptok-chat", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(number, FIRST_BYTES)
            fcntl.fcntl(number, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
            return cls(number)
        except BaseException:
            os.close(number)
            raise

    def close(self) -> None:
        """Unmap the file, and close its descriptor."""
        self._memory.close()
        os.close(self.number)

    def write(self, *parts: bytes | memoryview) -> None:
        """Write the parts of a message for the other side, one behind another."""
        self._map(sum(map(len, parts)))
        begin = 0
        for part in parts:
            self._memory[begin : begin + len(part)] = part
            begin += len(part)

    def read(self, size: int, begin: int = 0) -> bytes:
        """Read `size` bytes of a message from `begin` on."""
        self._map(begin + size)
        return self._memory[begin : begin + size]

    def give_back(self) -> None:
        """Return memory beyond KEPT_BYTES to the system; the other side sees zeros there."""
        if len(self._memory) > KEPT_BYTES:
            self._memory.madvise(mmap.MADV_REMOVE, KEPT_BYTES)

    def _map(self, size: int) -> None:
        """Map at least `size` bytes of the file, and make it larger if necessary."""
        if size > len(self._memory):
            wanted = 1 << (size - 1).bit_length()
            self._memory.resize(max(wanted, self._memory.size()))
