"""The driver of CUDA as C++ calls it, for emulated streams: see `gpu.launcher.driver_of`."""

from __future__ import annotations

import ctypes
import functools
import weakref
from typing import TYPE_CHECKING, Any

from gpu.kernels import KERNELS

if TYPE_CHECKING:
    from tests.emulated_device import EmulatedStream

__all__ = ["driver_of", "kernel_of"]

CONTEXT, STREAM = 0xC0, 0x57
FAILED = 999  # CUDA_ERROR_UNKNOWN
NAMES = ("", *KERNELS)  # A kernel's function is its place there.
SetContext = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
CopyIn = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * 4)
Launch = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)
Synchronize = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


@functools.cache
def kernel_of(name: str) -> tuple[Any, ...]:
    """A kernel as `gpu.functions.Functions` has it."""
    kernel = KERNELS[name]
    shape = (kernel.threads, kernel.shared_bytes, kernel.takes_job, kernel.is_grid, False)
    return (NAMES.index(name), *shape)


def driver_of(stream: EmulatedStream) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """Addresses for C++, and what must be kept as long as these are used."""
    its = weakref.ref(stream)

    def set_context(context: int) -> int:
        return 0 if context == CONTEXT else FAILED

    def copy_in(device: int, host: int, num_bytes: int, number: int) -> int:
        if number != STREAM:
            return FAILED
        return done(lambda stream: stream.copy_in(device, host, num_bytes))

    def launch(config: int, function: int, arguments: int, extra: int | None) -> int:
        words = (ctypes.c_uint32 * 7).from_address(config)
        own = ctypes.c_void_p.from_address(config + 32).value
        name = NAMES[function]
        shape = [1, 1, KERNELS[name].threads, 1, 1, KERNELS[name].shared_bytes]
        if words[1:] != shape or own != STREAM or extra is not None:
            return FAILED
        job = ctypes.c_void_p.from_address(arguments).value
        return done(lambda stream: stream.launch(name, words[0], job or 0))

    def synchronize(number: int) -> int:
        return done(lambda stream: stream.synchronize()) if number == STREAM else FAILED

    def done(work: Any) -> int:
        stream = its()
        assert stream is not None
        try:
            work(stream)
        except Exception as error:
            stream.failed = error
            return FAILED
        return 0

    calls = (
        *(SetContext(set_context), CopyIn(copy_in)),
        *(Launch(launch), Synchronize(synchronize)),
    )
    places = (ctypes.cast(call, ctypes.c_void_p).value or 0 for call in calls)
    return (*places, CONTEXT, STREAM), calls
