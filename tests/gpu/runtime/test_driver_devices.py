"""The number of devices, from the driver alone."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from gpu.runtime import driver_devices
from gpu.runtime.driver_devices import count_driver_devices


class Driver:
    """Takes the place of libcuda.so.1."""

    def __init__(self, count: int, start: int = 0) -> None:
        self.count, self.start = count, start

    def cuInit(self, flags: int) -> int:
        assert flags == 0
        return self.start

    def cuDeviceGetCount(self, target: Any) -> int:
        target._obj.value = self.count
        return 0


@pytest.mark.parametrize(("driver", "expected"), [(Driver(2), 2), (Driver(2, start=100), 0)])
def test_the_driver_counts(monkeypatch: pytest.MonkeyPatch, driver: Driver, expected: int) -> None:
    monkeypatch.setattr(driver_devices, "find_spec", lambda name: object())
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    assert count_driver_devices() == expected


def test_no_driver_or_no_cupy_is_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    monkeypatch.setattr(driver_devices, "find_spec", lambda name: object())
    assert count_driver_devices() == 0
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver(2))
    monkeypatch.setattr(driver_devices, "find_spec", lambda name: None)
    assert count_driver_devices() == 0
