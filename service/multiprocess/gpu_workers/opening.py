"""Opens the GPUs of a service: one GPU in this process, or several in one worker each."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from gpu.errors import DeviceUnavailable
from service.core.settings import Settings
from service.engines.hybrid.device_threads import DeviceThreads
from service.engines.hybrid.member import PATIENCE_S, Member
from service.engines.hybrid.opening import (
    OpenedGpus,
    choose_gpus,
    list_visible_gpus,
    open_cuda,
)
from service.engines.hybrid.residency import OpenedGpu
from service.engines.hybrid.several_gpus import SeveralGpus
from service.multiprocess.gpu_workers.remote_gpu import RemoteGpu
from service.multiprocess.gpu_workers.worker_memory import WorkerMemory
from service.multiprocess.gpu_workers.worker_process import WorkerProcess
from service.multiprocess.link.shared_memory import LinkMemory
from service.runtime.child_environment import child_environment

logger = logging.getLogger(__name__)
WORKER = (sys.executable, "-m", "service.multiprocess.gpu_workers.worker")


def open_gpus(settings: Settings, memory: LinkMemory | None = None) -> OpenedGpu:
    """Open the CUDA devices that the settings name; compile their kernels if needed.

    Args:
        settings: the settings of the service.
        memory: the memory of this process that front ends read; None: no front ends.

    Raises:
        DeviceUnavailable: there is no device that can be used, or CuPy is not installed.
        ValueError: there are fewer devices than the settings name.
    """
    names = list_visible_gpus()
    numbers = choose_gpus(settings.gpus, len(names))
    if len(numbers) < 2:
        return open_cuda(settings.gpu_memory_share, None if memory is None else memory.take)
    return open_workers(settings, {number: names[number] for number in numbers}, memory)


def open_workers(
    settings: Settings,
    devices: dict[int, str],
    memory: LinkMemory | None = None,
    command: Sequence[str] = WORKER,
) -> OpenedGpus:
    """Open each of several devices in a worker; skip devices that fail.

    The first worker compiles the kernels alone; the others then find them on disk.

    Args:
        settings: the settings of the service.
        devices: the value of CUDA_VISIBLE_DEVICES for each device, by its number.
        memory: the memory of this process that front ends read; None: no front ends.
        command: the program of a worker.

    Raises:
        DeviceUnavailable: no device can be used.
    """
    mapped = LinkMemory() if memory is None else memory
    shared = WorkerMemory(mapped)

    def close() -> None:
        shared.close()
        if memory is None:
            mapped.close()

    first, *others = [
        _Opening(number, partial(_start, command, settings, number, name, shared), shared)
        for number, name in devices.items()
    ]
    first.start()
    first.wait()
    for each in others:
        each.start()
    for each in others:
        each.wait()
    opened = [each for each in (first, *others) if each.is_open]
    failed = [each for each in (first, *others) if not each.is_open]
    for each in failed:
        logger.error("GPU %d cannot be used: %r", each.number, each.error)
    if not opened:
        close()
        raise DeviceUnavailable(f"none of {len(devices)} GPUs can be used: {first.error}")
    several = SeveralGpus([each.make_member() for each in opened], close)
    names = ", ".join(member.label for member in several.members)
    logger.info("%d GPUs, each in a process of its own: %s", len(opened), names)
    return OpenedGpus(
        several,
        {"name": f"{len(opened)} GPUs"},
        several,
        [OpenedGpu(each.gpu, each.gpu.description) for each in opened],
        [{"number": each.number, "state": "unavailable"} for each in failed],
    )


def _start(
    command: Sequence[str], settings: Settings, number: int, device: str, memory: WorkerMemory
) -> WorkerProcess:
    """Start a worker."""
    arguments: dict[str, Any] = {
        "name": f"gpu-{number}",
        "number": number,
        "settings": settings.model_dump(mode="json"),
    }
    environment = child_environment() | {"CUDA_VISIBLE_DEVICES": device}
    return WorkerProcess(command, arguments, environment, memory)


class _Opening:
    """The opening of one of several devices.

    Args:
        number: the number of the device.
        start: starts a worker for it.
        memory: the memory of all workers.

    Attributes:
        gpu: the GPU in its worker.
        is_open: whether its worker has opened the device.
        error: why the GPU cannot be used, if it cannot.
    """

    gpu: RemoteGpu  # Missing until its worker has started.

    def __init__(
        self, number: int, start: Callable[[], WorkerProcess], memory: WorkerMemory
    ) -> None:
        self.number = number
        self.is_open = False
        self.error: Exception | None = None
        self._start, self._memory = start, memory
        self._threads = DeviceThreads(f"gpu-{number}")
        self._future: Future[None] | None = None

    def start(self) -> None:
        """Start the worker, which opens the device."""
        self._future = self._threads.submit(self._open)

    def _open(self) -> None:
        self.gpu = RemoteGpu(self._start, self._memory)
        self.gpu.open()

    def wait(self) -> None:
        """Wait until the device is open or has failed; kill the worker if it hangs."""
        assert self._future is not None
        try:
            self._future.result(PATIENCE_S)
            self.is_open = True
        except Exception as error:
            self.error = error
            if hasattr(self, "gpu"):
                self.gpu.kill()
                self.gpu.close()
            self._threads.close()

    def make_member(self) -> Member:
        """Make the `Member` of this GPU."""
        label = f"{self.gpu.description['name']} #{self.number}"
        return Member(self.gpu, self.number, label, self._threads, process=self.gpu)
