"""The protocols of a device and its streams, as the engine uses them.

`cuda_device.CudaDevice` implements them with CUDA; tests use an emulated device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from gpu.host._fast_launch import Driver, LaunchSpec

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """A description of the device.

    Attributes:
        name, driver: as the driver reports them.
        processors: multiprocessors.
        total_bytes, free_bytes: the size of its memory, and the free bytes when this was made.
    """

    name: str
    driver: str
    processors: int
    total_bytes: int
    free_bytes: int


class Stream(Protocol):
    """A queue of work on the device; only `synchronize` waits.

    Attributes:
        driver: the driver object with which C++ launches kernels on the stream.
        kernels: how C++ launches each kernel of `catalog.KERNELS`; the first look-up compiles it.
    """

    driver: Driver
    kernels: Mapping[str, LaunchSpec]

    def copy_in(self, device: int, host: int, num_bytes: int) -> None:
        """Queue a copy to the device, from device memory or host memory.

        It overlaps with other work only from pinned memory.
        """

    def copy_out(self, to: int, device: int, num_bytes: int) -> None:
        """Queue a copy from the device, to host memory or other device memory."""

    def clear(self, device: int, num_bytes: int) -> None:
        """Queue filling device memory with zeros."""

    def launch(self, kernel: str, blocks: int, job: int) -> None:
        """Queue a kernel of `catalog.KERNELS` on the Job at an address.

        It is an address in device memory, which the kernel reads. For a kernel that `takes_job` it
        is one in host memory, which is copied with the launch.
        """

    def begin_capture(self) -> None:
        """Start to record work instead of queueing it."""

    def end_capture(self) -> Any:
        """End the recording and return it, for `replay`."""

    def replay(self, recording: Any) -> None:
        """Queue the work of a recording."""

    def follow(self, other: Self) -> None:
        """Let work that is queued from now on wait for all work in `other` so far."""

    def synchronize(self) -> None:
        """Wait until all queued work is done."""

    def mark(self) -> Any:
        """Record an event between the work queued before and after."""

    def seconds(self, begin: Any, end: Any) -> float:
        """Return the time between two marks; the later one must be done."""


class Device(Protocol):
    """Memory and streams of one device."""

    def runs(self, kernel: str) -> bool:
        """Return whether the device can run a kernel of `catalog.KERNELS`."""

    def prepare(self, modules: Iterable[str]) -> None:
        """Compile kernels now, not at their first launches; modules are `catalog.SOURCES`'.

        Raises:
            DeviceUnavailable: the device cannot run them.
        """

    @property
    def info(self) -> DeviceInfo:
        """The name, the driver, the number of multiprocessors and the memory of the device."""

    @property
    def page_locked_bytes(self) -> int:
        """The bytes of host memory that are page-locked through this device now."""

    def allocate(self, num_bytes: int) -> int:
        """Allocate device memory and return its address.

        Raises:
            OutOfMemory: there is too little memory.
        """

    def free(self, address: int) -> None:
        """Free device memory."""

    def allocate_pinned(self, num_bytes: int) -> Bytes:
        """Allocate host memory that the device accesses at the same address."""

    def free_pinned(self, memory: Bytes) -> None:
        """Free pinned host memory."""

    def is_pinned(self, memory: Bytes) -> bool:
        """Return whether an array is contiguous and in memory that any library pinned."""

    def has_memory(self, address: int) -> bool:
        """Return whether memory belongs to this device instead of another device of the process."""

    def pin(self, address: int, num_bytes: int) -> None:
        """Page-lock allocated host memory; the device accesses it at its address.

        Raises:
            OutOfMemory: it cannot be page-locked.
        """

    def unpin(self, address: int) -> None:
        """End the page lock of host memory."""

    def wait_for(self, stream: int) -> None:
        """Wait for another library's stream, by its number in `__cuda_array_interface__`."""

    def array(self, memory: Any) -> Any:
        """Wrap memory with `__cuda_array_interface__` as an array with `__dlpack__`."""

    def open_shared(self, handle: bytes, num_bytes: int) -> int:
        """Open device memory of another process by its handle; return its address here.

        Raises:
            BadHandle: the handle is invalid, its memory was freed, or it is of another device.
            SharedTooSmall: the memory has fewer than `num_bytes` bytes.
        """

    def close_shared(self, address: int) -> None:
        """Close memory that `open_shared` opened."""

    def stream(self) -> Stream:
        """Make a stream."""
