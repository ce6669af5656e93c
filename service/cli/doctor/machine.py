"""Checks of the machine and the installation, which need no settings."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from gpu.host import extensions
from gpu.host.cores import usable_cores
from service.cli.doctor.finding import Finding
from service.core.version import package_version
from service.runtime.extensions import EXTENSIONS, HOW, NO_GPU, is_built

LIBRARIES = ("tokenizers", "ahocorasick-rs", "numpy")
"""The packages that the CPU engine computes with."""


def check_version() -> Iterator[Finding]:
    """Report the versions of warptok and Python, the cores and the memory."""
    yield Finding("warptok", "ok", package_version())
    yield Finding("Python", "ok", f"{platform.python_implementation()} {platform.python_version()}")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores, everywhere = usable_cores(), os.cpu_count() or 1
    detail = f"{cores} cores, {gib(memory)} of memory"
    if cores < everywhere:
        detail = f"{cores} of {everywhere} cores may be used, {gib(memory)} of memory"
    yield Finding("machine", "ok", detail, facts={"cores": cores})


def check_extensions() -> Iterator[Finding]:
    """Report which C++ extensions are built."""
    for extension in EXTENSIONS:
        if is_built(extension):
            yield Finding(extension.name, "ok", "built")
        else:
            yield Finding(extension.name, "warning", f"not built: {extension.without}", HOW)
    if extensions.are_built:
        yield Finding("C++ of the GPU engine", "ok", "built")
    else:
        detail = f"not built, or from older sources: {NO_GPU}"
        yield Finding("C++ of the GPU engine", "warning", detail, HOW)


def check_libraries() -> Iterator[Finding]:
    """Report the versions of the libraries of the CPU engine."""
    versions = {name: _version_of(name) for name in LIBRARIES}
    missing = [name for name, found in versions.items() if not found]
    if missing:
        detail = f"{', '.join(missing)} not installed"
        yield Finding("CPU engine", "error", detail, "install warptok again")
        return
    detail = ", ".join(f"{name} {found}" for name, found in versions.items())
    yield Finding("CPU engine", "ok", detail, facts={"versions": versions})


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def gib(num_bytes: int) -> str:
    """Return a number of bytes in GiB."""
    return f"{num_bytes / 2**30:.1f} GiB"
