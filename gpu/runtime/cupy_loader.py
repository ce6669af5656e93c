"""Imports CuPy, and checks that it, the driver and a device can run the kernels.

Any wheel of CuPy for CUDA can be used. An error says in one sentence what to install.
The kernels include no header of CUDA, so of the toolkit only NVRTC is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from gpu.errors import DeviceUnavailable
from gpu.kernels.launch_shape import DeviceLimits
from gpu.runtime.module_loader import limits_of

LEAST_CAPABILITY = (7, 5)
"""The least compute capability that the kernels are compiled for."""
WHEELS = ("cupy", "cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x")
"""Packages that install CuPy in the same folder."""
EXTRAS = (
    "install warptok with the extra gpu for a driver of CUDA 12, or gpu-cuda13 for CUDA 13 "
    "(`pip install '.[gpu]'` in a checkout; nvidia-smi shows the driver's CUDA)"
)
NOT_INSTALLED = f"CuPy is not installed: {EXTRAS}"
NVRTC = {12: "nvidia-cuda-nvrtc-cu12", 13: "nvidia-cuda-nvrtc"}
"""The packages of NVRTC by the major version of CUDA."""

NEW_CAPABILITY, NEW_NVRTC = (10, 0), (12, 8)
"""Cards from this compute capability on are known to NVRTC from this version on."""


@dataclass(frozen=True, slots=True)
class Card:
    """A CUDA device, as the driver describes it.

    Attributes:
        number: its number, as the driver counts.
        name: its name.
        limits: its limits for launches.
        total_bytes: its memory.
    """

    number: int
    name: str
    limits: DeviceLimits
    total_bytes: int


def load_cupy() -> Any:
    """Import CuPy.

    Raises:
        DeviceUnavailable: it is not installed, installed twice, or cannot be imported.
    """
    installed = installed_wheels()
    if len(installed) > 1:
        raise DeviceUnavailable(
            f"CuPy is installed more than once ({', '.join(installed)}), and one overwrites the "
            f"other: `pip uninstall {' '.join(installed)}`, then {EXTRAS}"
        )
    try:
        import cupy
    except ModuleNotFoundError as error:
        if error.name != "cupy":
            raise DeviceUnavailable(f"CuPy lacks the package {error.name}: {EXTRAS}") from error
        raise DeviceUnavailable(NOT_INSTALLED) from error
    except ImportError as error:
        *_, reason = [line for line in str(error).splitlines() if line.strip(" =")] or [""]
        raise DeviceUnavailable(f"CuPy cannot be imported ({reason.strip()}): {EXTRAS}") from error
    return cupy


def installed_wheels() -> list[str]:
    """Return the names of the packages of CuPy that are installed."""
    return [name for name in WHEELS if _version_of(name)]


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def count_devices(cupy: Any) -> int:
    """Return the number of CUDA devices; it is at least 1.

    Raises:
        DeviceUnavailable: there is no driver or no device, or the driver is older than CuPy's CUDA.
    """
    runtime = cupy.cuda.runtime
    try:
        count = int(runtime.getDeviceCount())
    except runtime.CUDARuntimeError as error:
        driver, built = runtime.driverGetVersion(), runtime.runtimeGetVersion()
        if driver == 0:
            raise DeviceUnavailable(
                "there is no NVIDIA driver: install it; a container needs `--gpus all`"
            ) from error
        if driver // 1000 < built // 1000:
            raise DeviceUnavailable(
                f"CuPy is made for CUDA {_name(built)} and the driver is for CUDA {_name(driver)}: "
                f"install a newer driver, or another CuPy: {EXTRAS}"
            ) from error
        raise DeviceUnavailable(f"no CUDA device can be used: {error}") from error
    if count == 0:
        raise DeviceUnavailable("there is no CUDA device: see nvidia-smi and CUDA_VISIBLE_DEVICES")
    return count


def check_device(cupy: Any, number: int) -> None:
    """Check that the kernels can be compiled for a device and run there.

    Raises:
        DeviceUnavailable: it does not exist or is too old, or NVRTC is missing.
    """
    count = count_devices(cupy)
    if not 0 <= number < count:
        raise DeviceUnavailable(f"there are {count} CUDA devices, but none has the number {number}")
    card = describe_card(cupy, number)
    check_capability(card)
    check_nvrtc(cupy, card)


def check_capability(card: Card) -> None:
    """Check that the kernels can be compiled for a card.

    Raises:
        DeviceUnavailable: it is too old.
    """
    if card.limits.capability < LEAST_CAPABILITY:
        raise DeviceUnavailable(
            f"{card.name} has compute capability {_dotted(card.limits.capability)}, and the "
            f"kernels need {_dotted(LEAST_CAPABILITY)} (T4, RTX 20) or more"
        )


def check_nvrtc(cupy: Any, card: Card) -> None:
    """Check that CUDA's run-time compiler is installed and supports a card.

    Raises:
        DeviceUnavailable: it is missing or does not support the card.
    """
    try:
        nvrtc = tuple(cupy.cuda.nvrtc.getVersion())
    except (ImportError, OSError, RuntimeError) as error:
        major = cupy.cuda.runtime.runtimeGetVersion() // 1000
        package = f" or the package {NVRTC[major]}" if major in NVRTC else ""
        raise DeviceUnavailable(
            f"NVRTC, which compiles the kernels, is not found: install the toolkit of CUDA {major}"
            f"{package}"
        ) from error
    if card.limits.capability >= NEW_CAPABILITY and nvrtc < NEW_NVRTC:
        raise DeviceUnavailable(
            f"NVRTC {_dotted(nvrtc)} does not know {card.name}: install that of CUDA "
            f"{_dotted(NEW_NVRTC)} or newer"
        )


def describe_card(cupy: Any, number: int) -> Card:
    """Return the description of a device; no context is made."""
    properties = cupy.cuda.runtime.getDeviceProperties(number)
    limits = limits_of(cupy, number)
    return Card(number, properties["name"].decode(), limits, int(properties["totalGlobalMem"]))


def describe_cuda(cupy: Any) -> str:
    """Return the versions of CuPy, its CUDA and the driver's CUDA."""
    runtime = cupy.cuda.runtime
    built, driver = runtime.runtimeGetVersion(), runtime.driverGetVersion()
    return f"CuPy {cupy.__version__} for CUDA {_name(built)}, driver for CUDA {_name(driver)}"


def _name(cuda: int) -> str:
    return f"{cuda // 1000}.{cuda % 1000 // 10}"


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
