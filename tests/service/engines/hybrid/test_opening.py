"""Which GPUs are opened, and what stops the start."""

from __future__ import annotations

import os
import threading

import pytest

import service.engines.hybrid.opening as opening
from service.cli.parser import main
from service.core.settings import Settings
from service.engines.hybrid.device_threads import DeviceThreads
from service.engines.hybrid.opening import check_gpus, choose_gpus, list_visible_gpus
from service.server.app import make_engine
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


@pytest.mark.parametrize(
    ("visible", "count", "names"),
    [
        (None, 0, []),
        (None, 2, ["0", "1"]),
        ("2,0", 2, ["2", "0"]),
        (" GPU-1 , GPU-2 ", 2, ["GPU-1", "GPU-2"]),
        ("1,-1,0", 1, ["1"]),
        ("", 0, []),
        ("MIG-1", 1, ["MIG-1"]),
        ("MIG-1,MIG-2,MIG-3", 1, ["MIG-1", "MIG-2", "MIG-3"]),
        ("MIG-1,MIG-2", 0, []),
    ],
)
def test_each_gpu_has_the_name_that_shows_it_alone_to_a_process(monkeypatch, visible, count, names):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(opening, "num_devices", lambda: count)
    assert list_visible_gpus() == names


def test_mig_slices_count_as_devices(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1,MIG-2")
    monkeypatch.setattr(opening, "num_devices", lambda: 1)
    check_gpus("1,0")
    with pytest.raises(ValueError, match="this process sees 2"):
        check_gpus("3")


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
