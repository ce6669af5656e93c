"""What the engine asks of a device and of its streams, as protocols.

`cuda_device.CudaDevice` is a real one; tests run the same engine on an emulation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from gpu.host._fast_launch import Driver, LaunchSpec

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What the device is.

    Attributes:
        name, driver: as the driver says.
        processors: multiprocessors.
        total_bytes, free_bytes: of its memory, when asked.
    """

    name: str
    driver: str
    processors: int
    total_bytes: int
    free_bytes: int


class Stream(Protocol):
    """Work in order on the device; nothing waits but `synchronize`.

    Attributes:
        driver: what C++ launches the kernels of the stream with.
    """

    driver: Driver

    def kernel(self, name: str) -> LaunchSpec:
        """How C++ launches a kernel of `catalog.KERNELS`."""

    def copy_in(self, device: int, host: int, num_bytes: int) -> None:
        """Copy from host memory, pinned if the copy is to overlap, or from the device's."""

    def copy_out(self, to: int, device: int, num_bytes: int) -> None:
        """Copy to host memory, or to other memory of the device."""

    def clear(self, device: int, num_bytes: int) -> None:
        """Fill with zeros."""

    def launch(self, kernel: str, blocks: int, job: int) -> None:
        """Run a kernel of `catalog.KERNELS` on the Job at an address.

        An address of the device, where the kernel reads it, unless it `takes_job`: then one of host
        memory, which is read at once.
        """

    def begin_capture(self) -> None:
        """What follows is recorded and not run."""

    def end_capture(self) -> Any:
        """The recording, for `replay`."""

    def replay(self, recording: Any) -> None:
        """Run a recording."""

    def follow(self, other: Self) -> None:
        """What is queued from now on begins when all that `other` has so far is done."""

    def synchronize(self) -> None:
        """Wait until everything so far is done."""

    def mark(self) -> Any:
        """A point of time between what was queued before and after."""

    def seconds(self, begin: Any, end: Any) -> float:
        """Time between two marks, once the later one is done."""


class Device(Protocol):
    """Memory and streams of one device."""

    def runs(self, kernel: str) -> bool:
        """Whether the device can run a kernel of `catalog.KERNELS`."""

    def prepare(self, modules: Iterable[str]) -> None:
        """Compile kernels now, not at their first launches; modules are `catalog.SOURCES`'.

        Raises:
            DeviceUnavailable: the device cannot run them.
        """

    @property
    def info(self) -> DeviceInfo:
        """What the device is."""

    @property
    def page_locked_bytes(self) -> int:
        """Memory of the host that is page-locked here now."""

    def allocate(self, num_bytes: int) -> int:
        """Device memory; its address.

        Raises:
            OutOfMemory: there is not so much.
        """

    def free(self, address: int) -> None:
        """Give device memory back."""

    def allocate_pinned(self, num_bytes: int) -> Bytes:
        """Host memory that the device reaches under the same address."""

    def free_pinned(self, memory: Bytes) -> None:
        """Give pinned host memory back."""

    def is_pinned(self, memory: Bytes) -> bool:
        """Whether an array is one piece of pinned memory, by its address, whoever pinned it."""

    def pin(self, address: int, num_bytes: int) -> None:
        """Page-lock host memory that is there already; the device reaches it under its address.

        Raises:
            OutOfMemory: it cannot be page-locked.
        """

    def unpin(self, address: int) -> None:
        """Let it be ordinary memory again."""

    def wait_for(self, stream: int) -> None:
        """Wait for a stream of somebody else's, as `__cuda_array_interface__` numbers them."""

    def array(self, memory: Any) -> Any:
        """An array with `__dlpack__` of what has `__cuda_array_interface__`; nothing is copied."""

    def open_shared(self, handle: bytes) -> int:
        """The address here of memory that another process made and whose handle it sent.

        Raises:
            BadHandle: it is none, or the memory is gone, or of another device.
        """

    def close_shared(self, address: int) -> None:
        """Let go of it."""

    def stream(self) -> Stream:
        """A new stream."""
