"""The papers' kernels without a GPU: compiled as C++, a block's threads as fibers."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Sequence
from time import perf_counter

import numpy as np

from benchmarks.papers.kernels.block_merge import (
    BUFFERS,
    INCLUDED,
    SOURCE,
    Ids,
    arguments_of,
    rows_of,
    shared_bytes,
)
from benchmarks.papers.kernels.merges_alone import MergesAlone, MergeTable, offsets_of
from gpu.kernels.job import CUDA
from tests.support.compiled import EMULATION_FLAGS, compiled
from tests.support.emulation.device import EMULATION
from vocabularies.builtin import load


@functools.cache
def library() -> ctypes.CDLL:
    """Compile the kernels as C++ with a function that launches one by its name."""
    cases = (
        f'if (name == "{kernel}") return run([=] {{ {kernel}(text, begins, byte_ids, merges, '
        f"ids, counts, mask, capacity); }}, blocks, threads), 0;"
        for kernel in BUFFERS
    )
    source = "\n".join(
        (
            f'#define WARPTOK_EMULATION "{EMULATION}"',
            f'#include "{SOURCE}"',
            "#include <string>",
            "static void run(std::function<void()> body, uint32_t blocks, uint32_t threads) {",
            "  emulation::grid_size.x = blocks, emulation::block_size.x = threads;",
            "  for (uint32_t i = 0; i < blocks; i++) emulation::run_blocks(i, 1, threads, body);",
            "}",
            'extern "C" int launch(const char* kernel, uint32_t blocks, uint32_t threads,',
            "                      uint64_t shared, const uint8_t* text, const uint32_t* begins,",
            "                      const uint32_t* byte_ids, const Merge* merges, uint32_t* ids,",
            "                      uint32_t* counts, uint32_t mask, uint32_t capacity) {",
            "  std::string name = kernel; emulation::shared_bytes = shared;",
            *cases,
            "  return 1;",
            "}",
        )
    )
    included = (EMULATION, SOURCE, CUDA / INCLUDED)
    flags = (*EMULATION_FLAGS, f"-I{CUDA}")
    return ctypes.CDLL(str(compiled("block-merge", source, flags, included)))


@functools.cache
def table() -> MergeTable:
    return MergeTable.of(load("gpt2"))


@functools.cache
def reference() -> MergesAlone:
    return MergesAlone(load("gpt2"))


def merged(kernel: str, texts: Sequence[bytes], threads: int) -> list[Ids]:
    """Merge texts by a kernel."""
    begins, data = offsets_of(texts), np.frombuffer(b"".join(texts) + b"\0", np.uint8)
    capacity = max(1, *map(len, texts))
    ids, counts = np.zeros(len(data), np.uint32), np.zeros(len(texts), np.uint32)
    arguments = arguments_of(table(), data, begins, ids, counts)
    numbers = map(ctypes.c_uint32, (table().mask, capacity))
    shared = ctypes.c_uint64(shared_bytes(kernel, capacity))
    launched = library().launch(kernel.encode(), len(texts), threads, shared, *arguments, *numbers)
    assert launched == 0
    return rows_of(ids, begins, counts)


class EmulatedBlockMerges:
    """`BlockMerges` whose kernels run at the launch; texts are the bytes themselves."""

    def __init__(self) -> None:
        self.found: list[Ids] = []

    def put(self, texts: Sequence[bytes]) -> Sequence[bytes]:
        return texts

    def launch(self, kernel: str, texts: Sequence[bytes], threads: int) -> None:
        self.found = merged(kernel, texts, min(threads, 64))

    def fetch(self, texts: Sequence[bytes]) -> list[Ids]:
        return self.found

    def seconds(self, kernel: str, texts: Sequence[bytes], threads: int) -> float:
        begin = perf_counter()
        self.launch(kernel, texts, threads)
        return perf_counter() - begin

    def encode(self, kernel: str, texts: Sequence[bytes], threads: int) -> list[Ids]:
        return merged(kernel, texts, min(threads, 64))

    def without_pool(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()
