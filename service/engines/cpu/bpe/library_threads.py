"""Limits the threads that the library `tokenizers` starts in this process.

The library reads RAYON_NUM_THREADS once, before its first large batch.
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
