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


class SharedTooSmall(BadHandle):
    """Another process's device memory is smaller than that process says."""


class LaunchFailed(RuntimeError):
    """The driver refused to launch a kernel; the message ends with CUDA's number of the error."""


class DeviceLost(RuntimeError):
    """A device cannot be used by its process any more; the message says why."""


class DescendingOffsets(ValueError):
    """A row ends before it begins.

    Attributes:
        row: its number.
        begin, end: its first byte and the byte after its last one; when decoding, ids instead of
            bytes.
    """

    def __init__(self, row: int, begin: int, end: int) -> None:
        super().__init__(f"row {row} begins at {begin} and ends at {end}")
        self.row, self.begin, self.end = row, begin, end

    def behind(self, num_rows: int, num_bytes: int) -> DescendingOffsets:
        """Return this error for a batch with `num_rows` and `num_bytes` before these rows."""
        return DescendingOffsets(self.row + num_rows, self.begin + num_bytes, self.end + num_bytes)


LOST_CONTEXT = {
    214: "an uncorrectable ECC error",
    220: "an uncorrectable NVLink error",
    226: "a contained fault of the device",
    700: "an illegal address",
    702: "a launch timeout",
    709: "a destroyed context",
    710: "a failed assertion on the device",
    714: "a fault of the hardware stack",
    715: "an illegal instruction",
    716: "a misaligned address",
    717: "an invalid address space",
    718: "an invalid program counter",
    719: "a launch failure",
    721: "a leak of tensor memory",
    810: "a client that the MPS server has ended",
}
"""CUDA's errors, of the runtime and the driver, after which all calls of the process fail."""


def find_lost_context(error: BaseException | None) -> str:
    """Say why the CUDA context is lost, if an error or one of its causes says so; "" if not.

    CuPy's errors have the number of CUDA's error as `status`.
    """
    while error is not None:
        status = getattr(error, "status", None)
        if isinstance(error, LaunchFailed):
            number = str(error).rpartition(" ")[2]
            status = int(number) if number.isdigit() else None
        if status in LOST_CONTEXT:
            return f"{LOST_CONTEXT[status]} (CUDA error {status})"
        error = error.__cause__ or error.__context__
    return ""
