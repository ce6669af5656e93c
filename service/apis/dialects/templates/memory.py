"""Memory that the service shares with one template process, for chats and their rendered texts.

A long chat does not fit into a pipe, so that each side would have to wait for the other several
times. Therefore the pipe only transfers the sizes of a message, which is in this memory. The two
sides use the memory alternately, never at the same time. It is an anonymous memory file, which
cannot be shrunk.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from typing import NamedTuple

READY = b"ready"  # The first message of the process.
REQUEST = struct.Struct("<III")  # The sizes of the three parts of a request.
ANSWER = struct.Struct("<IB")  # The size and the kind of an answer.
TEXT, ERROR, UNREADABLE = range(3)
FIRST_BYTES = 1 << 16
KEPT_BYTES = 4 << 20  # Memory beyond it is returned to the system.


class Request(NamedTuple):
    """A chat to render.

    Attributes:
        json: what to render, without the messages if `messages` contains them.
        messages: the messages as a JSON list; empty if `json` contains them.
        places: uint32, the start and the end of each message in `messages`.
    """

    json: bytes
    messages: bytes | memoryview = b""
    places: bytes = b""


class Answer(NamedTuple):
    """The answer of a process to a chat.

    Attributes:
        data: the rendered text in UTF-8, or the error that ended it.
        kind: TEXT, ERROR, or UNREADABLE if a message is invalid; the service then finds the fault.
    """

    data: bytes
    kind: int


class ChatMemory:
    """The shared memory, as mapped by one side.

    Args:
        number: the file descriptor; `close` closes it.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self._memory = mmap.mmap(number, 0)

    @classmethod
    def create(cls) -> ChatMemory:
        """Create a new memory file, whose descriptor only an explicitly chosen child inherits."""
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
        """Write the parts of a message for the other side, one after another."""
        self._map(sum(map(len, parts)))
        begin = 0
        for part in parts:
            self._memory[begin : begin + len(part)] = part
            begin += len(part)

    def read(self, size: int, begin: int = 0) -> bytes:
        """Read `size` bytes of a message, starting at `begin`."""
        self._map(begin + size)
        return self._memory[begin : begin + size]

    def give_back(self) -> None:
        """Return memory beyond KEPT_BYTES to the system; it then contains zeros."""
        if len(self._memory) > KEPT_BYTES:
            self._memory.madvise(mmap.MADV_REMOVE, KEPT_BYTES)

    def _map(self, size: int) -> None:
        """Map at least `size` bytes of the file, and enlarge it if necessary."""
        if size > len(self._memory):
            wanted = 1 << (size - 1).bit_length()
            self._memory.resize(max(wanted, self._memory.size()))
