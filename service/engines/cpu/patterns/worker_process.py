"""Starts a worker, calls it, and kills it when a call takes too long or is abandoned."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Callable

from service.engines.base import Abandoned, LibraryFailed
from service.engines.cpu.patterns.messages import Message, receive, send
from service.runtime.child_environment import child_environment
from vocabularies.errors import Finding, VocabularyError

CHECK_S = 0.02  # Between two looks at the processor time of a call.
START_CPU_S = 30.0  # The most processor time in which a worker imports its modules.
# A call whose process gets no processor, or waits for ever, ends after this multiple of its time.
WALL_TIMES = 10
NO_BACKTRACE = {"RUST_BACKTRACE": "0"}  # The library panics where a match has too many steps.


class TookTooLong(Exception):
    """A call exceeded its time limit; its worker was killed.

    Attributes:
        seconds: the CPU time of the call.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(f"{seconds:.2f} s")


class WorkerProcess:
    """One worker; one thread at a time calls it.

    Args:
        is_quiet: whether the worker's standard error is discarded, for a library that is expected
            to fail.

    Attributes:
        is_alive: whether it can be called; False once it was killed or has ended.
    """

    def __init__(self, is_quiet: bool = False) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            # In a session of its own, so that Ctrl-C in a terminal reaches only the service.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "service.engines.cpu.patterns.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # It may be a pipe to the supervisor.
                stderr=subprocess.DEVNULL if is_quiet else None,
                env=child_environment() | NO_BACKTRACE,
                start_new_session=True,
            )
        self._socket.settimeout(CHECK_S)
        # Linux's clock of the processor time of another process, all of its threads together.
        self._clock = (~self._process.pid << 3) | 2
        self.is_alive = True
        # Also when nothing refers to it any more, and when this process ends.
        self._end = weakref.finalize(self, _end, self._socket, self._process)
        try:
            self.call(Message({"call": "start"}), START_CPU_S)
        except LibraryFailed as error:
            command = "python -m service.engines.cpu.patterns.worker"
            raise LibraryFailed(
                f"the process of the library tokenizers cannot start: {command}"
            ) from error

    def call(
        self, message: Message, cpu_s: float, should_continue: Callable[[], bool] = lambda: True
    ) -> Message:
        """Send a message and return the answer.

        Args:
            message: the name and the arguments of the call.
            cpu_s: the CPU time that the call may use, in seconds.
            should_continue: returns whether the answer is still needed.

        Raises:
            TookTooLong: the call took longer; the worker was killed.
            Abandoned: nobody needs the answer any more; the worker was killed.
            LibraryFailed: the library failed on a text, or ended the worker.
            VocabularyError: no encoder can compute the vocabulary.
            RuntimeError: the call failed.
        """
        last_end = time.monotonic() + WALL_TIMES * (cpu_s + 1)

        def check() -> None:
            if not should_continue():
                raise Abandoned
            seconds = time.clock_gettime(self._clock) - used_s
            if seconds > cpu_s or time.monotonic() > last_end:
                raise TookTooLong(seconds)

        message.values["cpu_s"] = cpu_s
        try:
            used_s = time.clock_gettime(self._clock)
            send(self._socket, message, check)
            answer = receive(self._socket, check)
        except (OSError, EOFError, ValueError) as error:
            self.kill()
            if self._process.returncode == -signal.SIGXCPU:
                raise TookTooLong(cpu_s) from error
            raise LibraryFailed("the library tokenizers ended its process") from error
        except BaseException:
            self.kill()
            raise
        if (refusal := _read_error(answer)) is not None:
            raise refusal
        return answer

    @property
    def has_ended(self) -> bool:
        """Return whether the worker has ended, perhaps while idle, as when memory ran out."""
        return not self.is_alive or self._process.poll() is not None

    def kill(self) -> None:
        """Kill the worker."""
        self.is_alive = False
        self._end()


def _end(sock: socket.socket, process: subprocess.Popen[bytes]) -> None:
    sock.close()
    process.kill()
    process.wait()


def _read_error(answer: Message) -> Exception | None:
    match answer.values.get("error"):
        case None:
            return None
        case "vocabulary":
            return VocabularyError([Finding(*fault) for fault in answer.values["findings"]])
        case "library":
            return LibraryFailed(answer.values["message"])
    return RuntimeError(answer.values["message"])
