"""The devices that kernels are tested on, emulated and real, and an engine for each."""

from __future__ import annotations

import pytest

from gpu.engine import GpuEngine
from gpu.runtime.cuda_device import CudaDevice
from gpu.runtime.device import Device
from tests.support.emulated_device import EmulatedDevice

__all__ = ["DEVICES", "new_device", "new_engine"]

DEVICES = ("emulated", pytest.param("cuda", marks=pytest.mark.gpu))
"""For `pytest.mark.parametrize` and `pytest.fixture`."""


def new_device(name: str) -> Device:
    """One of DEVICES."""
    return CudaDevice() if name == "cuda" else EmulatedDevice(1 << 33)


def new_engine(name: str) -> GpuEngine:
    """An engine on one of DEVICES; a module that shares it caches this."""
    return GpuEngine(new_device(name), 1 << 30)
