"""Kernels as a device's functions: compiled when they are first asked for, kept for ever."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gpu.errors import DeviceUnavailable
from gpu.kernels.catalog import KERNELS, SOURCES, joined_source

WITH_CLUSTERS = (9, 10)  # Compute capabilities, the first number.
EARLY = "text", "cut", "merge"  # The modules whose kernels may be launched early.
WITH_EARLY = 9  # The least compute capability whose kernels may be launched early,
EARLY_DRIVER = 12030  # and the driver that records such launches.
MAX_CLUSTER = 8  # Blocks that every device with clusters runs as one; more must be asked for.
LARGER_CLUSTERS = 14  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
SHARED_BYTES = 97  # cudaDevAttrMaxSharedMemoryPerBlockOptin


class Functions(dict[str, Any]):
    """{kernel: (function, threads, shared bytes, takes_job, is_grid, is_early)}.

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
        self.launches_early = capability >= WITH_EARLY and driver >= EARLY_DRIVER

    def __missing__(self, name: str) -> Any:
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
            told = f"a block has up to {self.shared_bytes} bytes of shared memory there"
            raise DeviceUnavailable(
                f"{told}, kernels of {module!r} need {needed}: an H100 has them"
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
                self[name] = (
                    *(place, kernel.threads, kernel.shared_bytes),
                    *(kernel.takes_job, kernel.is_grid),
                    self.launches_early and kernel.module in EARLY,
                )
        self._modules.append(compiled)


@functools.cache
def functions_of(cupy: Any, number: int) -> Functions:
    """Those of a device."""
    return Functions(cupy, number)
