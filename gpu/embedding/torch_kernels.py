"""Compiles kernels by CuPy and launches them on torch's streams.

Each kernel has one argument, a struct of 8-byte fields.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

from gpu.kernels.catalog import source_of
from gpu.runtime.cupy_loader import check_device, load_cupy

HOST_TO_DEVICE = 1  # cudaMemcpyHostToDevice.


class TorchKernels:
    """The kernels of one file of gpu/cuda for one device."""

    def __init__(self, number: int, file: str, *names: str) -> None:
        """Compile the file; CuPy stores the machine code on disk.

        Args:
            number: the number of the device.
            file: the path below gpu/cuda, such as "embedding/gather_rows.cu".
            names: the names of its kernels.

        Raises:
            DeviceUnavailable: CuPy or NVRTC is missing, or the device is too old.
        """
        cupy = load_cupy()
        check_device(cupy, number)
        self._cupy: Any = cupy
        self._number = number
        with cupy.cuda.Device(number):
            options = ("-std=c++17",)
            self._module = cupy.RawModule(code=source_of(file), options=options, backend="nvrtc")
            self._functions = {name: self._module.get_function(name).kernel.ptr for name in names}

    def launch(
        self, name: str, blocks: int, threads: int, stream: int, fields: Sequence[int]
    ) -> None:
        """Launch a kernel on the stream at an address, with the fields of its struct in order."""
        struct = (ctypes.c_int64 * len(fields))(*fields)
        places = ctypes.c_void_p(ctypes.addressof(struct))
        with self._cupy.cuda.Device(self._number):
            self._cupy.cuda.driver.launchKernel(
                self._functions[name],
                blocks,
                1,
                1,
                threads,
                1,
                1,
                0,  # Bytes of dynamic shared memory.
                stream,
                ctypes.addressof(places),
                0,  # No extra options.
            )

    def copy_in(self, device: int, host: int, num_bytes: int, stream: int) -> None:
        """Queue a copy from pinned memory to the device on a stream; all three are addresses."""
        with self._cupy.cuda.Device(self._number):
            runtime = self._cupy.cuda.runtime
            runtime.memcpyAsync(device, host, num_bytes, HOST_TO_DEVICE, stream)


@functools.cache
def load_torch_kernels(number: int, file: str, *names: str) -> TorchKernels | str:
    """Load the kernels of a file, once in a process; where that fails, return the reason."""
    try:
        return TorchKernels(number, file, *names)
    except (RuntimeError, OSError) as error:
        return f"the kernel cannot be used: {error}"
