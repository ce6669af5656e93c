"""The list of kernels is that of the sources; a name that two had would launch one for both."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from gpu.job import CUDA
from gpu.kernels import KERNELS, SOURCES
from tests.gpu_emulation import compile_for_device

DEFINED = re.compile(r"^KERNEL (?:\w+\([^)]*\) )*(\w+)\(", re.MULTILINE)


def test_every_kernel_of_a_module_is_listed_once():
    defined = {
        module: [name for file in files for name in DEFINED.findall((CUDA / file).read_text())]
        for module, files in SOURCES.items()
    }
    names = Counter(name for found in defined.values() for name in found)
    assert [name for name, number in names.items() if number > 1] == []
    listed = {name: kernel.module for name, kernel in KERNELS.items()}
    assert listed == {name: module for module, found in defined.items() for name in found}


@pytest.mark.parametrize(
    "source",
    [
        "cut.cu",
        "encode.cu",
        "merge.cu",
        "small_block.cu",
        "small_cluster.cu",
        "small_grid.cu",
        "utf8.cu",
    ],
)
def test_the_kernels_compile(source):
    compile_for_device(source)
