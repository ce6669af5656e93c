"""The errors of the GPU engine."""

from __future__ import annotations


class NotCovered(ValueError):
    """The kernels do not support a vocabulary, an option or a character; the message says which."""


class DeviceFault(RuntimeError):
    """A kernel detected an inconsistency; no id of the batch may be used."""


class DeviceUnavailable(RuntimeError):
    """No GPU can be used; the message says why."""


class OutOfMemory(MemoryError):
    """The device, or the engine's share of its memory, has too little memory."""


class BadHandle(ValueError):
    """A handle of another process's device memory cannot be opened."""


class LaunchFailed(RuntimeError):
    """The driver refused to launch a kernel."""


class DescendingOffsets(ValueError):
    """A row ends before it begins.

    Attributes:
        row: its number.
        begin, end: its first byte and the byte behind its last; of ids, when these are decoded.
    """

    def __init__(self, row: int, begin: int, end: int) -> None:
        super().__init__(f"row {row} begins at {begin} and ends at {end}")
        self.row, self.begin, self.end = row, begin, end

    def behind(self, num_rows: int, num_bytes: int) -> DescendingOffsets:
        """Return the error for a batch that has so many rows and bytes in front of these rows."""
        return DescendingOffsets(self.row + num_rows, self.begin + num_bytes, self.end + num_bytes)
