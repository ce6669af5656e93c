"""Kernels on torch's streams without a GPU: g++ compiles them, and their threads run in order."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence

import numpy as np

from gpu.kernels.job import CUDA
from tests.support import compiled as libraries

FLAGS = (*libraries.EMULATION_FLAGS, f"-I{CUDA}", "-Wall", "-Wextra", "-Werror")
FLAGS += ("-Wno-unused-function",)


@functools.cache
def compiled(name: str, source: str) -> ctypes.CDLL:
    """Compile C++ that includes headers of gpu/cuda to a library; skip without g++."""
    headers = sorted(CUDA.rglob("*.cuh"))
    return ctypes.CDLL(str(libraries.compiled(name, source, FLAGS, headers)))


class EmulatedKernels:
    """RowKernels whose kernels are functions (struct, blocks) of a library."""

    def __init__(self, library: ctypes.CDLL, threads: int) -> None:
        self.library, self.threads = library, threads
        self.launches: list[str] = []

    def launch(
        self, name: str, blocks: int, threads: int, stream: int, fields: Sequence[int]
    ) -> None:
        assert threads == self.threads
        self.launches.append(name)
        words = np.array(fields, np.int64)
        getattr(self.library, name)(words.ctypes, ctypes.c_uint64(blocks))

    def copy_in(self, device: int, host: int, num_bytes: int, stream: int) -> None:
        ctypes.memmove(device, host, num_bytes)


def memory(num_bytes: int) -> np.ndarray:
    """Allocate memory for text with torch, not cleared."""
    return np.full(num_bytes, 0xEE, np.uint8)
