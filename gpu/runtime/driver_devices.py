"""Asks the CUDA driver for what CuPy does not tell, or tells only after most of a second."""

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


def count_shared_bytes(address: int) -> int:
    """Count the bytes of opened memory of another process from an address on.

    It is the size that the process has allocated; a caching allocator's block is larger than its
    parts. 0 if the driver does not know the address. A device must be current.
    """
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    driver = ctypes.CDLL("libcuda.so.1")
    place = ctypes.c_uint64(address)
    if driver.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), place):
        return 0
    return base.value + size.value - address
