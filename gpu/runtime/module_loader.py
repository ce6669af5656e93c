"""Kernels as a device's functions: compiled when they are first asked for, kept for ever."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from gpu.errors import DeviceUnavailable
from gpu.host.extensions import fast_launch
from gpu.kernels.catalog import KERNELS, SOURCES, joined_source

if TYPE_CHECKING:
    from gpu.host._fast_launch import LaunchSpec

WITH_CLUSTERS = (9, 10)  # Compute capabilities, the first number.
DEPENDENT = "text", "split", "merge"
"""Modules whose kernels are put on the device while the one before them in their stream still runs.

CUDA calls that a programmatic dependent launch. Such a kernel waits itself for the one before it
(`wait_for_kernel_before` in cuda/common/platform.cuh): only its launch comes early.
"""
WITH_DEPENDENT = 9  # The least compute capability that has dependent launches,
DEPENDENT_DRIVER = 12030  # and the driver that records them.
MAX_CLUSTER = 8  # Blocks that every device with clusters runs as one; more must be asked for.
LARGER_CLUSTERS = 14  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
SHARED_BYTES = 97  # cudaDevAttrMaxSharedMemoryPerBlockOptin


class Functions(dict[str, "LaunchSpec"]):
    """The kernels of a device by name, each with how it is launched.

    A module is compiled when it is first asked for; CuPy keeps the machine code on disk. A kernel
    that is recorded was launched before, so that nothing is compiled while a stream records.
    """

    def __init__(self, cupy: Any, number: int) -> None:
        super().__init__()
        self._cupy, self._number = cupy, number
        self._locks = {module: threading.Lock() for module in SOURCES}
        self._modules: list[Any] = []  # A function does not keep its module.
        capability = int(cupy.cuda.Device(number).compute_capability[:-1])
        self.has_clusters = capability in WITH_CLUSTERS
        driver = cupy.cuda.runtime.driverGetVersion()
        self.shared_bytes = int(cupy.cuda.runtime.deviceGetAttribute(SHARED_BYTES, number))
        self.has_dependent_launch = capability >= WITH_DEPENDENT and driver >= DEPENDENT_DRIVER

    def __missing__(self, name: str) -> LaunchSpec:
        module = KERNELS[name].module
        with self._locks[module], self._cupy.cuda.Device(self._number):
            if name not in self:
                self.compile(module)
        return self[name]

    def prepare(self, modules: Iterable[str]) -> None:
        """Compile modules now, side by side, unless they are."""
        firsts = [next(name for name in KERNELS if KERNELS[name].module == m) for m in modules]
        missing = [name for name in firsts if name not in self]
        if missing:
            with ThreadPoolExecutor(len(missing)) as threads:
                list(threads.map(self.__getitem__, missing))

    def compile(self, module: str) -> None:
        """Make the functions of a module.

        Raises:
            DeviceUnavailable: a block cannot have the shared memory that one of them needs.
        """
        needed = max(kernel.shared_bytes for kernel in KERNELS.values() if kernel.module == module)
        if needed > self.shared_bytes:
            raise DeviceUnavailable(
                f"a block has up to {self.shared_bytes} bytes of shared memory there, "
                f"kernels of {module!r} need {needed}"
            )
        options = ("-std=c++17",)
        compiled = self._cupy.RawModule(
            code=joined_source(module), options=options, backend="nvrtc"
        )
        for name, kernel in KERNELS.items():
            if kernel.module == module:
                function = compiled.get_function(name)
                if kernel.shared_bytes:
                    function.max_dynamic_shared_size_bytes = kernel.shared_bytes
                place = function.kernel.ptr
                if kernel.cluster > MAX_CLUSTER and self.has_clusters:
                    self._cupy.cuda.driver.funcSetAttribute(place, LARGER_CLUSTERS, 1)
                self[name] = fast_launch.LaunchSpec(
                    function=place,
                    threads=kernel.threads,
                    shared_bytes=kernel.shared_bytes,
                    takes_job=kernel.takes_job,
                    is_grid=kernel.is_grid,
                    is_dependent=self.has_dependent_launch and kernel.module in DEPENDENT,
                )
        self._modules.append(compiled)


@functools.cache
def functions_of(cupy: Any, number: int) -> Functions:
    """Those of a device."""
    return Functions(cupy, number)
