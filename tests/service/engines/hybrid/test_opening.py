"""Which GPUs are opened, and what stops the start."""

from __future__ import annotations

import os
import threading

import pytest

import service.engines.hybrid.opening as opening
from gpu.errors import DeviceUnavailable
from service.cli.parser import main
from service.core.settings import Settings
from service.engines.cpu.engine import CpuEngine
from service.engines.hybrid.device_threads import DeviceThreads
from service.engines.hybrid.engine import HybridEngine
from service.engines.hybrid.opening import OpenedGpus, check_gpus, choose_gpus, open_cuda
from service.server.app import make_engine
from tests.support.emulation.device import EmulatedDevice
from vocabularies.batch.batch import Batch
from vocabularies.builtin import load


@pytest.mark.parametrize(
    ("gpus", "num_visible", "numbers"),
    [
        ("all", 0, []),
        ("all", 1, [0]),
        ("all", 3, [0, 1, 2]),
        ("2", 3, [0, 1]),
        ("0,2", 3, [0, 2]),
        ("2,1", 3, [2, 1]),
        ("2", 0, []),
        ("0,2", 0, []),
    ],
)
def test_the_setting_names_devices_that_the_process_sees(gpus, num_visible, numbers):
    assert choose_gpus(gpus, num_visible) == numbers


@pytest.mark.parametrize("gpus", ["2", "0,1", "1,0"])
def test_more_than_there_are_stop_the_start_and_name_the_setting(monkeypatch, gpus):
    monkeypatch.setattr(opening, "num_devices", lambda: 1)
    monkeypatch.setattr("service.server.app.importlib.util.find_spec", lambda name: object())
    with pytest.raises(ValueError, match=f"WARPTOK_GPUS={gpus}: this process sees 1"):
        make_engine(Settings(gpus=gpus))


def test_without_any_gpu_the_cpu_answers_whatever_the_setting_names(monkeypatch):
    monkeypatch.setattr(opening, "num_devices", lambda: 0)
    monkeypatch.setattr("service.server.app.importlib.util.find_spec", lambda name: object())
    engine = make_engine(Settings(gpus="2"))
    engine.settle()
    assert engine.encode(load("gpt2"), Batch(["a"])).engine == "cpu"
    assert engine.status().engines == ("cpu",)
    engine.close()


def test_a_wrong_spelling_stops_the_command_with_the_settings_name(monkeypatch, capsys):
    monkeypatch.setenv("WARPTOK_GPUS", "first")
    assert main(["serve"]) == 2
    assert "WARPTOK_GPUS: " in capsys.readouterr().err


def test_several_mig_slices_are_refused_since_cuda_shows_only_one(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1")
    check_gpus("all")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1,MIG-2")
    with pytest.raises(ValueError, match="WARPTOK_GPUS=all: CUDA_VISIBLE_DEVICES names 2 MIG"):
        check_gpus("all")


class FakeCuda(EmulatedDevice):
    """An emulated device in the place of CUDA's; `missing` ones do not answer."""

    near_cores: frozenset[int] = frozenset()
    missing: tuple[int, ...] = ()

    def __init__(self, number: int = 0) -> None:
        super().__init__(1 << 28, number=number)
        if number in self.missing:
            raise DeviceUnavailable(f"no device {number}")

    def prepare(self, modules) -> None:
        self.thread = threading.current_thread().name


@pytest.fixture
def cuda(monkeypatch):
    class Own(FakeCuda):
        pass

    monkeypatch.setattr(opening, "CudaDevice", Own)
    monkeypatch.setattr(opening, "num_devices", lambda: 3)
    return Own


def test_each_device_has_its_own_budget_threads_and_engine(cuda):
    opened = open_cuda(0.5, None, "0,2")
    assert isinstance(opened, OpenedGpus)
    assert list(opened.each) == ["emulation #0", "emulation #2"]
    devices = [each.device for each in opened.each.values()]
    assert [device["number"] for device in devices] == [0, 2]
    assert {device["budget_bytes"] for device in devices} == {1 << 27}
    names = [member.gpu.device.thread for member in opened.several.members]
    assert names == ["gpu-0", "gpu-2"]
    opened.several.close()


def test_one_is_opened_as_ever(cuda, monkeypatch):
    for gpus, number in (("1", 0), ("all", 0)):
        monkeypatch.setattr(opening, "num_devices", lambda: 1)
        opened = open_cuda(0.5, None, gpus)
        assert not isinstance(opened, OpenedGpus)
        assert opened.device["number"] == number
        assert list(opened.each) == ["emulation"]
        opened.gpu.close()


def test_one_that_cannot_be_opened_is_listed_and_the_others_work(cuda):
    cuda.missing = (0,)
    engine = HybridEngine(CpuEngine(), lambda: open_cuda(0.5), 0)
    engine.settle()
    devices = engine.status().devices
    assert [device["number"] for device in devices] == [1, 2, 0]
    assert [device["state"] for device in devices] == ["ready", "ready", "unavailable"]
    engine.close()


def test_where_none_can_be_opened_there_is_no_gpu(cuda):
    cuda.missing = (0, 1, 2)
    with pytest.raises(DeviceUnavailable, match="none of 3 GPUs"):
        open_cuda(0.5)


# Threads of a device.


def test_threads_are_used_again_and_run_on_the_cores_of_the_device():
    core = min(os.sched_getaffinity(0))
    threads = DeviceThreads("near", frozenset({core}))
    names = {threads.submit(threading.current_thread).result() for _ in range(5)}
    assert len(names) == 1
    assert threads.submit(lambda: os.sched_getaffinity(0)).result() == {core}
    assert all(thread.daemon for thread in names)
    both = threading.Barrier(2)
    futures = [threads.submit(both.wait) for _ in range(2)]
    assert sorted(future.result(60) for future in futures) == [0, 1]
    with pytest.raises(ZeroDivisionError):
        threads.submit(lambda: 1 / 0).result()
    threads.close()
    with pytest.raises(RuntimeError, match="closed"):
        threads.submit(both.wait)
