"""Compiles the kernels of a device when they are first used, and keeps them."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from gpu.errors import DeviceUnavailable
from gpu.host.extensions import fast_launch
from gpu.kernels.catalog import KERNELS, SOURCES, Kernel, joined_source
from gpu.kernels.launch_shape import DeviceLimits, launch_shape

if TYPE_CHECKING:
    from gpu.host._fast_launch import LaunchSpec

DEPENDENT = "text", "split", "merge"
"""Modules whose kernels may start while the kernel before them in their stream is still running.

CUDA calls that a programmatic dependent launch. Such a kernel waits itself for the one before it
(`wait_for_kernel_before` in cuda/common/platform.cuh): only its launch comes early.
"""
DEPENDENT_DRIVER = 12030  # The least driver that records dependent launches.
MAX_CLUSTER = 8  # The blocks of a cluster on every device with clusters; more need an attribute.
LARGER_CLUSTERS = 14  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
PROCESSORS = 16  # cudaDevAttrMultiProcessorCount
SHARED_BYTES = 97  # cudaDevAttrMaxSharedMemoryPerBlockOptin


class Functions(dict[str, "LaunchSpec"]):
    """The launch specifications of a device's kernels, by name.

    A module is compiled when one of its kernels is first used; CuPy keeps the machine code on disk.
    A kernel is launched once before it is recorded, so nothing is compiled while a stream records.
    """

    def __init__(self, cupy: Any, number: int) -> None:
        super().__init__()
        self._cupy, self._number = cupy, number
        self._locks = {module: threading.Lock() for module in SOURCES}
        self._modules: list[Any] = []  # A function does not keep its module.
        self.limits = limits_of(cupy, number)
        self._num_processors = int(cupy.cuda.runtime.deviceGetAttribute(PROCESSORS, number))
        self._has_dependent_launch = (
            self.limits.has_dependent_launch
            and cupy.cuda.runtime.driverGetVersion() >= DEPENDENT_DRIVER
        )

    def __missing__(self, name: str) -> LaunchSpec:
        module = KERNELS[name].module
        with self._locks[module], self._cupy.cuda.Device(self._number):
            if name not in self:
                self.compile(module)
        return self[name]

    def prepare(self, modules: Iterable[str]) -> None:
        """Compile modules in parallel, unless they are compiled.

        Raises:
            DeviceUnavailable: the device can run no kernel of one of them.
        """
        missing = [name for name in map(self._first_kernel, modules) if name not in self]
        if missing:
            with ThreadPoolExecutor(len(missing)) as threads:
                list(threads.map(self.__getitem__, missing))

    def _first_kernel(self, module: str) -> str:
        """Return the first kernel of a module that the device can run."""
        for name, kernel in KERNELS.items():
            if kernel.module == module and launch_shape(kernel, self.limits):
                return name
        raise DeviceUnavailable(f"the device cannot run any kernel of {module!r}: {self.limits}")

    def compile(self, module: str) -> None:
        """Compile a module; its kernels that the device can run get a launch each.

        Raises:
            DeviceUnavailable: the device can run none of them.
        """
        self._first_kernel(module)
        options = ("-std=c++17",)
        compiled = self._cupy.RawModule(
            code=joined_source(module), options=options, backend="nvrtc"
        )
        for name, kernel in KERNELS.items():
            if kernel.module == module and launch_shape(kernel, self.limits):
                self[name] = self._launch_spec(compiled.get_function(name), kernel)
        self._modules.append(compiled)

    def _launch_spec(self, function: Any, kernel: Kernel) -> LaunchSpec:
        """Return the launch specification of a kernel, and allow its dynamic shared memory."""
        shape, driver = launch_shape(kernel, self.limits), self._cupy.cuda.driver
        assert shape is not None
        if shape.shared_bytes:
            function.max_dynamic_shared_size_bytes = shape.shared_bytes
        place, max_blocks = function.kernel.ptr, 0
        if kernel.cluster > MAX_CLUSTER:
            driver.funcSetAttribute(place, LARGER_CLUSTERS, 1)
        if kernel.is_grid:  # All blocks must run at the same time.
            max_blocks = self._num_processors * driver.occupancyMaxActiveBlocksPerMultiprocessor(
                place, shape.threads, shape.shared_bytes
            )
        return fast_launch.LaunchSpec(
            function=place,
            threads=shape.threads,
            shared_bytes=shape.shared_bytes,
            max_blocks=max_blocks,
            takes_job=kernel.takes_job,
            is_grid=kernel.is_grid,
            is_dependent=self._has_dependent_launch and kernel.module in DEPENDENT,
        )


def limits_of(cupy: Any, number: int) -> DeviceLimits:
    """Return the limits of a device for launches."""
    capability = cupy.cuda.Device(number).compute_capability
    shared_bytes = cupy.cuda.runtime.deviceGetAttribute(SHARED_BYTES, number)
    return DeviceLimits((int(capability[:-1]), int(capability[-1])), int(shared_bytes))


@functools.cache
def functions_of(cupy: Any, number: int) -> Functions:
    """Return the kernels of a device, which are made once in a process."""
    return Functions(cupy, number)
