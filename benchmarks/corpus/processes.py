"""Measures a command with all processes that it starts: seconds, processor seconds, memory."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

POLL_S = 0.02
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class CommandFailed(RuntimeError):
    """A command ended with an error; the message has the end of its output."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """The time and memory that a command took.

    Attributes:
        seconds: from its start to its end.
        cpu_seconds: of all its processes.
        peak_bytes: the most memory of all its processes together, in samples.
    """

    seconds: float
    cpu_seconds: float
    peak_bytes: int


def measure(command: Sequence[str], environment: dict[str, str] | None = None) -> Measurement:
    """Run a command to its end.

    Raises:
        CommandFailed: it ended with an error.
    """
    begun = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **(environment or {})},
        start_new_session=True,
    )
    peak = 0
    used: dict[int, float] = {}
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    written = b""
    while process.poll() is None:
        written = (written + (process.stdout.read() or b""))[-4000:]
        peak = max(peak, _look_at_group(process.pid, used))
        time.sleep(POLL_S)
    seconds = time.perf_counter() - begun
    written += process.stdout.read() or b""
    process.stdout.close()
    if process.returncode not in (0, 1):
        raise CommandFailed(f"{' '.join(command[:4])}: {written.decode(errors='replace')}")
    return Measurement(seconds, sum(used.values()), peak)


def _look_at_group(group: int, used: dict[int, float]) -> int:
    """Add the resident memory of a process group, and note the processor seconds of each process.

    Memory that processes share counts once for each.
    """
    total = 0
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) == group:
                total += int((folder / "statm").read_text().split()[1]) * PAGE_BYTES
                ticks = int(fields[11]) + int(fields[12])
                used[int(folder.name)] = ticks / os.sysconf("SC_CLK_TCK")
        except (OSError, IndexError, ValueError):  # It has ended meanwhile.
            continue
    return total
