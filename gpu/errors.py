"""The errors of the GPU engine: what a device, a vocabulary or a batch is refused for."""

from __future__ import annotations


class NotCovered(ValueError):
    """The kernels cannot compute a vocabulary, or what a row asks for; the message says why."""


class DeviceFault(RuntimeError):
    """A kernel met what cannot be; no id of the batch may be used."""


class DeviceUnavailable(RuntimeError):
    """There is no GPU that can be used; the message says why."""


class OutOfMemory(MemoryError):
    """The device, or the share of it that we may use, has no memory left for this."""


class BadHandle(ValueError):
    """A handle of another process's device memory cannot be opened."""


class LaunchFailed(RuntimeError):
    """The driver did not take a kernel."""


class DescendingOffsets(ValueError):
    """A row ends before it begins.

    Attributes:
        row: its number.
        begin, end: its bytes, or ids that are decoded.
    """

    def __init__(self, row: int, begin: int, end: int) -> None:
        super().__init__(f"row {row} begins at {begin} and ends at {end}")
        self.row, self.begin, self.end = row, begin, end

    def behind(self, num_rows: int, num_bytes: int) -> DescendingOffsets:
        """The same row, by its number and place in a batch that has so much in front."""
        return DescendingOffsets(self.row + num_rows, self.begin + num_bytes, self.end + num_bytes)
