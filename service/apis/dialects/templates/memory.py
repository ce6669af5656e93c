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
REQUEST = struct.Struct("<I")  # The length of a request.
ANSWER = struct.Struct("<I?")  # The length of an answer, and whether it is an error.
FIRST_BYTES = 1 << 16
KEPT_BYTES = 4 << 20  # The memory of longer messages is returned to the system.


class Answer(NamedTuple):
    """The text that a template wrote, or the error that ended it, in UTF-8."""

    data: bytes
    is_error: bool


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

    def write(self, message: bytes) -> None:
        """Write a message for the other side."""
        self._map(len(message))
        self._memory[: len(message)] = message

    def read(self, size: int) -> bytes:
        """Read a message of `size` bytes."""
        self._map(size)
        return self._memory[:size]

    def give_back(self) -> None:
        """Return memory beyond KEPT_BYTES to the system; the other side sees zeros there."""
        if len(self._memory) > KEPT_BYTES:
            self._memory.madvise(mmap.MADV_REMOVE, KEPT_BYTES)

    def _map(self, size: int) -> None:
        """Map at least `size` bytes of the file, and make it larger if necessary."""
        if size > len(self._memory):
            wanted = 1 << (size - 1).bit_length()
            self._memory.resize(max(wanted, self._memory.size()))
