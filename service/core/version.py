"""The version of warptok."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def package_version() -> str:
    """Return the installed version of warptok."""
    try:
        return version("warptok")
    except PackageNotFoundError:
        return "0 (not installed)"
