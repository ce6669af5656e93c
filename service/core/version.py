"""Which warptok this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def package_version() -> str:
    """The installed version of warptok."""
    try:
        return version("warptok")
    except PackageNotFoundError:
        return "0 (not installed)"
