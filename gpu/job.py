"""The one argument of every kernel as NumPy knows it, read from cuda/job.cuh, its only definition."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import numpy as np

__all__ = ["CUDA", "JOB", "constant"]

CUDA = Path(__file__).parent / "cuda"
_FIELD = re.compile(r"^ {4}(?:const )?\w+[ *]+(\w+)(?:\[(\w+)\])?;", re.MULTILINE)


@functools.cache
def constant(name: str) -> int:
    """The value of a `constexpr` number in cuda/*.cuh.

    Raises:
        LookupError: there is none of this name.
    """
    for path in sorted(CUDA.glob("*.cuh")):
        found = re.search(rf"constexpr \w+ {name} = ([^;]+);", path.read_text())
        if found:
            words = re.sub(r"\b[A-Z]\w+", lambda word: str(constant(word[0])), found[1])
            return int(eval(words.rstrip("u"), {"__builtins__": {}}))  # noqa: S307
    raise LookupError(f"no constant is called {name} in cuda/*.cuh")


def _fields() -> np.dtype[np.void]:
    text = (CUDA / "job.cuh").read_text()
    body = text[text.index("struct Job {") :]
    body = body[: body.index("\n};")]
    fields = []
    for name, count in _FIELD.findall(body):
        fields.append((name, np.uint64, (constant(count),)) if count else (name, np.uint64))
    return np.dtype(fields)


JOB = _fields()
"""One record of 8-byte fields; a pointer is the address."""
