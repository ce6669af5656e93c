"""The version of warptok."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version


def package_version() -> str:
    """Return the installed version of warptok."""
    try:
        return version("warptok")
    except PackageNotFoundError:
        return "0 (not installed)"


def library_versions(names: Iterable[str]) -> list[str]:
    """Return the versions of Python and the named libraries; "" if not installed."""
    versions = [platform.python_version()]
    for name in names:
        try:
            versions.append(version(name))
        except PackageNotFoundError:
            versions.append("")
    return versions
