"""Limits the threads that the library `tokenizers` starts in this process.

The library reads RAYON_NUM_THREADS once, before its first large batch.
"""

from __future__ import annotations

import os

from gpu.host.cores import limit_threads

TOKENIZERS = "RAYON_NUM_THREADS"


def limit_library_threads(most: int) -> None:
    """Limit the library to one thread per usable core, and to `most` threads; 0 means no limit.

    This has no effect after the library has encoded a large batch in this process.
    """
    os.environ[TOKENIZERS] = str(limit_threads(most))
