"""Skips tests under compute-sanitizer, which finds wrong memory accesses of kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

LIBRARY = "libsanitizer-collection.so"  # Loaded into each process that it starts.


def skip_under_compute_sanitizer() -> None:
    """Skip the rest of a test that counts the memory which answers free.

    Under compute-sanitizer answers are never freed: it keeps the frames of their calls.
    """
    if LIBRARY in Path("/proc/self/maps").read_text():
        pytest.skip("compute-sanitizer keeps frames, and with them the memory of answers")
