"""The messages where CuPy, the driver, NVRTC or a device cannot be used."""

from __future__ import annotations

import re
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gpu.errors import DeviceUnavailable
from gpu.kernels.catalog import SOURCES, joined_source, source_of
from gpu.kernels.job import CUDA
from gpu.kernels.launch_shape import DeviceLimits
from gpu.runtime import cupy_loader
from gpu.runtime.cuda_device import CudaDevice
from gpu.runtime.cupy_loader import Card, check_device, describe_card, describe_cuda, load_cupy
from tests.support.gpus.fake_cupy import CUDARuntimeError, fake_cupy

INCLUDE = re.compile(r"^#include .+$", re.MULTILINE)


def test_a_device_that_has_all_that_is_needed_is_accepted() -> None:
    check_device(fake_cupy(), 0)
    check_device(fake_cupy(capability="75"), 0)
    check_device(fake_cupy(capability="90", nvrtc=(12, 0)), 0)
    check_device(fake_cupy(capability="120", nvrtc=(12, 8)), 0)


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        (
            {"count": CUDARuntimeError("cudaErrorInsufficientDriver"), "driver": 0},
            r"no NVIDIA driver: install it; a container needs `--gpus all`",
        ),
        (
            {"count": CUDARuntimeError("cudaErrorInsufficientDriver"), "built": 13020}
            | {"driver": 12080},
            r"CuPy is made for CUDA 13.2 and the driver is for CUDA 12.8: install .+ extra gpu ",
        ),
        (
            {"count": CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")},
            r"no CUDA device can be used: cudaErrorNoDevice",
        ),
        ({"count": 0}, r"there is no CUDA device: see nvidia-smi and CUDA_VISIBLE_DEVICES"),
        (
            {"capability": "70"},
            r"NVIDIA L4 has compute capability 7\.0, and the kernels need 7\.5 \(T4, RTX 20\)",
        ),
        (
            {"nvrtc": RuntimeError('Failure finding "libnvrtc.so"')},
            r"NVRTC, .+ is not found: .+ CUDA 12 or the package nvidia-cuda-nvrtc-cu12$",
        ),
        (
            {"nvrtc": OSError("libnvrtc.so.13"), "built": 13000},
            r"the toolkit of CUDA 13 or the package nvidia-cuda-nvrtc$",
        ),
        (
            {"nvrtc": (12, 6), "capability": "120"},
            r"NVRTC 12\.6 does not know NVIDIA L4: install that of CUDA 12\.8 or newer$",
        ),
        (
            {"nvrtc": OSError("libnvrtc.so.14"), "built": 14000},
            r"install the toolkit of CUDA 14$",
        ),
    ],
)
def test_what_is_missing_is_said(machine: dict[str, Any], message: str) -> None:
    with pytest.raises(DeviceUnavailable, match=message):
        check_device(fake_cupy(**machine), 0)


def test_a_number_beyond_the_devices_is_refused() -> None:
    with pytest.raises(
        DeviceUnavailable, match="there are 1 CUDA devices, but none has the number 1"
    ):
        check_device(fake_cupy(), 1)


class CannotImport(MetaPathFinder):
    """Lets the import of CuPy fail."""

    def __init__(self, error: ImportError) -> None:
        self.error = error

    def find_spec(self, name: str, *_: object) -> None:
        if name == "cupy":
            raise self.error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            ModuleNotFoundError("No module named 'cupy'", name="cupy"),
            r"^CuPy is not installed: install warptok with the extra gpu .+ gpu-cuda13 for CUDA 13",
        ),
        (
            ModuleNotFoundError("No module named 'cuda'", name="cuda"),
            r"^CuPy lacks the package cuda: install",
        ),
        (
            ImportError("\n=====\nCuPy is broken\n\nOriginal error:\n  libnvrtc.so.12\n=====\n"),
            r"^CuPy cannot be imported \(libnvrtc.so.12\): install",
        ),
        (ImportError(), r"^CuPy cannot be imported \(\): install"),
    ],
)
def test_a_cupy_that_cannot_be_imported_is_refused(
    monkeypatch: pytest.MonkeyPatch, error: ImportError, message: str
) -> None:
    monkeypatch.setattr(cupy_loader, "installed_wheels", lambda: [])
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(sys, "meta_path", [CannotImport(error), *sys.meta_path])
    with pytest.raises(DeviceUnavailable, match=message):
        load_cupy()
    with pytest.raises(DeviceUnavailable, match=message):
        CudaDevice()


def install(folder: Path, package: str) -> None:
    metadata = folder / f"{package.replace('-', '_')}-14.2.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 14.2.0\n")


def test_two_wheels_of_cupy_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setitem(sys.modules, "cupy", ModuleType("cupy"))
    install(tmp_path, "cupy-cuda13x")
    assert load_cupy() is sys.modules["cupy"]
    install(tmp_path, "cupy-cuda12x")
    with pytest.raises(DeviceUnavailable, match="`pip uninstall cupy-cuda12x cupy-cuda13x`, then"):
        load_cupy()


def test_a_card_and_its_cuda_are_described() -> None:
    card = Card(0, "NVIDIA L4", DeviceLimits((8, 9), 99 << 10), 24 << 30)
    assert describe_card(fake_cupy(), 0) == card
    assert describe_cuda(fake_cupy()) == "CuPy 14.2.0 for CUDA 12.9, driver for CUDA 13.0"


def test_the_kernels_include_no_header_of_cuda() -> None:
    """They need only NVRTC from the toolkit, which defines the contents of these headers itself."""
    sources = [joined_source(module) for module in SOURCES]
    sources += [source_of(f"embedding/{path.name}") for path in (CUDA / "embedding").glob("*.cu")]
    lines = {line for source in sources for line in INCLUDE.findall(source)}
    assert lines == {"#include <cstdint>", "#include <cstring>", "#include WARPTOK_EMULATION"}
