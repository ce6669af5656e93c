"""Bounds the threads that the library tokenizers starts in this process.

It reads a variable of the environment before its first large batch, and never again.
"""

from __future__ import annotations

import os

from gpu.host.cores import limit_threads

TOKENIZERS = "RAYON_NUM_THREADS"


def limit_library_threads(most: int) -> None:
    """Let the library use one thread a usable core, but at most `most`; 0 is no limit.

    Has no effect on a library that has encoded a large batch in this process.
    """
    os.environ[TOKENIZERS] = str(limit_threads(most))
