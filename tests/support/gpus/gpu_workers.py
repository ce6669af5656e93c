"""An engine with GPU workers whose devices are emulated, and the faults that tests give them."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from service.core.settings import Settings
from service.engines.cpu.engine import CpuEngine
from service.engines.hybrid.engine import HybridEngine
from service.engines.hybrid.opening import OpenedGpus
from service.engines.hybrid.several_gpus import SeveralGpus
from service.multiprocess.gpu_workers.opening import open_workers
from service.multiprocess.gpu_workers.remote_gpu import RemoteGpu
from service.multiprocess.link.shared_memory import LinkMemory

NEEDS_COMPILER = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ for the kernels")
WORKER = (sys.executable, "-m", "tests.support.gpus.emulated_gpu_worker")


@dataclass(frozen=True, slots=True)
class EmulatedWorkers:
    """An engine with two GPU workers.

    Attributes:
        engine: the engine.
        folder: the folder of the files with the workers' faults.
        memory: the memory of this process that the workers map.
    """

    engine: HybridEngine
    folder: Path
    memory: LinkMemory

    @property
    def several(self) -> SeveralGpus:
        """The engine that joins all GPUs."""
        opened = self.engine.vocabularies.opened
        assert isinstance(opened, OpenedGpus)
        return opened.several

    @property
    def gpus(self) -> list[RemoteGpu]:
        """The engine of each GPU."""
        gpus = [member.gpu for member in self.several.members]
        assert all(isinstance(gpu, RemoteGpu) for gpu in gpus)
        return gpus  # type: ignore[return-value]

    def states(self) -> list[str]:
        """The states of the GPUs."""
        return [each.state for each in self.several.members]

    def give_fault(self, number: int, fault: str) -> None:
        """Give a GPU a fault; "" ends it."""
        file = self.folder / f"gpu-{number}"
        if fault:
            file.with_suffix(".new").write_text(fault)
            file.with_suffix(".new").rename(file)
        else:
            file.unlink(missing_ok=True)

    def kill(self, number: int) -> int:
        """Kill the worker of a GPU; return the id of its process."""
        process_id = self.gpus[number].process_id
        os.kill(process_id, signal.SIGKILL)
        return process_id


def start_workers(cpu: CpuEngine, folder: Path, crossover_bytes: int = 0) -> EmulatedWorkers:
    """Start an engine with two workers; the caller closes it."""
    memory = LinkMemory()
    settings = Settings(gpu_memory_share=0.5)

    def open_gpus() -> OpenedGpus:
        return open_workers(settings, {0: "GPU-a", 1: "MIG-b"}, memory, [*WORKER, str(folder)])

    engine = HybridEngine(cpu, open_gpus, crossover_bytes)
    engine.settle()
    return EmulatedWorkers(engine, folder, memory)


def is_running(process_id: int) -> bool:
    """Return whether a process exists and has not ended."""
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
