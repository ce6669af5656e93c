"""An emulated device: kernels compiled as C++, a block's threads as fibers, host memory."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Iterable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pytest

from gpu.errors import BadHandle, OutOfMemory, SharedTooSmall
from gpu.host._fast_launch import LaunchSpec
from gpu.kernels.catalog import KERNELS, SOURCES
from gpu.kernels.job import CUDA
from gpu.kernels.launch_shape import DeviceLimits, launch_shape
from gpu.runtime.device import Bytes, DeviceInfo
from tests.support.compiled import EMULATION_FLAGS, compiled
from tests.support.emulation.driver import driver_of, kernel_of
from tests.support.gpus.card_class import EMULATED

EMULATION = Path(__file__).parent / "cuda" / "emulation.hpp"
MAX_BLOCKS = 3
ONE_KERNEL = threading.Lock()  # The emulation's fibers and shared memory are there once.
FRESH = 0xEE  # What new memory is filled with: a kernel must not rely on zeros.


@functools.cache
def emulated_kernels(module: str) -> ctypes.CDLL:
    """Compile a module to a shared library with `launch(name, blocks, threads, job)`."""
    cases = (
        f'if (kernel == "{name}") '
        f"return emulate({name}, blocks, threads, job, {kernel.shared_bytes}), 0;"
        for name, kernel in KERNELS.items()
        if kernel.module == module
    )
    source = "\n".join(
        (
            f'#define WARPTOK_EMULATION "{EMULATION}"',
            *(f'#include "{CUDA / name}"' for name in SOURCES[module]),
            "#include <string>",
            'extern "C" uint64_t job_size() { return sizeof(Job); }',
            'extern "C" int launch(const char* name, uint32_t blocks, uint32_t threads,',
            "                      const void* job) {",
            "  std::string kernel = name;",
            *cases,
            "  return 1;",
            "}",
        )
    )
    flags = (*EMULATION_FLAGS, f"-I{CUDA}")
    included = (EMULATION, *sorted(CUDA.rglob("*.cu*")))
    loaded = ctypes.CDLL(str(compiled(f"module-{module}", source, flags, included)))
    loaded.job_size.restype = ctypes.c_uint64
    loaded.launch.argtypes = (ctypes.c_char_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)
    return loaded


class EmulatedKernels(dict[str, "LaunchSpec"]):
    """The launch specifications of the kernels of a device."""

    def __init__(self, device: EmulatedDevice) -> None:
        self.device = device

    def __missing__(self, name: str) -> LaunchSpec:
        return kernel_of(name, self.device.limits)


class EmulatedStream:
    """A stream that does all work at once; see gpu.runtime.device.Stream."""

    failed: Exception | None = None  # What C++ was told of as an error of the driver's.

    def __init__(self, device: EmulatedDevice) -> None:
        self.device = device
        self.kernels = EmulatedKernels(device)
        self.driver, self._driver_calls = driver_of(self)
        self.recording: list[tuple[str, tuple[Any, ...]]] | None = None

    def _do(self, name: str, *arguments: Any) -> None:
        if self.recording is not None:
            self.recording.append((name, arguments))
        elif name == "launch":
            kernel, blocks, job = arguments
            blocks = min(blocks, MAX_BLOCKS)
            shape, module = (
                launch_shape(KERNELS[kernel], self.device.limits),
                KERNELS[kernel].module,
            )
            assert shape is not None, kernel
            with ONE_KERNEL:
                library = emulated_kernels(module)
                assert library.launch(kernel.encode(), blocks, shape.threads, job) == 0, kernel
        elif name == "copy":
            ctypes.memmove(*arguments)
        else:
            ctypes.memset(arguments[0], 0, arguments[1])

    def copy_in(self, device: int, host: int, num_bytes: int) -> None:
        self._do("copy", device, host, num_bytes)

    def copy_out(self, to: int, device: int, num_bytes: int) -> None:
        self._do("copy", to, device, num_bytes)

    def clear(self, device: int, num_bytes: int) -> None:
        self._do("clear", device, num_bytes)

    def launch(self, kernel: str, blocks: int, job: int) -> None:
        self._do("launch", kernel, blocks, job)

    def begin_capture(self) -> None:
        self.recording = []

    def end_capture(self) -> Any:
        recording, self.recording = self.recording, None
        return recording

    def replay(self, recording: Any) -> None:
        for name, arguments in recording:
            self._do(name, *arguments)

    def follow(self, other: EmulatedStream) -> None:
        assert self.recording is None

    def synchronize(self) -> None:
        assert self.recording is None

    def mark(self) -> float:
        assert self.recording is None
        return perf_counter()

    def seconds(self, begin: float, end: float) -> float:
        return end - begin


class EmulatedDevice:
    """A device whose memory is the host's and whose kernels run on the CPU; see gpu.runtime.device.

    Args:
        total_bytes: more than this together cannot be allocated.
        limits: of the card that is emulated.
        number: the number of the device.
    """

    def __init__(
        self, total_bytes: int = 1 << 32, limits: DeviceLimits = EMULATED, number: int = 0
    ) -> None:
        self.limits, self.number = limits, number
        self.runs = functools.cache(limits.runs)
        self.total_bytes, self.used_bytes, self.num_allocations = total_bytes, 0, 0
        self.blocks: dict[int, Bytes] = {}
        self.pinned: dict[int, int] = {}
        self.foreign: set[int] = set()  # Addresses of memory that is another device's.
        self.num_waits = self.num_shared = 0
        self.prepared: set[str] = set()

    def prepare(self, modules: Iterable[str]) -> None:
        for module in modules:  # Each is compiled at its first launch.
            kernels = (name for name, kernel in KERNELS.items() if kernel.module == module)
            assert any(map(self.runs, kernels)), f"{self.limits} runs no kernel of {module}"
            self.prepared.add(module)

    @property
    def info(self) -> DeviceInfo:
        free = self.total_bytes - self.used_bytes
        return DeviceInfo("emulation", "none", 2, self.total_bytes, free)

    @property
    def page_locked_bytes(self) -> int:
        return sum(self.pinned.values())

    def _memory(self, num_bytes: int) -> Bytes:
        memory = np.full(num_bytes + 256, FRESH, np.uint8)
        begin = -memory.ctypes.data % 256
        return memory[begin : begin + num_bytes]

    def allocate(self, num_bytes: int) -> int:
        if self.used_bytes + num_bytes > self.total_bytes:
            raise OutOfMemory(f"{num_bytes} bytes")
        memory = self._memory(num_bytes)
        self.used_bytes += num_bytes
        self.num_allocations += 1
        self.blocks[memory.ctypes.data] = memory
        return int(memory.ctypes.data)

    def free(self, address: int) -> None:
        self.used_bytes -= len(self.blocks.pop(address))

    def allocate_pinned(self, num_bytes: int) -> Bytes:
        memory = self._memory(num_bytes)
        self.pinned[memory.ctypes.data] = num_bytes
        self.num_allocations += 1
        return memory

    def free_pinned(self, memory: Bytes) -> None:
        del self.pinned[memory.ctypes.data]

    def is_pinned(self, memory: Bytes) -> bool:
        begin, end = memory.ctypes.data, memory.ctypes.data + memory.nbytes
        return memory.flags.c_contiguous and any(
            at <= begin and end <= at + size for at, size in self.pinned.items()
        )

    def has_memory(self, address: int) -> bool:
        return address not in self.foreign

    def open_shared(self, handle: bytes, num_bytes: int) -> int:
        """Open a block; its handle is its address in decimal digits."""
        number = handle.rstrip(b"\0")
        if not number.isdigit() or int(number) not in self.blocks:
            raise BadHandle("no block of this device")
        size = self.blocks[int(number)].nbytes
        if size < num_bytes:
            raise SharedTooSmall(f"the memory has {size} bytes, not {num_bytes}")
        self.num_shared += 1
        return int(number)

    def close_shared(self, address: int) -> None:
        assert address in self.blocks
        self.num_shared -= 1

    def pin(self, address: int, num_bytes: int) -> None:
        assert address not in self.pinned
        self.pinned[address] = num_bytes

    def unpin(self, address: int) -> None:
        del self.pinned[address]

    def wait_for(self, stream: int) -> None:
        self.num_waits += 1

    def array(self, memory: Any) -> Any:
        class Lent:  # NumPy's array keeps it, and it keeps the memory.
            __array_interface__, owner = memory.__cuda_array_interface__, memory

        return np.asarray(Lent())

    def stream(self) -> EmulatedStream:
        return EmulatedStream(self)


def note_launches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which emulated devices add the names of the kernels that they run."""
    seen, run = list[str](), EmulatedStream.launch

    def launch(stream: EmulatedStream, kernel: str, blocks: int, job: int) -> None:
        seen.append(kernel)
        run(stream, kernel, blocks, job)

    monkeypatch.setattr(EmulatedStream, "launch", launch)
    return seen
