"""Bounds the threads that fastokens and tokenizers start in this process.

Each library reads a variable of the environment before its first large batch, and never again.
fastokens starts no more threads than the machine lets it; with one it encodes in the caller's.
"""

from __future__ import annotations

import os

from gpu.host.cores import limit_threads

FASTOKENS, TOKENIZERS = "FASTOKENS_BPE_THREADS", "RAYON_NUM_THREADS"


def limit_library_threads(most: int) -> None:
    """Let the libraries use one thread a usable core, but at most `most`; 0 is no limit.

    Has no effect on a library that has encoded a large batch in this process.
    """
    number = str(limit_threads(most))
    os.environ[FASTOKENS] = os.environ[TOKENIZERS] = number


def has_library_threads() -> bool:
    """Return whether fastokens shares large batches among threads."""
    return limit_threads(int(os.environ.get(FASTOKENS, 0))) > 1
