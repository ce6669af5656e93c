"""Measures time and copies memory on a device.

On an emulation the wall clock stands in for CUDA events. This module depends on no engine.
"""

from __future__ import annotations

import ctypes
from time import perf_counter
from typing import Any

from gpu.runtime.cuda_device import CudaDevice
from gpu.runtime.device import Device


class Clock:
    """Measures the time of a stream: by CUDA events, or by the wall clock on an emulation."""

    def __init__(self, device: Device) -> None:
        self._cupy: Any = None
        if isinstance(device, CudaDevice):
            import cupy

            self._cupy = cupy

    def mark(self, stream: Any) -> Any:
        """Mark the current place of the stream."""
        if self._cupy is None:
            return perf_counter()
        event = self._cupy.cuda.Event()
        event.record(stream.stream)
        return event

    def seconds(self, begin: Any, end: Any) -> float:
        """Return the seconds between two marks that the stream has passed."""
        if self._cupy is None:
            return float(end - begin)
        return float(self._cupy.cuda.get_elapsed_time(begin, end)) / 1e3

    def copy_on_device(self, stream: Any, to: int, source: int, num_bytes: int) -> None:
        """Copy device memory."""
        if self._cupy is None:
            ctypes.memmove(to, source, num_bytes)
            return
        runtime = self._cupy.cuda.runtime
        kind = runtime.memcpyDeviceToDevice
        runtime.memcpyAsync(to, source, num_bytes, kind, stream.stream.ptr)
