"""Kernels that are put on the device while the one before them in their stream still runs.

A programmatic dependent launch, in CUDA's words. CuPy has no call for it, so the driver is asked.
Such a kernel waits itself for the one before it (`wait_for_kernel_before` in
cuda/common/platform.cuh): only its launch comes early.
"""

from __future__ import annotations

import ctypes
from typing import Any

from gpu.errors import LaunchFailed

EARLY = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
VALUE_BYTES = 64


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = [
        ("id", ctypes.c_uint64),
        ("value", ctypes.c_uint32 * (VALUE_BYTES // 4)),
    ]


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("num_attributes", ctypes.c_uint32),
    ]


class EarlyLaunch:
    """Launches kernels early on one stream, given as its address."""

    def __init__(self, stream: int, driver: Any = None) -> None:
        self._driver = driver or ctypes.CDLL("libcuda.so.1")
        self._attribute = _Attribute(EARLY)
        self._attribute.value[0] = 1
        attributes = ctypes.pointer(self._attribute)
        self._config = _Config((1, 1, 1), (1, 1, 1), 0, stream, attributes, 1)
        self._place = ctypes.byref(self._config)

    def __call__(
        self, function: int, blocks: int, threads: int, shared_bytes: int, arguments: int
    ) -> None:
        """Launch a function with the arguments whose addresses lie at `arguments`.

        Raises:
            LaunchFailed: the driver says why.
        """
        config = self._config
        config.grid[0], config.block[0], config.shared_bytes = blocks, threads, shared_bytes
        error = self._driver.cuLaunchKernelEx(
            self._place, ctypes.c_void_p(function), ctypes.c_void_p(arguments), None
        )
        if error:
            raise LaunchFailed(f"CUDA error {error}")
