"""Runs the parts of a job in several processes of this machine.

One interpreter feeds neither sixteen cores nor two GPUs: its threads wait for Python's lock. Each
process has its own lock, an equal share of the threads, and one GPU if there are any. The server of
`fork_server` forks them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from gpu.runtime.driver_devices import count_driver_devices
from service.corpus.job import Job
from service.corpus.parts.part import PartResult
from service.corpus.parts.progress import Progress
from service.corpus.runners.fork_server import start_server
from service.corpus.runners.remote_part import (
    Counts,
    PartLost,
    RemoteJob,
    RemotePart,
    open_remote_job,
    run_remote_part,
)
from vocabularies.model.vocabulary import Vocabulary

LOST = "a process of the job has ended before its part; run the same command again to continue"


def _reduce(items: MappingProxyType[Any, Any]) -> tuple[Callable[..., object], tuple[object, ...]]:
    return _make_proxy, (dict(items),)


def _make_proxy(items: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(items)


ForkingPickler.register(MappingProxyType, _reduce)  # Vocabularies have such fields.


@dataclass(frozen=True, slots=True)
class ProcessRunner:
    """Runs one part per process at a time; see `run.PartRunner`.

    Attributes:
        num_processes: the largest number of processes; a job has at most one a part.
        engine: "auto", "cpu" or "gpu".
        num_threads: the number of threads of all processes together, at least one each.
        progress: counts the work that was done.
        num_verified: the smallest number of documents that are compared with the reference.
    """

    num_processes: int
    engine: str
    num_threads: int
    progress: Progress
    num_verified: int = 0

    def run_parts(self, job: Job, vocabulary: Vocabulary, folder: Path) -> list[PartResult]:
        """Run all parts to their end, from their checkpoints; a part that fails stops the others.

        Raises:
            ValueError: "gpu" was requested, and there is no GPU.
            PartLost: a process has ended before its part.
        """
        num_gpus = 0 if self.engine == "cpu" else count_driver_devices()
        if self.engine == "gpu" and not num_gpus:
            raise ValueError("--engine gpu: there is no GPU that CUDA can use")
        num_parts = len(job.parts())
        num_processes = min(self.num_processes, num_parts)
        engine = self.engine if num_gpus else "cpu"
        num_threads = max(1, self.num_threads // num_processes)
        remote = open_remote_job(job, vocabulary, folder, engine, num_threads, self.num_verified)
        with _started(num_processes, remote, num_gpus) as connections:
            parts = self._run_all(connections, num_parts)
        self.progress.num_verified = sum(part.num_verified for part in parts)
        self.progress.remote_cpu_seconds = sum(part.cpu_seconds for part in parts)
        peaks: dict[int, int] = {}
        for part in parts:
            peaks[part.pid] = max(peaks.get(part.pid, 0), part.peak_bytes)
        self.progress.remote_peak_bytes = sum(peaks.values())
        return [part.result for part in parts]

    def _run_all(self, connections: list[Connection], num_parts: int) -> list[RemotePart]:
        """Give each process its next part when it has done one; return all parts in order.

        Raises:
            PartLost: a process has ended before its part.
            Exception: the error of a part that has failed.
        """
        numbers = iter(range(num_parts))
        running: dict[Connection, int] = {}
        done: dict[int, RemotePart] = {}
        for connection, number in zip(connections, numbers, strict=False):
            _send(connection, ForkingPickler.dumps(number))
            running[connection] = number
        while running:
            for connection in cast("list[Connection]", wait([*running])):
                answer = _receive(connection)
                if isinstance(answer, Exception):
                    raise answer
                if isinstance(answer, Counts):
                    *added, skipped_bytes = answer
                    self.progress.skip(skipped_bytes)
                    self.progress.add(*added)
                    continue
                done[running.pop(connection)] = answer
                if (number := next(numbers, -1)) >= 0:
                    _send(connection, ForkingPickler.dumps(number))
                    running[connection] = number
        return [done[number] for number in range(num_parts)]


def _send(connection: Connection, message: bytes | memoryview) -> None:
    """Send a process the pickled job, or the number of its next part.

    Raises:
        PartLost: the process has ended.
    """
    try:
        connection.send_bytes(message)
    except OSError as error:
        raise PartLost(LOST) from error


def _receive(connection: Connection) -> Counts | RemotePart | Exception:
    """Receive what a process has sent.

    Raises:
        PartLost: the process has ended, perhaps in the middle of a message.
    """
    try:
        answer: Counts | RemotePart | Exception = connection.recv()
    except (EOFError, OSError) as error:
        raise PartLost(LOST) from error
    return answer


@contextlib.contextmanager
def _started(count: int, remote: RemoteJob, num_gpus: int) -> Iterator[list[Connection]]:
    """Start processes, and yield a connection to each; end them, also in the middle of a part."""
    context = start_server()
    connections: list[Connection] = []
    processes = []
    try:
        for number in range(count):
            own, other = context.Pipe()
            connections.append(own)
            with other:
                arguments = (other, number, num_gpus)
                process = context.Process(target=_run_parts, args=arguments)
                process.start()
                processes.append(process)
        message = bytes(ForkingPickler.dumps(remote))
        for connection in connections:
            # As an argument of the process, it would block for ever if the process ended now.
            _send(connection, message)
        yield connections
    finally:
        for connection in connections:
            connection.close()
        for process in processes:
            process.kill()  # What it was writing is removed by the next run.
        for process in processes:
            process.join()


def choose_gpu(visible: str, number: int, num_gpus: int) -> str:
    """Return the name of a process's GPU for CUDA_VISIBLE_DEVICES.

    Args:
        visible: the variable's value; "" if it is not set.
        number: the number of the process.
        num_gpus: the number of GPUs that CUDA sees.
    """
    names = visible.split(",") if visible else [str(gpu) for gpu in range(num_gpus)]
    return names[number % num_gpus].strip()


def _run_parts(connection: Connection, number: int, num_gpus: int) -> None:
    """Run parts until the parent names no other one; called in a process that was started here."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent ends all processes.
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if num_gpus:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        os.environ["CUDA_VISIBLE_DEVICES"] = choose_gpu(visible, number, num_gpus)
    with contextlib.suppress(EOFError, OSError):  # The parent has closed the connection.
        remote = connection.recv()
        while True:
            part = connection.recv()
            try:
                connection.send(run_remote_part(remote, part, connection.send))
            except Exception as error:
                connection.send(_as_message(error))


def _as_message(error: Exception) -> Exception:
    """Return an error that the parent can receive, with the place where it was raised."""
    place = "".join(traceback.format_exception(error))
    try:
        ForkingPickler.loads(ForkingPickler.dumps(error))
    except Exception:  # Some classes cannot be pickled, others not read again.
        return RuntimeError(place)
    error.add_note(place)
    return error


def _end_with_parent() -> None:
    """End this process when the command has been killed, so that the folder is free again."""
    command = parent_process()
    assert command is not None
    command.join()
    os._exit(1)
