"""A fake CuPy of a machine with an L4, for `cupy_loader`; parts of it can be missing."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn


class CUDARuntimeError(RuntimeError):
    """An error of the CUDA runtime, as CuPy names it."""


def failing(error: Exception) -> Callable[..., NoReturn]:
    def fail(*_: object) -> NoReturn:
        raise error

    return fail


def fake_cupy(
    *,
    count: int | Exception = 1,
    driver: int = 13000,
    built: int = 12090,
    capability: str = "89",
    nvrtc: tuple[int, int] | Exception = (12, 9),
) -> Any:
    """Make the parts of CuPy that `cupy_loader` uses, for a machine with an L4."""
    runtime = SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError,
        getDeviceCount=failing(count) if isinstance(count, Exception) else lambda: count,
        driverGetVersion=lambda: driver,
        runtimeGetVersion=lambda: built,
        getDeviceProperties=lambda number: {"name": b"NVIDIA L4", "totalGlobalMem": 24 << 30},
        deviceGetAttribute=lambda attribute, number: 99 << 10,
    )
    cuda = SimpleNamespace(
        runtime=runtime,
        Device=lambda number: SimpleNamespace(compute_capability=capability),
        nvrtc=SimpleNamespace(
            getVersion=failing(nvrtc) if isinstance(nvrtc, Exception) else lambda: nvrtc
        ),
    )
    return SimpleNamespace(cuda=cuda, __version__="14.2.0")
