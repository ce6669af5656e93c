"""Counts the devices of the CUDA driver without importing CuPy, which takes most of a second."""

from __future__ import annotations

import ctypes
from importlib.util import find_spec


def count_driver_devices() -> int:
    """Count the CUDA devices that this process sees; 0 if CuPy or the driver is not installed.

    The driver starts here, and a process that is forked afterwards cannot use it. Other threads of
    Python run meanwhile. `cuda_device.num_devices` also notes a driver that is too old for CuPy.
    """
    if find_spec("cupy") is None:
        return 0
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value
