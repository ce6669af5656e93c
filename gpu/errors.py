"""What a device refuses; see `device`."""

from __future__ import annotations

__all__ = ["BadHandle", "DeviceUnavailable", "OutOfMemory"]


class DeviceUnavailable(RuntimeError):
    """There is no GPU that can be used; the message says why."""


class OutOfMemory(MemoryError):
    """The device, or the share of it that we may use, has no memory left for this."""


class BadHandle(ValueError):
    """A handle of another process's device memory cannot be opened."""
