"""CUDA's driver as C++ calls it, for emulated streams: see `gpu.runtime.cuda_stream.driver_of`."""

from __future__ import annotations

import ctypes
import functools
import threading
import weakref
from typing import TYPE_CHECKING, Any

from gpu.host._fast_launch import Driver, LaunchSpec
from gpu.kernels.catalog import KERNELS
from gpu.kernels.launch_shape import DeviceLimits, launch_shape

if TYPE_CHECKING:
    from tests.support.emulation.device import EmulatedStream

CONTEXT, STREAM = 0xC0, 0x57  # The context of device 0; the others follow.
CURRENT = threading.local()
FAILED = 999  # CUDA_ERROR_UNKNOWN
COOPERATIVE = 2  # CU_LAUNCH_ATTRIBUTE_COOPERATIVE
NAMES = ("", *KERNELS)  # A kernel's function is its place there.
GetContext = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p))
SetContext = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
CopyIn = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * 4)
Launch = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)
Synchronize = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


def current_context() -> int:
    """Return the current context of this thread; 0 if there is none."""
    context: int = getattr(CURRENT, "context", 0)
    return context


@functools.cache
def kernel_of(name: str, limits: DeviceLimits) -> LaunchSpec:
    """Make the launch specification of a kernel, as `gpu.runtime.module_loader` does."""
    kernel = KERNELS[name]
    shape = launch_shape(kernel, limits)
    assert shape is not None, f"{limits} does not run {name}"
    return LaunchSpec(
        function=NAMES.index(name),
        threads=shape.threads,
        shared_bytes=shape.shared_bytes,
        max_blocks=0,
        takes_job=kernel.takes_job,
        is_grid=kernel.is_grid,
        is_dependent=False,
    )


def driver_of(stream: EmulatedStream) -> tuple[Driver, tuple[Any, ...]]:
    """Make the driver that C++ launches with, and the objects that must outlive it."""
    its = weakref.ref(stream)

    context = CONTEXT + stream.device.number

    def get_context(place: Any) -> int:
        place[0] = current_context()
        return 0

    def set_context(context: int | None) -> int:
        CURRENT.context = context or 0
        return 0

    def copy_in(device: int, host: int, num_bytes: int, number: int) -> int:
        if number != STREAM or current_context() != context:
            return FAILED
        return done(lambda stream: stream.copy_in(device, host, num_bytes))

    def launch(config: int, function: int, arguments: int, extra: int | None) -> int:
        def work(stream: EmulatedStream) -> None:
            assert current_context() == context
            words = (ctypes.c_uint32 * 13).from_address(config)
            name, kernel = NAMES[function], KERNELS[NAMES[function]]
            shape = launch_shape(kernel, stream.device.limits)
            assert shape is not None
            assert words[1:7] == [1, 1, shape.threads, 1, 1, shape.shared_bytes]
            assert ctypes.c_void_p.from_address(config + 32).value == STREAM
            assert (words[12], extra) == (kernel.is_grid, None)  # Attributes: a grid's is one.
            if kernel.is_grid:
                attribute = ctypes.c_void_p.from_address(config + 40).value or 0
                assert (ctypes.c_uint32 * 3).from_address(attribute)[:] == [COOPERATIVE, 0, 1]
            stream.launch(name, words[0], ctypes.c_void_p.from_address(arguments).value or 0)

        return done(work)

    def synchronize(number: int) -> int:
        return done(lambda stream: stream.synchronize()) if number == STREAM else FAILED

    def done(work: Any) -> int:
        stream = its()
        try:
            work(stream)
        except Exception as error:  # ctypes would go on as if nothing had happened.
            if stream is not None:
                stream.failed = error
            return FAILED
        return 0

    calls = (
        GetContext(get_context),
        SetContext(set_context),
        CopyIn(copy_in),
        Launch(launch),
        Synchronize(synchronize),
    )
    places = [ctypes.cast(call, ctypes.c_void_p).value or 0 for call in calls]
    driver = Driver(
        get_context=places[0],
        set_context=places[1],
        copy_in=places[2],
        launch=places[3],
        synchronize=places[4],
        context=context,
        stream=STREAM,
    )
    return driver, calls
