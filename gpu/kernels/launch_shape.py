"""Computes the threads and the shared memory of a kernel's blocks on a device.

A kernel that a device cannot run has no shape there, and `families.family_on` chooses another one.
Uses no CuPy, so that tests can compute the shapes for cards that they do not have.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpu.kernels.catalog import KERNELS, Kernel

WITH_CLUSTERS = (9, 10)
"""Major compute capabilities of devices that run sixteen blocks as one cluster."""
WITH_DEPENDENT = 9
"""The least major compute capability that has programmatic dependent launches."""


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """The limits of a device that decide a kernel's launch shape.

    Attributes:
        capability: its compute capability, (9, 0) for instance.
        shared_bytes: the shared memory that a block may request.
    """

    capability: tuple[int, int]
    shared_bytes: int

    @property
    def has_clusters(self) -> bool:
        """Whether sixteen blocks run as one cluster."""
        return self.capability[0] in WITH_CLUSTERS

    @property
    def has_dependent_launch(self) -> bool:
        """Whether a kernel may be launched before the one in front of it ends."""
        return self.capability[0] >= WITH_DEPENDENT

    def runs(self, kernel: str) -> bool:
        """Return whether the device can run a kernel of the catalog."""
        return launch_shape(KERNELS[kernel], self) is not None


CLASSES = {
    64: DeviceLimits((7, 5), 64 << 10),
    99: DeviceLimits((8, 9), 99 << 10),
    163: DeviceLimits((8, 0), 163 << 10),
    227: DeviceLimits((9, 0), 227 << 10),
}
"""A device of each class, by the KiB of shared memory that a block may ask for: T4 and RTX 20; A10,
L4, L40S, RTX 30 to 50; A100 and A30; H100, H200 and B200."""


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """The threads and the dynamic shared memory of a block.

    Attributes:
        threads: the number of threads.
        shared_bytes: the bytes of dynamic shared memory.
    """

    threads: int
    shared_bytes: int


def launch_shape(kernel: Kernel, limits: DeviceLimits) -> LaunchShape | None:
    """Return the shape of a kernel's blocks on a device; None if the device cannot run it.

    A block has fewer warps where shared memory does not suffice for all of them and the kernel
    allows that (`Kernel.warp_shared_bytes`).
    """
    if kernel.cluster > 1 and not limits.has_clusters:
        return None
    threads, shared = kernel.threads, kernel.shared_bytes
    if shared > limits.shared_bytes and kernel.warp_shared_bytes:
        num_dropped = -(-(shared - limits.shared_bytes) // kernel.warp_shared_bytes)
        threads -= 32 * num_dropped
        shared -= kernel.warp_shared_bytes * num_dropped
    if threads < 32 or shared > limits.shared_bytes:
        return None
    return LaunchShape(threads, shared)
