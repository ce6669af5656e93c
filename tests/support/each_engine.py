"""The engines of the contract tests: the CPU engine, and the GPU engine, emulated and real."""

from __future__ import annotations

import functools
import shutil

import pytest

from gpu.engine import GpuEngine
from service.engines.base import Engine
from service.engines.cpu.engine import CpuEngine
from service.engines.hybrid.engine import HybridEngine
from service.engines.hybrid.opening import open_cuda
from service.engines.hybrid.residency import OpenedGpu
from tests.support.emulation.device import EmulatedDevice
from vocabularies.builtin import load

SYMBOLS = (
    "evo_bytes",
    "hyenadna",
    "caduceus",
    "ntv3",
    "gpn",
    "mtdna6",
    "nt_v1",
    "nt_v2",
    "dnabert1_3mer",
    "dnabert1_4mer",
    "dnabert1_5mer",
    "dnabert1_6mer",
)
TEXT = ("gpt2", "cl100k_base", "o200k_base")
ON_GPU = (*TEXT, *SYMBOLS)


def emulated() -> OpenedGpu:
    """Open an engine on the emulated GPU, whose kernels run as C++ on the CPU."""
    return OpenedGpu(GpuEngine(EmulatedDevice(), 1 << 29, 1 << 29), {"name": "emulation"})


ENGINES = {"cpu": None, "emulated": emulated, "cuda": functools.partial(open_cuda, 0.5)}
MARKS = {
    "cpu": (),
    "emulated": pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ for the kernels"),
    "cuda": pytest.mark.gpu,
}


def make_engine(name: str) -> Engine:
    """Make an engine; a GPU engine computes on its device all that the kernels support."""
    open_gpu = ENGINES[name]
    if open_gpu is None:
        return CpuEngine()
    engine = HybridEngine(CpuEngine(), open_gpu, crossover_bytes=0)
    engine.settle()
    return engine


@functools.cache
def engine_of(name: str) -> Engine:
    """Return the shared engine of a name, with the built-in vocabularies of ON_GPU loaded."""
    engine = make_engine(name)
    for vocabulary in ON_GPU if name != "cpu" else ():
        engine.load(load(vocabulary))
    return engine
