"""A CUDA stream through CuPy, which gpu.runtime.device imports."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu.host.fast_launch import driver_of
from gpu.runtime.dependent_launch import EarlyLaunch
from gpu.runtime.module_loader import Functions


class CudaStream:
    """A CUDA stream of the current device; see gpu.runtime.device.Stream."""

    def __init__(self, cupy: Any, number: int, functions: Functions) -> None:
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self._runtime, driver = cupy.cuda.runtime, cupy.cuda.driver
        self._launch, self._launch_grid = driver.launchKernel, driver.launchCooperativeKernel
        self._launch_early = EarlyLaunch(self.stream.ptr) if functions.launches_early else None
        self._event, self._elapsed_ms = cupy.cuda.Event, cupy.cuda.get_elapsed_time
        self._so_far = cupy.cuda.Event(disable_timing=True)
        self._number, self._functions, self._pointer = number, functions, self.stream.ptr
        # A kernel's one argument, and where it lies: what the driver asks for.
        self._argument = np.zeros(2, np.uint64)
        self._argument_words = self._argument.data
        self._argument_place = int(self._argument.ctypes.data)
        self.driver = driver_of(self._pointer)

    def copy_in(self, device: int, host: int, num_bytes: int) -> None:
        """Copy from host memory, pinned if the copy is to overlap, or from the device's."""
        runtime = self._runtime
        runtime.memcpyAsync(device, host, num_bytes, runtime.memcpyDefault, self._pointer)

    def copy_out(self, to: int, device: int, num_bytes: int) -> None:
        """Copy to host memory, or to other memory of the device."""
        runtime = self._runtime
        runtime.memcpyAsync(to, device, num_bytes, runtime.memcpyDefault, self._pointer)

    def clear(self, device: int, num_bytes: int) -> None:
        """Fill with zeros."""
        self._runtime.memsetAsync(device, 0, num_bytes, self._pointer)

    def launch(self, kernel: str, blocks: int, job: int) -> None:
        """Run a kernel of `kernels.KERNELS` on the Job at an address; see Stream."""
        function, threads, shared, takes_job, is_grid, is_early = self._functions[kernel]
        words, place = self._argument_words, self._argument_place
        words[0], words[1] = job, job if takes_job else place
        self._runtime.setDevice(self._number)  # The driver asks for a device in every thread.
        if is_early and self._launch_early:
            self._launch_early(function, blocks, threads, shared, place + 8)
            return
        shape = (blocks, 1, 1, threads, 1, 1, shared, self._pointer, place + 8)
        if is_grid:
            self._launch_grid(function, *shape)
        else:
            self._launch(function, *shape, 0)

    def kernel(self, name: str) -> tuple[Any, ...]:
        """A kernel as `fast_launch.Launcher` takes it, compiled."""
        kernel: tuple[Any, ...] = self._functions[name]
        return kernel

    def begin_capture(self) -> None:
        """What follows is recorded and not run."""
        self.stream.begin_capture()

    def end_capture(self) -> Any:
        """The recording, for `replay`."""
        return self.stream.end_capture()

    def replay(self, recording: Any) -> None:
        """Run a recording."""
        recording.launch(self.stream)

    def follow(self, other: CudaStream) -> None:
        """What is queued from now on begins when all that `other` has so far is done."""
        other._so_far.record(other.stream)
        self.stream.wait_event(other._so_far)

    def synchronize(self) -> None:
        """Wait until everything so far is done."""
        self.stream.synchronize()

    def mark(self) -> Any:
        """A point of time between what was queued before and after."""
        event = self._event()
        event.record(self.stream)
        return event

    def seconds(self, begin: Any, end: Any) -> float:
        """Time between two marks, once the later one is done."""
        return float(self._elapsed_ms(begin, end)) / 1000
