"""Implements the protocol Device for a CUDA device, with CuPy.

Every call leaves the caller's current device as it was, so that several devices, and torch, share a
process.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from gpu.errors import BadHandle, DeviceUnavailable, OutOfMemory, SharedTooSmall
from gpu.host.arrays import address_of
from gpu.host.extensions import check_extensions
from gpu.runtime.cuda_stream import CudaStream, SwitchingStream
from gpu.runtime.cupy_loader import check_device, count_devices, load_cupy
from gpu.runtime.device import Bytes, DeviceInfo, Stream
from gpu.runtime.driver_devices import count_shared_bytes
from gpu.runtime.module_loader import functions_of
from gpu.runtime.numa import cores_near

PINNED = 1  # cudaMemoryTypeHost.
PORTABLE = 1  # cudaHostRegisterPortable: page-locked for all devices of the process.


def num_devices() -> int:
    """Count the CUDA devices that this process sees; 0 if CuPy or the driver is missing."""
    try:
        return count_devices(load_cupy())
    except DeviceUnavailable:
        return 0


class CudaDevice:
    """A CUDA device through CuPy; see Device.

    Args:
        number: the driver's number of the device.

    Attributes:
        runs: returns whether the device can run a kernel of `catalog.KERNELS`.

    Raises:
        DeviceUnavailable: the C++ extensions are not built, CuPy or NVRTC is missing, the driver
            is too old, or there is no such device.
    """

    def __init__(self, number: int = 0) -> None:
        check_extensions()
        cupy = load_cupy()
        check_device(cupy, number)
        self._cupy, self._runtime, self.number = cupy, cupy.cuda.runtime, number
        self._num_devices = count_devices(cupy)
        with self._current():
            self._functions = functions_of(cupy, number)
        self.runs = cache(self._functions.limits.runs)
        self._page_locked: dict[int, int] = {}  # Bytes from each address on.

    def _current(self) -> Any:
        return self._cupy.cuda.Device(self.number)

    def prepare(self, modules: Iterable[str]) -> None:
        """Compile modules of kernels in parallel, unless they are compiled."""
        self._functions.prepare(modules)

    @property
    def info(self) -> DeviceInfo:
        """The name, the driver, the number of multiprocessors and the memory of the device."""
        with self._current():
            properties = self._runtime.getDeviceProperties(self.number)
            free, total = self._runtime.memGetInfo()
            version = self._runtime.driverGetVersion()
        driver = f"CUDA {version // 1000}.{version % 1000 // 10}"
        name, processors = properties["name"].decode(), properties["multiProcessorCount"]
        return DeviceInfo(name, driver, processors, total, free)

    @property
    def near_cores(self) -> frozenset[int]:
        """The cores of the device's NUMA node; empty if all cores are as near."""
        return cores_near(str(self._runtime.deviceGetPCIBusId(self.number)))

    @property
    def page_locked_bytes(self) -> int:
        """The bytes of host memory that are page-locked through this device now."""
        return sum(list(self._page_locked.values()))

    def allocate(self, num_bytes: int) -> int:
        """Allocate device memory and return its address; raises OutOfMemory."""
        with self._current():
            try:
                return int(self._runtime.malloc(num_bytes))
            except self._runtime.CUDARuntimeError as error:
                raise OutOfMemory(f"{num_bytes} bytes of device memory: {error}") from error

    def free(self, address: int) -> None:
        """Free device memory."""
        with self._current():
            self._runtime.free(address)

    def allocate_pinned(self, num_bytes: int) -> Bytes:
        """Allocate host memory that the device accesses at the same address; raises OutOfMemory."""
        with self._current():
            try:
                memory = self._cupy.cuda.PinnedMemory(num_bytes)
            except self._runtime.CUDARuntimeError as error:
                raise OutOfMemory(f"{num_bytes} bytes of pinned memory: {error}") from error
        pointer = self._cupy.cuda.PinnedMemoryPointer(memory, 0)
        array: Bytes = np.frombuffer(pointer, np.uint8, num_bytes)
        self._page_locked[array.ctypes.data] = num_bytes
        return array

    def free_pinned(self, memory: Bytes) -> None:
        """Release pinned host memory; CuPy frees it with the last array that refers to it."""
        del self._page_locked[memory.ctypes.data]

    def is_pinned(self, memory: Bytes) -> bool:
        """Return whether an array is contiguous and in memory that any library pinned."""
        if not memory.flags.c_contiguous:
            return False
        first, num_bytes = address_of(memory), max(1, memory.nbytes)
        if num_bytes <= self._page_locked.get(first, 0):
            return True  # The driver takes microseconds to say so.
        ends = (first, first + num_bytes - 1)
        with self._current():  # Otherwise the driver may start a context on another device.
            return all(self._runtime.pointerGetAttributes(end).type == PINNED for end in ends)

    def has_memory(self, address: int) -> bool:
        """Return whether memory belongs to this device, not to another device of the process."""
        if self._num_devices == 1:
            return True
        with self._current():
            return int(self._runtime.pointerGetAttributes(address).device) == self.number

    def pin(self, address: int, num_bytes: int) -> None:
        """Page-lock allocated host memory; raises OutOfMemory."""
        with self._current():
            try:
                self._runtime.hostRegister(address, num_bytes, PORTABLE)
            except self._runtime.CUDARuntimeError as error:
                raise OutOfMemory(f"{num_bytes} bytes cannot be page-locked: {error}") from error
        self._page_locked[address] = num_bytes

    def unpin(self, address: int) -> None:
        """End the page lock of host memory."""
        with self._current():
            self._runtime.hostUnregister(address)
        del self._page_locked[address]

    def wait_for(self, stream: int) -> None:
        """Wait for another library's stream, by its number in `__cuda_array_interface__`."""
        with self._current():
            self._runtime.streamSynchronize(stream)

    def array(self, memory: Any) -> Any:
        """Wrap memory with `__cuda_array_interface__` as an array with `__dlpack__`."""
        with self._current():
            return self._cupy.asarray(memory)

    def open_shared(self, handle: bytes, num_bytes: int) -> int:
        """Open device memory of another process by its handle; raises BadHandle."""
        with self._current():
            try:
                address = int(self._runtime.ipcOpenMemHandle(handle))
            except self._runtime.CUDARuntimeError as error:
                raise BadHandle(f"the device does not know the handle: {error}") from error
            try:
                self._check_shared(address, num_bytes)
            except BadHandle:
                self._runtime.ipcCloseMemHandle(address)
                raise
            return address

    def _check_shared(self, address: int, num_bytes: int) -> None:
        """Check the size and the device of opened memory; raises BadHandle."""
        size = count_shared_bytes(address)
        if size < num_bytes:  # An access behind it would end all work on the device.
            raise SharedTooSmall(f"the memory has {size} bytes, not {num_bytes}")
        # The driver also opens memory of other devices, if it can access it.
        owner = self._runtime.pointerGetAttributes(address).device
        if owner != self.number and 0 <= owner < self._num_devices:
            raise BadHandle(f"the memory belongs to device {owner}, not to device {self.number}")

    def close_shared(self, address: int) -> None:
        """Close memory that `open_shared` opened."""
        with self._current():
            self._runtime.ipcCloseMemHandle(address)

    def stream(self) -> Stream:
        """Make a stream."""
        with self._current():
            if self._num_devices == 1:
                return CudaStream(self._cupy, self._functions)
            return SwitchingStream(self._cupy, self._functions, self.number)
