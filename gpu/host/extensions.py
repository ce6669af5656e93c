"""Imports the C++ extensions of this folder, which the GPU engine needs.

An installation without a compiler has no extensions. It can still import all of gpu/ and encode on
the CPU; the first use of a missing extension raises an error that says what to install.
"""

from __future__ import annotations

from typing import Any, NoReturn

from gpu.errors import DeviceUnavailable

HOW = (
    "the C++ extensions of the GPU engine are not built, or from older sources: install g++ and "
    "Python's headers, then install warptok again (in a checkout: `pip install -e .`)"
)


class _NotBuilt:
    """Stands in for a missing extension; every use of it raises DeviceUnavailable."""

    def __getattr__(self, name: str) -> _NotBuilt:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise DeviceUnavailable(HOW)


try:
    from gpu.host import _copy_pool, _fast_launch

    if not hasattr(_fast_launch, "LaunchSpec"):
        raise ImportError(HOW)
    copy_pool, fast_launch, are_built = _copy_pool, _fast_launch, True
except ImportError:
    copy_pool = fast_launch = _NotBuilt()  # type: ignore[assignment]
    are_built = False


def check_extensions() -> None:
    """Check that the extensions are built.

    Raises:
        DeviceUnavailable: they are not.
    """
    if not are_built:
        raise DeviceUnavailable(HOW)
