"""Kernels on other libraries' streams, such as torch's: compiled and launched through CuPy.

Each has one argument, a struct of 8-byte fields.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from gpu.kernels.catalog import source_of

__all__ = ["RowKernels", "row_kernels"]

HOST_TO_DEVICE = 1  # cudaMemcpyHostToDevice.


class RowKernels:
    """The kernels of one file of gpu/cuda on one device.

    Args:
        number: of the device.
        file: such as "embedding/gather_rows.cu".
        names: of its kernels.

    Raises:
        ImportError: CuPy is not installed.
    """

    def __init__(self, number: int, file: str, *names: str) -> None:
        import cupy

        self._cupy: Any = cupy
        self._number = number
        with cupy.cuda.Device(number):
            # CuPy keeps the machine code on disk.
            options = ("-std=c++17",)
            self._module = cupy.RawModule(code=source_of(file), options=options, backend="nvrtc")
            self._functions = {name: self._module.get_function(name).kernel.ptr for name in names}

    def launch(self, name: str, blocks: int, threads: int, stream: int, *fields: int) -> None:
        """Run a kernel on a stream, known by its address, with the fields of its struct."""
        struct = (ctypes.c_int64 * len(fields))(*fields)
        places = ctypes.c_void_p(ctypes.addressof(struct))
        shape = (blocks, 1, 1, threads, 1, 1, 0, stream, ctypes.addressof(places))
        with self._cupy.cuda.Device(self._number):
            self._cupy.cuda.driver.launchKernel(self._functions[name], *shape, 0)

    def copy_in(self, device: int, host: int, num_bytes: int, stream: int) -> None:
        """Queue a copy from pinned memory to the device; all are addresses."""
        with self._cupy.cuda.Device(self._number):
            runtime = self._cupy.cuda.runtime
            runtime.memcpyAsync(device, host, num_bytes, HOST_TO_DEVICE, stream)


@functools.cache
def row_kernels(number: int, file: str, *names: str) -> RowKernels | str:
    """Those of a device, compiled once in a process; or why there are none."""
    try:
        return RowKernels(number, file, *names)
    except (ImportError, RuntimeError, OSError) as error:
        return f"the kernel cannot be used: {error}"
