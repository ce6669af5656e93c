"""Shows the progress of a job in a line on stderr, rewritten in place on a terminal."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path
from time import perf_counter
from typing import Protocol, TextIO

PERIOD_S = 0.5
LOG_PERIOD_S = 30.0
MEGA = 1e6


class PartProgress(Protocol):
    """Receives the progress of a part."""

    def skip(self, num_bytes: int) -> None:
        """Add bytes of files that an earlier run has processed."""

    def add(self, num_bytes: int, text_bytes: int, num_documents: int, num_tokens: int) -> None:
        """Add finished work."""


class Progress:
    """Counts the work of all parts of a job; it is thread-safe.

    Args:
        total_bytes: the bytes of all files as stored, perhaps compressed.
        stream: the stream of the line; None: no line is written.

    Attributes:
        num_verified: the number of documents compared with the reference, set when the job is done.
        remote_cpu_seconds: the CPU time of other processes, set when the job is done.
        remote_peak_bytes: the sum of the most resident memory of other processes of this machine.
    """

    def __init__(self, total_bytes: int, stream: TextIO | None = sys.stderr) -> None:
        self.total_bytes = total_bytes
        self.num_bytes = self.text_bytes = self.num_documents = self.num_tokens = 0
        self.skipped_bytes = self.num_verified = 0
        self.remote_cpu_seconds = 0.0
        self.remote_peak_bytes = 0
        self.started = perf_counter()
        self._stream = stream
        self._is_terminal = stream is not None and stream.isatty()
        self._shown = self.started
        self._lock = threading.Lock()

    @property
    def seconds(self) -> float:
        """The seconds since the start."""
        return perf_counter() - self.started

    def skip(self, num_bytes: int) -> None:
        """Add bytes of files that an earlier run has processed."""
        with self._lock:
            self.skipped_bytes += num_bytes

    def add(self, num_bytes: int, text_bytes: int, num_documents: int, num_tokens: int) -> None:
        """Count finished work, and show the line from time to time."""
        with self._lock:
            self.num_bytes += num_bytes
            self.text_bytes += text_bytes
            self.num_documents += num_documents
            self.num_tokens += num_tokens
            now = perf_counter()
            period = PERIOD_S if self._is_terminal else LOG_PERIOD_S
            if self._stream is None or now - self._shown < period:
                return
            self._shown = now
            end = "\x1b[K\r" if self._is_terminal else "\n"
            self._stream.write(self.line() + end)
            self._stream.flush()

    def line(self) -> str:
        """Describe the state in a line."""
        seconds = max(self.seconds, 1e-9)
        rate = self.num_bytes / seconds
        left_bytes = max(0, self.total_bytes - self.skipped_bytes - self.num_bytes)
        left = _duration(left_bytes / rate) if rate else "?"
        return (
            f"{self.num_documents:,} documents, {self.num_tokens:,} tokens, "
            f"{self.text_bytes / MEGA / seconds:,.0f} MB/s of text, "
            f"{self.num_tokens / MEGA / seconds:,.1f} M tokens/s, {left} left"
        )

    def close(self) -> None:
        """Clear the line on a terminal."""
        if self._stream is not None and self._is_terminal:
            self._stream.write("\x1b[K")
            self._stream.flush()


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"


def peak_memory() -> int | None:
    """Return the most resident memory so far; None: the system does not report it.

    getrusage is not used, as its maximum may include that of the process that started this one.
    """
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    found = re.search(r"VmHWM:\s*(\d+) kB", status)
    return int(found[1]) * 1024 if found else None
