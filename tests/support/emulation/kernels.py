"""Runs the kernels of gpu/cuda without a GPU: compiled as C++ against cuda/emulation.hpp.

Each .cu becomes one shared library, kept in build/ under the digest of everything it is made of.
"""

from __future__ import annotations

import ctypes
import functools
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpu.kernels.catalog import KERNELS
from gpu.kernels.job import CUDA, JOB
from tests.support.compiled import EMULATION_FLAGS, compiled

HEADER = Path(__file__).parent / "cuda" / "emulation.hpp"
WARNINGS = "-Wall -Wextra -Werror -Wno-unused-function".split()
KERNEL = re.compile(
    r"^KERNEL (?:__launch_bounds__\([^)]*\) )?(\w+)\(const Job\* job\)", re.MULTILINE
)
LAUNCHER = """
extern "C" void launch(void (*kernel)(const Job*), uint32_t blocks, uint32_t threads,
                       const Job* job, size_t shared_bytes) {
    emulate(kernel, blocks, threads, job, shared_bytes);
}
"""


def launch(name: str, blocks: int, threads: int, job: NDArray[np.void]) -> None:
    """Run a kernel of any .cu on a record of type JOB."""
    assert job.dtype == JOB
    library = _library(_source_of(name))
    kernel = ctypes.cast(getattr(library, name), ctypes.c_void_p)
    shared = ctypes.c_size_t(KERNELS[name].shared_bytes if name in KERNELS else 0)
    library.launch(kernel, ctypes.c_uint32(blocks), ctypes.c_uint32(threads), job.ctypes, shared)


def make_job(**fields: NDArray[np.generic] | int) -> NDArray[np.void]:
    """Make a Job with these fields and zeros elsewhere; the caller keeps the arrays alive."""
    job = np.zeros((), JOB)
    for name, value in fields.items():
        if isinstance(value, np.ndarray):
            assert value.flags.c_contiguous, name
            job[name] = value.ctypes.data
        else:
            job[name] = value
    return job


@functools.cache
def _source_of(kernel: str) -> Path:
    """Find the .cu file that defines a kernel; cuda/ beside this has some for tests only."""
    for path in sorted([*CUDA.rglob("*.cu"), *HEADER.parent.glob("*.cu")]):
        if kernel in KERNEL.findall(path.read_text()):
            return path
    raise LookupError(f"no .cu defines {kernel}")


@functools.cache
def _library(source: Path) -> ctypes.CDLL:
    text = f'#include "{source}"\n{LAUNCHER}'
    flags = [*EMULATION_FLAGS, *WARNINGS, f'-DWARPTOK_EMULATION="{HEADER}"', f"-I{CUDA}"]
    included = (HEADER, source, *sorted(CUDA.rglob("*.cu*")))
    return ctypes.CDLL(str(compiled(f"{source.parent.name}_{source.stem}", text, flags, included)))
