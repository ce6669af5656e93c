"""Connections between a process and its GPU worker.

Frames have the format of a link (link/frames.py). A thread that calls a GPU blocks in `Connection`
until the answer, while a link would need an event loop in between; `WatchedConnection` is for calls
that the event loop itself makes. A message can also pass file descriptors. This module does not
interpret messages.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Sequence

from service.multiprocess.link.frames import SIZES, Frame, Message, PlacedArray, pack

MAX_FILES = 1  # Of one message.
BUFFER_BYTES = 1 << 14  # Larger frames get a larger buffer.


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
        placed: Sequence[PlacedArray] = (),
        *,
        loan: int = 0,
        released: Sequence[int] = (),
        files: Sequence[int] = (),
    ) -> None:
        """Send a message.

        Args:
            message: the message.
            placed: its arrays.
            loan: the number of the loan of the arrays in shared memory; 0: they are not lent.
            released: the numbers of the peer's loans that are released.
            files: file descriptors to pass to the peer.

        Raises:
            OSError: the peer has ended.
        """
        first, *rest = pack(message, placed, 0, loan, [*released])
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


class WatchedConnection(Connection):
    """A connection that the running event loop reads; one call at a time uses it, on the loop.

    Args:
        end: the socket.
        handle: called with each frame, and with None once the peer has ended.

    Attributes:
        loop: the event loop.
    """

    def __init__(
        self, end: socket.socket, handle: Callable[[WatchedConnection, Frame | None], None]
    ) -> None:
        super().__init__(end)
        self.loop = asyncio.get_running_loop()
        self._handle = handle
        self._buffer = bytearray(BUFFER_BYTES)
        self._num_received = 0
        self.loop.add_reader(end, self._read)

    def close(self) -> None:
        """End the connection from any thread; the loop closes the socket, if it still runs."""
        self.shut()
        if self.loop.is_closed():
            self._socket.close()

    def _read(self) -> None:
        """Read what has arrived of a frame; the peer sends the next one only after an answer."""
        try:
            free = memoryview(self._buffer)[self._num_received :]
            size = self._socket.recv_into(free, flags=socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            size = 0
        if not size:
            self.loop.remove_reader(self._socket)
            self._socket.close()
            self._handle(self, None)
            return
        self._num_received += size
        if self._num_received < SIZES.size:
            return
        frame_bytes = SIZES.size + sum(SIZES.unpack_from(self._buffer))
        if self._num_received == frame_bytes:
            self._num_received = 0
            self._handle(self, Frame.of(self._buffer[:frame_bytes]))
        elif frame_bytes > len(self._buffer):
            del free
            self._buffer.extend(bytes(frame_bytes - len(self._buffer)))
