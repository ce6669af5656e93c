"""Implements the protocol Stream for a CUDA stream, with CuPy and the driver API."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from gpu.errors import DeviceUnavailable
from gpu.host.extensions import fast_launch
from gpu.runtime.module_loader import Functions

if TYPE_CHECKING:
    from gpu.host._fast_launch import Driver, LaunchSpec


class CudaStream:
    """A CUDA stream of the current device; see gpu.runtime.device.Stream.

    Its device must be current in each call, as it always is where there is only one.
    """

    def __init__(self, cupy: Any, functions: Functions) -> None:
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self._runtime = cupy.cuda.runtime
        self._event, self._elapsed_ms = cupy.cuda.Event, cupy.cuda.get_elapsed_time
        self._so_far = cupy.cuda.Event(disable_timing=True)
        self.kernels: Mapping[str, LaunchSpec] = functions
        self._pointer = self.stream.ptr
        self.driver = driver_of(self._pointer)

    def copy_in(self, device: int, host: int, num_bytes: int) -> None:
        """Queue a copy to the device; see Stream."""
        runtime = self._runtime
        runtime.memcpyAsync(device, host, num_bytes, runtime.memcpyDefault, self._pointer)

    def copy_out(self, to: int, device: int, num_bytes: int) -> None:
        """Queue a copy from the device, to host memory or other device memory."""
        runtime = self._runtime
        runtime.memcpyAsync(to, device, num_bytes, runtime.memcpyDefault, self._pointer)

    def clear(self, device: int, num_bytes: int) -> None:
        """Queue filling device memory with zeros."""
        self._runtime.memsetAsync(device, 0, num_bytes, self._pointer)

    def launch(self, kernel: str, blocks: int, job: int) -> None:
        """Queue a kernel of `catalog.KERNELS` on the Job at an address; see Stream."""
        self.driver.launch(self.kernels[kernel], blocks, job)

    def begin_capture(self) -> None:
        """Start to record work instead of queueing it."""
        self.stream.begin_capture()

    def end_capture(self) -> Any:
        """End the recording and return it, for `replay`."""
        return self.stream.end_capture()

    def replay(self, recording: Any) -> None:
        """Queue the work of a recording."""
        recording.launch(self.stream)

    def follow(self, other: CudaStream) -> None:
        """Let work that is queued from now on wait for all work in `other` so far."""
        other._so_far.record(other.stream)
        self.stream.wait_event(other._so_far)

    def synchronize(self) -> None:
        """Wait until all queued work is done."""
        self.stream.synchronize()

    def mark(self) -> Any:
        """Record an event between the work queued before and after."""
        event = self._event()
        event.record(self.stream)
        return event

    def seconds(self, begin: Any, end: Any) -> float:
        """Return the time between two marks; the later one must be done."""
        return float(self._elapsed_ms(begin, end)) / 1000


class SwitchingStream(CudaStream):
    """A stream that makes its device current during each call, for processes with several devices.

    The caller's device is current again afterwards. `launch` does the same in C++.
    """

    def __init__(self, cupy: Any, functions: Functions, number: int) -> None:
        super().__init__(cupy, functions)
        self._device, self._number = cupy.cuda.Device, number

    def _current(self) -> AbstractContextManager[Any]:
        # A new one each time: it holds the caller's device, and several threads may call.
        switch: AbstractContextManager[Any] = self._device(self._number)
        return switch

    def copy_in(self, device: int, host: int, num_bytes: int) -> None:
        """Queue a copy to the device; see Stream."""
        with self._current():
            super().copy_in(device, host, num_bytes)

    def copy_out(self, to: int, device: int, num_bytes: int) -> None:
        """Queue a copy from the device, to host memory or other device memory."""
        with self._current():
            super().copy_out(to, device, num_bytes)

    def clear(self, device: int, num_bytes: int) -> None:
        """Queue filling device memory with zeros."""
        with self._current():
            super().clear(device, num_bytes)

    def begin_capture(self) -> None:
        """Start to record work instead of queueing it."""
        with self._current():
            super().begin_capture()

    def end_capture(self) -> Any:
        """End the recording and return it, for `replay`."""
        with self._current():
            return super().end_capture()

    def replay(self, recording: Any) -> None:
        """Queue the work of a recording."""
        with self._current():
            super().replay(recording)

    def follow(self, other: CudaStream) -> None:
        """Let work that is queued from now on wait for all work in `other` so far."""
        with self._current():
            super().follow(other)

    def synchronize(self) -> None:
        """Wait until all queued work is done."""
        with self._current():
            super().synchronize()

    def mark(self) -> Any:
        """Record an event between the work queued before and after."""
        with self._current():
            return super().mark()

    def seconds(self, begin: Any, end: Any) -> float:
        """Return the time between two marks; the later one must be done."""
        with self._current():
            return super().seconds(begin, end)


def driver_of(stream: int) -> Driver:
    """Return the driver object with which C++ launches on a stream of the current context.

    Raises:
        DeviceUnavailable: the driver is older than CUDA 11.8, or there is no current context.
    """
    library = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    if library.cuCtxGetCurrent(ctypes.byref(context)) or not context.value:
        raise DeviceUnavailable("no context of the CUDA driver is current")
    return fast_launch.Driver(
        get_context=_address(library, "cuCtxGetCurrent"),
        set_context=_address(library, "cuCtxSetCurrent"),
        copy_in=_address(library, "cuMemcpyHtoDAsync_v2"),
        launch=_address(library, "cuLaunchKernelEx"),
        synchronize=_address(library, "cuStreamSynchronize"),
        context=context.value,
        stream=stream,
    )


def _address(library: ctypes.CDLL, name: str) -> int:
    try:
        function = getattr(library, name)
    except AttributeError:
        raise DeviceUnavailable(f"the CUDA driver has no {name}; 11.8 or newer has") from None
    return ctypes.cast(function, ctypes.c_void_p).value or 0
