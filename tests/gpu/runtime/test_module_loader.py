"""Modules of kernels are compiled once, and side by side."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gpu.errors import DeviceUnavailable
from gpu.kernels.catalog import KERNELS, SOURCES, joined_source, modules_of
from gpu.kernels.families import CHARACTERS, STRIDED_KMERS, Family, dna_family, encode_kernels
from gpu.kernels.job import CUDA
from gpu.runtime.module_loader import DEPENDENT, PROCESSORS, SHARED_BYTES, Functions
from tests.support.waiting import GIVEN_UP_S

FIRST = re.compile(r"^KERNEL [^\n]*\{\n    (\S+)", re.MULTILINE)
TOGETHER = ("text", "fused_block", "kmers")
NUM_PROCESSORS, RESIDENT_BLOCKS = 40, 3


class Device(contextlib.nullcontext):
    """A device of the ninth generation."""

    compute_capability = "90"

    def __init__(self, number: int) -> None:
        super().__init__()


def cupy(
    compiled: Counter[str], wait: Callable[[float], object], shared_bytes: int = 227 << 10
) -> Any:
    """The parts of CuPy that Functions uses; a module is compiled when the wait is over."""

    numbers = {name: number for number, name in enumerate(KERNELS)}

    def raw_module(code: str, **_: Any) -> Any:
        compiled[code] += 1
        wait(GIVEN_UP_S)
        return SimpleNamespace(
            get_function=lambda name: SimpleNamespace(kernel=SimpleNamespace(ptr=numbers[name]))
        )

    cuda = SimpleNamespace(
        Device=Device,
        runtime=SimpleNamespace(
            driverGetVersion=lambda: 13000,
            deviceGetAttribute=lambda attribute, _: {
                PROCESSORS: NUM_PROCESSORS,
                SHARED_BYTES: shared_bytes,
            }[attribute],
        ),
        driver=SimpleNamespace(
            funcSetAttribute=lambda *_: None,
            occupancyMaxActiveBlocksPerMultiprocessor=lambda *_: RESIDENT_BLOCKS,
        ),
    )
    return SimpleNamespace(cuda=cuda, RawModule=raw_module)


def test_modules_are_compiled_side_by_side_and_once():
    compiled: Counter[str] = Counter()
    functions = Functions(cupy(compiled, threading.Barrier(len(TOGETHER)).wait), 0)
    functions.prepare(TOGETHER)
    assert compiled == {joined_source(module): 1 for module in TOGETHER}
    for number, (name, kernel) in enumerate(KERNELS.items()):
        if kernel.module in TOGETHER:
            spec = functions[name]
            assert (spec.function, spec.threads) == (number, kernel.threads)
            assert (spec.shared_bytes, spec.takes_job) == (kernel.shared_bytes, kernel.takes_job)
            assert (spec.is_grid, spec.is_dependent) == (kernel.is_grid, kernel.module == "text")
    functions.prepare(TOGETHER)
    assert sum(compiled.values()) == len(TOGETHER)


def test_a_device_that_runs_no_kernel_of_a_module_compiles_nothing():
    compiled: Counter[str] = Counter()
    functions = Functions(cupy(compiled, lambda _: None, shared_bytes=64 << 10), 0)
    with pytest.raises(DeviceUnavailable, match=r"any kernel of 'dna_parts'.*shared_bytes=65536"):
        functions.prepare(["dna_parts"])
    assert not compiled
    functions.prepare(["dna", "merge"])
    assert set(compiled) == {joined_source("dna"), joined_source("merge")}
    assert "forward_windows" in functions and "forward_windows_copied" not in functions
    assert (functions["merge"].threads, functions["merge"].shared_bytes) == (224, 62464)


def test_the_blocks_of_a_grid_are_as_many_as_run_at_the_same_time():
    functions = Functions(cupy(Counter(), lambda _: None), 0)
    functions.prepare(["fused_grid", "fused_block"])
    assert functions["encode_grid"].max_blocks == NUM_PROCESSORS * RESIDENT_BLOCKS
    assert functions["encode_block"].max_blocks == 0


REPAIR = {"repair_chunk128", "repair_chunk512"}
DNA_WITH_PARTS = dna_family(has_whole=False, maps=False, walk=(), parts="encode_dna_parts")


@pytest.mark.parametrize(
    ("family", "own"),
    [
        (CHARACTERS, {"kmers", "plain_kmers"}),
        (STRIDED_KMERS, {"kmers", "plain_kmers"}),
        (DNA_WITH_PARTS, {"kmers", "dna", "dna_parts", *REPAIR}),
    ],
)
def test_a_family_knows_all_modules_that_its_batches_may_need(family: Family, own: set[str]):
    assert set(modules_of(family.kernels)) == {"text", *own}
    for augmented in (False, True):
        kernels = (
            *encode_kernels(family, num_rounds=2, validate=True, augmented=augmented),
            "cut_windows",
        )
        assert {KERNELS[name].module for name in kernels} <= {"text", *own}


def test_threads_that_ask_for_one_module_at_once_get_one():
    compiled: Counter[str] = Counter()
    all_ask = threading.Event()
    functions = Functions(cupy(compiled, all_ask.wait), 0)
    names = [name for name, kernel in KERNELS.items() if kernel.module == "kmers"]
    threads = [threading.Thread(target=functions.__getitem__, args=[name]) for name in names]
    for thread in threads:
        thread.start()
    time.sleep(0.1)  # Without a lock all of them would compile by now.
    all_ask.set()
    for thread in threads:
        thread.join()
    assert compiled == {joined_source("kmers"): 1}
    assert set(functions) == set(names)


def test_every_kernel_of_a_dependent_launch_waits_before_anything_else():
    files = [name for module in DEPENDENT for name in SOURCES[module]]
    firsts = [found for name in files for found in FIRST.findall((CUDA / name).read_text())]
    assert len(firsts) > 35
    assert set(firsts) == {"wait_for_kernel_before();"}
