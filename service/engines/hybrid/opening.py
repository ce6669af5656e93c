"""Finds the GPUs that WARPTOK_GPUS names, and opens one of them in this process.

If there are several GPUs, service/multiprocess/gpu_workers opens each in a separate process.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpu.engine import GpuEngine
from gpu.kernels.catalog import modules_of
from gpu.kernels.families import TEXT, family_on
from gpu.runtime.cuda_device import CudaDevice, num_devices
from gpu.runtime.device import Device
from service.core.settings import PREFIX
from service.engines.base import AnswerIds, DeviceActivity, DeviceMemory, Engine, SelfTest
from service.engines.hybrid.residency import OpenedGpu
from service.engines.hybrid.several_gpus import SeveralGpus
from service.runtime.memory_pool import Take
from vocabularies.batch.batch import Batch
from vocabularies.model.vocabulary import Vocabulary

VOCABULARIES_SHARE = 1 / 4  # Of the memory that may be used; batches have the rest.
ALL = "all"
MIG = "MIG-"


@dataclass(frozen=True, slots=True, eq=False)
class OpenedGpus(OpenedGpu):
    """Several open GPUs.

    Attributes:
        several: all GPUs, presented as one.
        opened: each GPU.
        failed: the devices that could not be opened, as `EngineStatus.devices` describes them.
    """

    several: SeveralGpus
    opened: Sequence[OpenedGpu]
    failed: Sequence[dict[str, str | int]] = ()

    @property
    def each(self) -> Mapping[str, OpenedGpu]:
        """The GPUs by name in metrics."""
        labels = [member.label for member in self.several.members]
        return dict(zip(labels, self.opened, strict=True))

    @property
    def unavailable(self) -> Sequence[dict[str, str | int]]:
        """The devices that could not be opened."""
        return self.failed

    @property
    def has_breakers(self) -> bool:
        """Return True, as each GPU has its own circuit breaker."""
        return True

    @property
    def is_resting(self) -> bool:
        """Return whether all GPUs are currently excluded."""
        return not any(member.state == "ready" for member in self.several.members)

    @property
    def activity(self) -> dict[str, DeviceActivity]:
        """The activity of each GPU."""
        return {member.label: member.activity() for member in self.several.members}

    def self_test(self, cpu: Engine, vocabulary: Vocabulary) -> SelfTest:
        """Compare a loaded vocabulary's ids on each GPU with the reference and the CPU engine."""
        return self.several.self_test(cpu, vocabulary)

    def begin_encode(self, vocabulary: Vocabulary, batch: Batch, answer: AnswerIds) -> bool:
        """Let the process of a GPU begin to encode a batch; see `DeviceSharing.begin_encode`."""
        return self.several.begin_encode(vocabulary, batch, answer)

    def open_shared(self, handle: bytes, num_bytes: int, device_id: int) -> DeviceMemory:
        """Open device memory of another process on the GPU that has it; raises BadHandle."""
        return self.several.open_shared(handle, num_bytes, device_id)


def choose_gpus(gpus: str, num_visible: int) -> list[int]:
    """Return the numbers of the devices that the setting names; [] if there are no devices.

    Args:
        gpus: "all", a number of GPUs such as "2", or the numbers of GPUs, such as "0,2".
        num_visible: the number of devices that the process sees, which are numbered from 0 on.

    Raises:
        ValueError: there are devices, but fewer than the setting names.
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
    """Check that the devices that the setting names exist; "all" is always valid.

    Raises:
        ValueError: there are fewer devices than the setting names.
    """
    if gpus != ALL:
        choose_gpus(gpus, len(list_visible_gpus()))


def list_visible_gpus() -> list[str]:
    """Return the values of CUDA_VISIBLE_DEVICES that each show a process one device.

    MIG slices are listed by name, as CUDA shows a process only the first of several. No context is
    made on any device.
    """
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [] if value is None else [name.strip() for name in value.split(",")]
    slices = [name for name in names if name.startswith(MIG)]
    count = num_devices()
    if count and len(slices) > 1:
        return slices
    # CUDA ignores what stands behind the first name that it does not know.
    return [str(number) for number in range(count)] if value is None else names[:count]


def open_cuda(memory_share: float, take: Take | None = None) -> OpenedGpu:
    """Open the first CUDA device in this process; compile its kernels if needed.

    Args:
        memory_share: the share of the device's free memory that may be used.
        take: allocates memory for ids, which is then page-locked; None: the device allocates it.

    Raises:
        DeviceUnavailable: there is no device that can be used, or CuPy is not installed.
    """
    return open_engine(CudaDevice(), 0, memory_share, take)


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
