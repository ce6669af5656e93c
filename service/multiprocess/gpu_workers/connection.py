"""A connection between a process and its GPU worker, with blocking reads and writes.

Frames have the format of a link (link/frames.py). A thread that calls a GPU blocks here until the
answer, while a link would need an event loop in between. A message can also pass file descriptors.
This module does not interpret messages.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from service.multiprocess.link.frames import SIZES, Frame, Message, Place, pack

MAX_FILES = 1  # Of one message.


class Connection:
    """One end of a connection; one thread at a time uses it.

    Args:
        end: the socket.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def send(
        self,
        message: Message,
        places: Sequence[Place | None] = (),
        *,
        loan: int = 0,
        released: Sequence[int] = (),
        files: Sequence[int] = (),
    ) -> None:
        """Send a message.

        Args:
            message: the message.
            places: the place of each array in shared memory; None: the message contains the array.
            loan: the number of the loan of the arrays in shared memory; 0: they are not lent.
            released: the numbers of the peer's loans that are released.
            files: file descriptors to pass to the peer.

        Raises:
            OSError: the peer has ended.
        """
        first, *rest = pack(message, 0, places, loan, [*released])
        if files:
            num_sent = socket.send_fds(self._socket, [first], [*files])
            first = memoryview(first)[num_sent:]
        self._socket.sendall(first)
        for piece in rest:
            self._socket.sendall(piece)

    def receive(self) -> tuple[Frame, list[int]]:
        """Wait for a frame; return it without its arrays, and the received file descriptors.

        Raises:
            EOFError: the peer has ended.
            OSError: the connection was closed here.
        """
        flags = socket.MSG_CMSG_CLOEXEC
        head, files, _, _ = socket.recv_fds(self._socket, SIZES.size, MAX_FILES, flags)
        try:
            if not head:
                raise EOFError
            sizes = bytearray(SIZES.size)
            sizes[: len(head)] = head
            self._fill(memoryview(sizes)[len(head) :])
            content = bytearray(SIZES.size + sum(SIZES.unpack(sizes)))
            content[: SIZES.size] = sizes
            self._fill(memoryview(content)[SIZES.size :])
        except BaseException:
            for file in files:
                os.close(file)
            raise
        return Frame.of(content), files

    def _fill(self, buffer: memoryview) -> None:
        while buffer:
            size = self._socket.recv_into(buffer)
            if not size:
                raise EOFError
            buffer = buffer[size:]

    def shut(self) -> None:
        """Shut the connection down; threads that use it on either end get an error."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # It has ended.

    def close(self) -> None:
        """Close the connection; no thread may be using it."""
        self._socket.close()
