"""The devices that kernels are tested on, emulated and real, and an engine for each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu.engine import GpuEngine
from gpu.runtime.cuda_device import CudaDevice
from gpu.runtime.device import Device
from tests.support.emulation.device import EmulatedDevice

DEVICES = ("emulated", pytest.param("cuda", marks=pytest.mark.gpu))
"""For `pytest.mark.parametrize` and `pytest.fixture`."""


def new_device(name: str) -> Device:
    """Make one of DEVICES."""
    return CudaDevice() if name == "cuda" else EmulatedDevice(1 << 33)


def new_engine(name: str) -> GpuEngine:
    """Make an engine on one of DEVICES; modules that share it cache the call."""
    return GpuEngine(new_device(name), 1 << 30)


def limit_fused(engine: GpuEngine, num_bytes: int) -> None:
    """Let the engine encode only batches of up to so many bytes in one launch."""
    engine.pipeline.resources = replace(engine.resources, fused_bytes=num_bytes)
