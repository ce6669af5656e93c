"""Copies from ordinary into pinned memory, by several threads.

One thread copies 16 GB/s on the machine that was measured, four 55 and more, and NumPy lets go of
the interpreter meanwhile. Knows neither batches nor devices.
"""

from __future__ import annotations

import threading
from queue import SimpleQueue
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

__all__ = ["Copy", "Staging"]

Bytes = NDArray[np.uint8]
NUM_THREADS = 4
PIECE_BYTES = 1 << 20  # At least: a thread that slept takes as long to wake.


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
        self._waiting: SimpleQueue[tuple[Bytes, Bytes, SimpleQueue[float]] | None] = SimpleQueue()
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
        self._start_threads()
        size = max(PIECE_BYTES, -(-len(source) // self.num_threads))
        begins = range(0, len(source), size)
        for begin in begins:
            piece = source[begin : begin + size]
            self._waiting.put((target[begin : begin + len(piece)], piece, done))
        return Copy(len(begins), done, begin_s)

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
        while (piece := self._waiting.get()) is not None:
            target, source, done = piece
            target[:] = source
            del piece, target, source  # Nobody's memory is held while this waits.
            done.put(perf_counter())

    def close(self) -> None:
        """End the threads; copies under way are completed."""
        with self._starting:
            for _ in self._threads:
                self._waiting.put(None)
            for thread in self._threads:
                thread.join()
            self._threads.clear()
