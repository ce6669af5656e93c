"""Runs tasks in the threads of a pool, and yields their results in the order of the tasks.

    tasks ─► a thread that takes them (and reads files) ─► pool ─► results, in order

The number of tasks between the first and the last arrow is limited, so memory is bounded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, Queue
from typing import Generic, TypeVar

Result = TypeVar("Result")
POLL_S = 0.2


class Stopped(Exception):
    """Raised in tasks whose results are not needed any more."""


class OrderedRun(Generic[Result]):
    """Runs tasks, and yields their results in order.

    Args:
        pool: runs the tasks.
        max_ahead: the most tasks whose results have not been yielded.
    """

    def __init__(self, pool: ThreadPoolExecutor, max_ahead: int) -> None:
        self._pool = pool
        self._queue: Queue[Future[Result] | None] = Queue(max_ahead)
        self._condition = threading.Condition()
        self._num_yielded = 0
        self._is_stopped = False
        self._running = threading.local()

    def wait_for_turn(self) -> None:
        """Wait until all earlier results were yielded; for a task that needs much memory.

        The task calls it, or the iterator of tasks for its next one.

        Raises:
            Stopped: the results are not needed any more.
        """
        with self._condition:
            number: int = self._running.number
            self._condition.wait_for(lambda: self._is_stopped or self._num_yielded >= number)
            if self._is_stopped:
                raise Stopped

    def run(self, tasks: Iterator[Callable[[], Result]]) -> Iterator[Result]:
        """Yield the result of each task; raise an error of a task or of the iterator of tasks."""
        errors: list[BaseException] = []
        feeder = threading.Thread(target=self._feed, args=(tasks, errors), daemon=True)
        feeder.start()
        try:
            while (future := self._queue.get()) is not None:
                result = future.result()
                del future
                yield result
                del result
                with self._condition:
                    self._num_yielded += 1
                    self._condition.notify_all()
        except BaseException:
            self._stop()
            raise
        finally:
            feeder.join()
        if errors:
            raise errors[0]

    def _feed(self, tasks: Iterator[Callable[[], Result]], errors: list[BaseException]) -> None:
        number = 0
        try:
            self._running.number = 0
            for task in tasks:
                if self._is_stopped:
                    break
                self._put(self._pool.submit(self._run_task, number, task))
                del task
                number += 1
                self._running.number = number
        except BaseException as error:
            errors.append(error)
        finally:
            self._put(None)

    def _run_task(self, number: int, task: Callable[[], Result]) -> Result:
        self._running.number = number
        return task()

    def _put(self, future: Future[Result] | None) -> None:
        # `_stop` makes room.
        self._queue.put(future)

    def _stop(self) -> None:
        """Wake all waiting threads, so that they end."""
        with self._condition:
            self._is_stopped = True
            self._condition.notify_all()
        while True:
            try:
                future = self._queue.get(timeout=POLL_S)
            except Empty:
                return
            if future is None:
                return
            future.cancel()
