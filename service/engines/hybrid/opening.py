"""Opens the GPUs that WARPTOK_GPUS names: one, or several that work together."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from gpu.engine import GpuEngine
from gpu.errors import DeviceUnavailable
from gpu.kernels.catalog import modules_of
from gpu.kernels.families import TEXT, family_on
from gpu.runtime.cuda_device import CudaDevice, num_devices, num_visible_slices
from gpu.runtime.device import Device
from service.core.settings import PREFIX
from service.engines.base import DeviceActivity, DeviceMemory, Engine, SelfTest
from service.engines.hybrid.device_threads import DeviceThreads
from service.engines.hybrid.residency import OpenedGpu
from service.engines.hybrid.several_gpus import PATIENCE_S, Member, SeveralGpus
from service.runtime.memory_pool import Take
from vocabularies.model.vocabulary import Vocabulary

logger = logging.getLogger(__name__)
VOCABULARIES_SHARE = 1 / 4  # Of the memory that may be used; batches have the rest.
ALL = "all"


@dataclass(frozen=True, slots=True, eq=False)
class OpenedGpus(OpenedGpu):
    """Several open GPUs.

    Attributes:
        several: all of them, as one.
        opened: each of them.
        failed: the devices that could not be opened.
    """

    several: SeveralGpus
    opened: Sequence[OpenedGpu]
    failed: Sequence[dict[str, str | int]] = ()

    @property
    def each(self) -> Mapping[str, OpenedGpu]:
        """The GPUs by their names in metrics."""
        labels = [member.label for member in self.several.members]
        return dict(zip(labels, self.opened, strict=True))

    @property
    def unavailable(self) -> Sequence[dict[str, str | int]]:
        """The devices that could not be opened."""
        return self.failed

    @property
    def has_breakers(self) -> bool:
        """Whether the GPUs have circuit breakers of their own: yes."""
        return True

    @property
    def is_resting(self) -> bool:
        """Whether all GPUs are left out now."""
        return not any(member.state == "ready" for member in self.several.members)

    @property
    def activity(self) -> dict[str, DeviceActivity]:
        """What each GPU does."""
        return {member.label: member.activity() for member in self.several.members}

    def self_test(self, cpu: Engine, vocabulary: Vocabulary) -> SelfTest:
        """Compare a loaded vocabulary's ids on each GPU with the reference and the CPU engine."""
        return self.several.self_test(cpu, vocabulary)

    def open_shared(self, handle: bytes, num_bytes: int, device_id: int) -> DeviceMemory:
        """Open device memory of another process on the GPU that has it; raises BadHandle."""
        return self.several.open_shared(handle, num_bytes, device_id)


def choose_gpus(gpus: str, num_visible: int) -> list[int]:
    """Return the numbers of the devices that the setting names; [] if there are no devices.

    Args:
        gpus: "all", a number of GPUs such as "2", or the numbers of GPUs, such as "0,2".
        num_visible: the number of devices that the process sees, which are numbered from 0 on.

    Raises:
        ValueError: there are fewer devices, but some.
    """
    if gpus == ALL or not num_visible:
        return list(range(num_visible))
    numbers = [int(number) for number in gpus.split(",")]
    if len(numbers) == 1:
        numbers = list(range(numbers[0]))
    if max(numbers) >= num_visible:
        visible = f"this process sees {num_visible}, numbered from 0 on"
        raise ValueError(f"{PREFIX}GPUS={gpus}: {visible} (CUDA_VISIBLE_DEVICES chooses them)")
    return numbers


def check_gpus(gpus: str) -> None:
    """Check that the devices exist that the setting names; all is always right.

    Raises:
        ValueError: there are fewer devices, or CUDA would leave out MIG slices.
    """
    if (num_slices := num_visible_slices()) > 1:
        raise ValueError(
            f"{PREFIX}GPUS={gpus}: CUDA_VISIBLE_DEVICES names {num_slices} MIG slices, and CUDA "
            "shows a process only one; start a service for each slice"
        )
    if gpus != ALL:
        choose_gpus(gpus, num_devices())


def open_cuda(memory_share: float, take: Take | None = None, gpus: str = ALL) -> OpenedGpu:
    """Open CUDA devices; compile their kernels if needed.

    Args:
        memory_share: the share of each device's free memory that may be used.
        take: allocates memory for ids, which is page-locked then; None: the device allocates it.
        gpus: see `choose_gpus`.

    Raises:
        DeviceUnavailable: there is no device that can be used, or CuPy is not installed.
        ValueError: there are fewer devices than `gpus` names.
    """
    numbers = choose_gpus(gpus, num_devices()) or [0]
    if len(numbers) == 1:
        return open_engine(CudaDevice(numbers[0]), numbers[0], memory_share, take)
    return open_several(numbers, memory_share, take)


def open_engine(
    device: Device, number: int, memory_share: float, take: Take | None = None
) -> OpenedGpu:
    """Open the engine of one device."""
    device.prepare(modules_of(family_on(TEXT, device.runs).kernels))  # While vocabularies are read.
    info = device.info
    budget = int(info.free_bytes * memory_share)
    vocabulary_bytes = int(budget * VOCABULARIES_SHARE)
    described: dict[str, str | int] = {
        "name": info.name,
        "number": number,
        "driver": info.driver,
        "total_bytes": info.total_bytes,
        "budget_bytes": budget,
        "vocabulary_budget_bytes": vocabulary_bytes,
    }
    gpu = GpuEngine(device, budget - vocabulary_bytes, vocabulary_bytes, take=take)
    return OpenedGpu(gpu, described)


class _Opening:
    """The opening of one of several devices on its own threads.

    Attributes:
        threads: the threads of the device; None: it does not exist.
        opened: its engine, once it is open.
        error: why it cannot be used.
    """

    def __init__(self, number: int, memory_share: float, take: Take | None) -> None:
        self.number = number
        self.threads: DeviceThreads | None = None
        self.opened: OpenedGpu | None = None
        self.error: Exception | None = None
        self._memory_share, self._take = memory_share, take
        self._future: Future[OpenedGpu] | None = None

    def start(self) -> None:
        """Start to open the device."""
        try:
            device = CudaDevice(self.number)
            self.threads = DeviceThreads(f"gpu-{self.number}", device.near_cores)
        except Exception as error:
            self.error = error
            return
        call = partial(open_engine, device, self.number, self._memory_share, self._take)
        self._future = self.threads.submit(call)

    def wait(self) -> None:
        """Wait until it is open, has failed, or hangs."""
        if self._future is None:
            return
        try:
            self.opened = self._future.result(PATIENCE_S)
        except Exception as error:
            self.error = error


def open_several(numbers: Sequence[int], memory_share: float, take: Take | None) -> OpenedGpus:
    """Open several devices, each on threads of its own; one that fails is left out.

    The first compiles the kernels alone; the others then find them on disk.

    Raises:
        DeviceUnavailable: none can be used.
    """
    opened: list[OpenedGpu] = []
    members: list[Member] = []
    failed: list[dict[str, str | int]] = []
    first, *others = [_Opening(number, memory_share, take) for number in numbers]
    first.start()
    first.wait()
    for each in others:
        each.start()
    for each in others:
        each.wait()
    for each in (first, *others):
        if each.opened is None or each.threads is None:
            logger.error("GPU %d cannot be used: %r", each.number, each.error)
            failed.append({"number": each.number, "state": "unavailable"})
            continue
        label = f"{each.opened.device['name']} #{each.number}"
        members.append(Member(each.opened.gpu, each.number, label, each.threads))
        opened.append(each.opened)
    if not opened:
        raise DeviceUnavailable(f"none of {len(numbers)} GPUs can be used: {first.error}")
    several = SeveralGpus(members)
    names = ", ".join(member.label for member in members)
    logger.info("%d GPUs: %s", len(members), names)
    return OpenedGpus(several, {"name": f"{len(members)} GPUs"}, several, opened, failed)
