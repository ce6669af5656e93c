"""Which GPUs are opened in the process itself, and which in workers."""

from __future__ import annotations

from typing import Any

import pytest

import service.multiprocess.gpu_workers.opening as opening
from gpu.errors import DeviceUnavailable
from service.core.settings import Settings
from service.multiprocess.gpu_workers.opening import open_gpus, open_workers
from service.multiprocess.link.shared_memory import LinkMemory

NAMES = ["GPU-a", "GPU-b", "MIG-c"]


@pytest.fixture
def opened(monkeypatch) -> list[Any]:
    """What is opened: "here", or the names of the devices of workers by their numbers."""
    opened: list[Any] = []
    monkeypatch.setattr(opening, "open_cuda", lambda share, take: opened.append(("here", take)))
    monkeypatch.setattr(
        opening, "open_workers", lambda settings, devices, memory: opened.append(devices)
    )
    return opened


@pytest.mark.parametrize(
    ("gpus", "devices"),
    [
        ("all", {0: "GPU-a", 1: "GPU-b", 2: "MIG-c"}),
        ("2", {0: "GPU-a", 1: "GPU-b"}),
        ("2,0", {2: "MIG-c", 0: "GPU-a"}),
    ],
)
def test_each_of_several_gpus_gets_a_worker(opened, monkeypatch, gpus, devices):
    monkeypatch.setattr(opening, "list_visible_gpus", lambda: NAMES)
    open_gpus(Settings(gpus=gpus))
    assert opened == [devices]


@pytest.mark.parametrize(("gpus", "names"), [("1", NAMES), ("all", ["0"]), ("all", [])])
def test_a_single_gpu_is_opened_here(opened, monkeypatch, gpus, names):
    monkeypatch.setattr(opening, "list_visible_gpus", lambda: names)
    memory = LinkMemory()
    open_gpus(Settings(gpus=gpus), memory)
    open_gpus(Settings(gpus=gpus))
    assert opened == [("here", memory.take), ("here", None)]
    memory.close()


def test_workers_that_do_not_start_are_no_gpus():
    with pytest.raises(DeviceUnavailable, match=r"none of 2 GPUs .* has ended with 1"):
        open_workers(Settings(), {0: "0", 1: "1"}, None, ["false"])
