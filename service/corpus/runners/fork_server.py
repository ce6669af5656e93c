"""Starts the server from which the processes of a job are forked.

    command   imports | vocabulary, inputs | job ─────────────┐
    server    imports ······················ fork, fork, fork │
    process                                         receives the job | engine | parts

The server imports the modules of parts once, while the command is still importing its own. It has
no threads of Python, so that its forks copy no locks that others hold. This module imports little.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from multiprocessing import forkserver, get_context
from multiprocessing.context import ForkServerContext

THREADS_A_PROCESS = 4
BYTES_A_PROCESS = 2 << 30
"""Fewer bytes of files, of which Parquet has two or three times as much text, are done before
another process has opened a GPU."""
PRELOADED = (
    "service.cli.parser",  # The main module of the command, which each process imports.
    "service.corpus.runners.processes",
    "service.engines.cpu.text.tables",
    "service.engines.cpu.text.composer",
)


def choose_num_processes(num_parts: int, num_threads: int, num_bytes: int) -> int:
    """Return how many processes pay for a job.

    Args:
        num_parts: the parts of the job; a process runs one at a time.
        num_threads: the threads of all processes together.
        num_bytes: the size of the job's files.
    """
    return max(1, min(num_parts, num_threads // THREADS_A_PROCESS, num_bytes // BYTES_A_PROCESS))


def start_server() -> ForkServerContext:
    """Start the server, unless it runs; return the context whose processes are its forks.

    It ends with this process and those that were forked.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload([*PRELOADED])
    # Ctrl-C also reaches the server, which would print a traceback while it imports.
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)
    return context


def sum_sizes(paths: Sequence[str]) -> int:
    """Return the bytes of local files, and of all files in local folders; 0 for other paths."""
    size = 0
    for path in paths:
        for name in _list_files(path):
            try:
                size += os.stat(name).st_size
            except OSError:
                continue
    return size


def _list_files(path: str) -> list[str]:
    if not os.path.isdir(path):
        return [path]
    return [os.path.join(parent, name) for parent, _, names in os.walk(path) for name in names]
