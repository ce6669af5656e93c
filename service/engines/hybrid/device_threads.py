"""Runs the calls of one device on separate threads, so that callers can stop waiting when it hangs.

A thread pool of the standard library would prevent the process from ending while a thread hangs.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

Output = TypeVar("Output")


class _Call(NamedTuple):
    """A function to call, and the future for its result."""

    call: Callable[[], Any]
    future: Future[Any]


class DeviceThreads:
    """Daemon threads; a new one starts when all others are busy.

    Args:
        name: the name of the threads.
        cores: the cores near the device on which the threads run; empty: any cores.
    """

    def __init__(self, name: str, cores: frozenset[int] = frozenset()) -> None:
        self._name, self._cores = name, cores
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._num_threads = self._num_idle = 0
        self._is_closed = False

    def submit(self, call: Callable[[], Output]) -> Future[Output]:
        """Start a call on a thread.

        Raises:
            RuntimeError: the threads were closed.
        """
        future: Future[Output] = Future()
        with self._lock:
            if self._is_closed:
                raise RuntimeError(f"{self._name} is closed")
            if self._num_idle:
                self._num_idle -= 1
            else:
                self._num_threads += 1
                threading.Thread(target=self._run, name=self._name, daemon=True).start()
            self._calls.put(_Call(call, future))
        return future

    def close(self) -> None:
        """End all threads after the calls that were submitted."""
        with self._lock:
            self._is_closed = True
            for _ in range(self._num_threads):
                self._calls.put(None)

    def _run(self) -> None:
        if self._cores:
            with suppress(OSError):
                os.sched_setaffinity(0, self._cores)  # Of this thread, and those that it starts.
        while (call := self._calls.get()) is not None:
            self._complete(call)
            del call  # It would keep the texts of its batch until the next one comes.

    def _complete(self, call: _Call) -> None:
        """Run a call; count the thread as idle before the caller gets the result."""
        future = call.future
        try:
            output = call.call()
        except BaseException as error:
            del call  # The error's traceback leads to this frame, which would keep the texts.
            self._add_idle()
            future.set_exception(error)
            del future
        else:
            self._add_idle()
            future.set_result(output)

    def _add_idle(self) -> None:
        with self._lock:
            self._num_idle += 1
