"""What tests do under compute-sanitizer, which finds wrong accesses of kernels to memory."""

from __future__ import annotations

from pathlib import Path

import pytest

LIBRARY = "libsanitizer-collection.so"  # Loaded into each process that it starts.


def skip_under_compute_sanitizer() -> None:
    """Skip the rest of a test, which counts memory that answers give back.

    Under compute-sanitizer they keep it: the frames of the calls that made them are never freed.
    """
    if LIBRARY in Path("/proc/self/maps").read_text():
        pytest.skip("compute-sanitizer keeps frames, and with them the memory of answers")
