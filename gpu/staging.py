"""Copies from ordinary into pinned memory, by several threads.

One thread copies 12 to 16 GB/s on the machines that were measured, four 42 to 55, and NumPy lets go
of the interpreter meanwhile. Knows neither batches nor devices.
"""

from __future__ import annotations

import threading
from collections import deque
from queue import SimpleQueue
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

__all__ = ["Copy", "Staging"]

Bytes = NDArray[np.uint8]
NUM_THREADS = 4
PIECE_BYTES = 1 << 20  # At least: a thread that slept takes as long to wake.
SHARED_BYTES = 1 << 18  # A piece of a copy that the caller takes part in.
_Pieces = deque[tuple[Bytes, Bytes, SimpleQueue[float]]]


class Copy:
    """A copy that is under way.

    Attributes:
        seconds: what it took, once it is complete.
    """

    __slots__ = ("_begin", "_done", "_num_pieces", "seconds")

    def __init__(self, num_pieces: int, done: SimpleQueue[float], begin: float) -> None:
        self._num_pieces, self._done, self._begin = num_pieces, done, begin
        self.seconds = 0.0 if num_pieces else perf_counter() - begin

    def wait(self) -> None:
        """Wait until it is complete; a second call returns at once."""
        while self._num_pieces:
            self.seconds = max(self.seconds, self._done.get() - self._begin)
            self._num_pieces -= 1


class Staging:
    """Threads that copy; they start with the first large copy and end with `close`.

    Args:
        num_threads: of its own, beside the one that waits.
    """

    def __init__(self, num_threads: int = NUM_THREADS) -> None:
        self.num_threads = num_threads
        self._waiting: SimpleQueue[_Pieces | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._starting = threading.Lock()

    def start(self, target: Bytes, source: Bytes) -> Copy:
        """Begin to copy uint8[N] to the front of `target`; both stay as they are meanwhile.

        What is too small for several threads is complete when this returns.
        """
        done: SimpleQueue[float] = SimpleQueue()
        begin_s = perf_counter()
        if len(source) <= PIECE_BYTES:
            target[: len(source)] = source
            return Copy(0, done, begin_s)
        pieces = _cut(target, source, max(PIECE_BYTES, -(-len(source) // self.num_threads)), done)
        num_pieces = len(pieces)
        self._send(pieces, num_pieces)
        return Copy(num_pieces, done, begin_s)

    def share(self, target: Bytes, source: Bytes) -> None:
        """Copy uint8[N] to the front of `target`, the caller's thread and these together."""
        done: SimpleQueue[float] = SimpleQueue()
        begin_s = perf_counter()
        pieces = _cut(target, source, SHARED_BYTES, done)
        copy = Copy(len(pieces), done, begin_s)
        self._send(pieces, self.num_threads)
        _copy(pieces)
        copy.wait()

    def _send(self, pieces: _Pieces, num_threads: int) -> None:
        self._start_threads()
        for _ in range(num_threads):
            self._waiting.put(pieces)

    def _start_threads(self) -> None:
        if len(self._threads) == self.num_threads:
            return
        with self._starting:
            while len(self._threads) < self.num_threads:
                name = f"staging-{len(self._threads)}"
                thread = threading.Thread(target=self._work, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()

    def _work(self) -> None:
        while (pieces := self._waiting.get()) is not None:
            _copy(pieces)

    def close(self) -> None:
        """End the threads; copies under way are completed."""
        with self._starting:
            for _ in self._threads:
                self._waiting.put(None)
            for thread in self._threads:
                thread.join()
            self._threads.clear()


def _cut(target: Bytes, source: Bytes, size: int, done: SimpleQueue[float]) -> _Pieces:
    """Pieces of a copy; whoever has copied one says when, in `done`."""
    pieces = _Pieces()
    for begin in range(0, len(source), size):
        piece = source[begin : begin + size]
        pieces.append((target[begin : begin + len(piece)], piece, done))
    return pieces


def _copy(pieces: _Pieces) -> None:
    """Take pieces and copy them until others have taken all that is left."""
    while True:
        try:
            target, source, done = pieces.popleft()
        except IndexError:
            return
        target[:] = source
        del target, source  # Nobody's memory is held by a copy that is complete.
        done.put(perf_counter())
