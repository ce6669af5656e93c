"""Starts, watches and stops the process of a training job.

The process lowers its own priority. Closing its standard input requests it to stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from service.runtime.child_environment import child_environment

WORKER = (sys.executable, "-m", "service.training.worker")
LINE_BYTES = 1 << 20  # The longest line that is read; the worker's are shorter.
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL")}


class TrainingProcess:
    """The worker process of one job.

    Args:
        folder: the job's folder.
        memory_bytes: the limit of the process's memory.
        corpus_bytes: the most letters that the process reads.
        device: the device of the training.
        gpu_memory_share: the share of a GPU's free memory that the process may use.
        gpu: the number of the GPU that the process may use.
        worker: the command that starts the process.
    """

    def __init__(
        self,
        folder: Path,
        memory_bytes: int,
        corpus_bytes: int,
        *,
        device: str = "cpu",
        gpu_memory_share: float = 1.0,
        gpu: int = 0,
        worker: Sequence[str] = WORKER,
    ) -> None:
        self._command = (
            *worker,
            str(folder.absolute()),
            f"--memory-bytes={memory_bytes}",
            f"--corpus-bytes={corpus_bytes}",
            f"--device={device}",
            f"--gpu-memory-share={gpu_memory_share}",
            f"--gpu={gpu}",
        )
        self._process: Process | None = None
        self._is_stopped = False
        self._is_killed = False

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """Run the process and yield its events until it ends."""
        # In a session of its own, so that Ctrl-C in a terminal reaches only the service.
        self._process = process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=PIPE,
            stdout=PIPE,
            limit=LINE_BYTES,
            start_new_session=True,
            env=child_environment() | ONE_THREAD,
        )
        assert process.stdout is not None
        if self._is_killed:
            self.kill()
        elif self._is_stopped:
            self.stop()
        try:
            while line := await process.stdout.readline():
                yield json.loads(line)
            await process.wait()
        finally:
            self.kill()
            await process.wait()

    @property
    def ending_signal(self) -> int:
        """The signal that killed the process; 0 if it exited by itself."""
        assert self._process is not None
        return max(0, -(self._process.returncode or 0))

    def stop(self) -> None:
        """Request the process to save its state and exit."""
        self._is_stopped = True
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def kill(self) -> None:
        """Kill the process."""
        self._is_killed = True
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
