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
    """Make the device with this name in DEVICES."""
    return CudaDevice() if name == "cuda" else EmulatedDevice(1 << 33)


def new_engine(name: str) -> GpuEngine:
    """Make an engine on the device with this name; modules that share one cache the call."""
    return GpuEngine(new_device(name), 1 << 30)


def limit_fused(engine: GpuEngine, num_bytes: int) -> None:
    """Set the largest batch, in bytes, that the engine encodes in one launch."""
    engine.pipeline.resources = replace(engine.resources, fused_bytes=num_bytes)
