"""The program of a GPU worker whose device is emulated, with faults that a test chooses.

Its arguments are a folder and the arguments of the service's own workers. A file of the folder with
the name of the worker, such as gpu-1, holds a fault: "fail", "hang", "lost" or "end"; "closed"
holds from the start. Device memory of a client is a file; its handle is made by `handle_of`.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from gpu.engine import GpuEngine
from gpu.errors import BadHandle, DeviceUnavailable
from gpu.memory.ipc import HANDLE_BYTES
from service.engines.hybrid.opening import open_engine
from service.engines.hybrid.residency import OpenedGpu
from service.multiprocess.gpu_workers.worker import main
from service.multiprocess.gpu_workers.worker_server import OwnGpu
from tests.support.emulation.device import EmulatedDevice

ILLEGAL_ADDRESS = 700
CALLS = ("load", "encode", "count", "decode", "encode_shared")


class CudaError(RuntimeError):
    """An error of CUDA, as CuPy raises it."""

    status = ILLEGAL_ADDRESS


def handle_of(number: int, file: int) -> bytes:
    """Return the handle of a memory file of this process that counts as memory of a device."""
    return f"{number}:/proc/{os.getpid()}/fd/{file}".encode().ljust(HANDLE_BYTES, b"\0")


class ClientDevice(EmulatedDevice):
    """An emulated device that opens files as device memory of clients."""

    def open_shared(self, handle: bytes, num_bytes: int) -> int:
        number, _, path = handle.rstrip(b"\0").decode().partition(":")
        if number != str(self.number):
            raise BadHandle("no memory of this device")
        with open(path, "r+b") as file:
            memory = np.frombuffer(mmap.mmap(file.fileno(), 0), np.uint8)
        self.num_shared += 1
        self.blocks[memory.ctypes.data] = memory
        return int(memory.ctypes.data)

    def close_shared(self, address: int) -> None:
        super().close_shared(address)
        del self.blocks[address]


def with_faults(engine: GpuEngine, file: Path) -> Any:
    """Return an engine whose calls have the fault that is written in a file."""

    def faulty(call: Any) -> Any:
        def run(*arguments: Any) -> Any:
            match file.read_text() if file.exists() else "":
                case "fail":
                    raise RuntimeError("told to fail")
                case "lost":
                    raise CudaError("cudaErrorIllegalAddress")
                case "end":
                    os.kill(os.getpid(), signal.SIGKILL)
                case "hang":
                    time.sleep(600)
            return call(*arguments)

        return run

    for name in CALLS:
        setattr(engine, name, faulty(getattr(engine, name)))
    return engine


def run(folder: Path, argument: str) -> int:
    """Run the worker."""

    def open_gpu(number: int, memory_share: float, take: Any) -> OwnGpu:
        file = folder / f"gpu-{number}"
        if file.exists() and file.read_text() == "closed":
            raise DeviceUnavailable(f"no device {number}")
        device = ClientDevice(1 << 28, number=number)
        opened = open_engine(device, number, memory_share, take)
        assert isinstance(opened.gpu, GpuEngine)
        described = opened.device | {"visible": os.environ["CUDA_VISIBLE_DEVICES"]}
        return OwnGpu(device, OpenedGpu(with_faults(opened.gpu, file), described))

    return main(argument, open_gpu)


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), sys.argv[2]))
