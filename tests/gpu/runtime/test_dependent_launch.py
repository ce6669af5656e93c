"""Kernels that are launched early wait for the one before them; what the driver is told."""

from __future__ import annotations

import ctypes
import re
from typing import Any

import numpy as np
import pytest

from gpu.errors import LaunchFailed
from gpu.kernels.catalog import SOURCES
from gpu.kernels.job import CUDA
from gpu.runtime.dependent_launch import EarlyLaunch
from gpu.runtime.module_loader import EARLY

CONFIG_WORDS = 7  # CUlaunchConfig begins with so many uint32: blocks, threads, shared memory.
FIRST = re.compile(r"^KERNEL [^\n]*\{\n    (\S+)", re.MULTILINE)


class FakeDriver:
    """Reads what cuLaunchKernelEx is given where CUDA's header says that it lies."""

    def __init__(self, error: int = 0) -> None:
        self.error, self.seen = error, dict[str, Any]()

    def cuLaunchKernelEx(self, config: Any, function: Any, arguments: Any, extra: Any) -> int:
        place = ctypes.cast(config, ctypes.c_void_p).value or 0
        words = np.frombuffer(ctypes.string_at(place, 56), np.uint32)
        stream, attributes = np.frombuffer(ctypes.string_at(place + 32, 16), np.uint64).tolist()
        attribute = np.frombuffer(ctypes.string_at(attributes, 72), np.uint32)
        self.seen = {
            "shape": words[:CONFIG_WORDS].tolist(),
            "stream": stream,
            "attributes": int(words[12]),
            "attribute": attribute[:3].tolist(),
            "function": function.value,
            "arguments": arguments.value,
            "extra": extra,
        }
        return self.error


def test_the_driver_gets_shape_stream_and_the_attribute():
    driver = FakeDriver()
    EarlyLaunch(0x1234_5678_9ABC, driver)(0xF00D, 132, 1024, 200_000, 0xBEEF)
    assert driver.seen == {
        "shape": [132, 1, 1, 1024, 1, 1, 200_000],
        "stream": 0x1234_5678_9ABC,
        "attributes": 1,
        "attribute": [6, 0, 1],
        "function": 0xF00D,
        "arguments": 0xBEEF,
        "extra": None,
    }


def test_what_the_driver_refuses_is_an_error():
    with pytest.raises(LaunchFailed, match="CUDA error 719"):
        EarlyLaunch(1, FakeDriver(719))(2, 1, 32, 0, 3)


def test_every_kernel_that_is_launched_early_waits_before_anything_else():
    files = [name for module in EARLY for name in SOURCES[module]]
    firsts = [found for name in files for found in FIRST.findall((CUDA / name).read_text())]
    assert len(firsts) > 35
    assert set(firsts) == {"wait_for_kernel_before();"}
