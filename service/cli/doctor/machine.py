"""Checks of the machine and the installation, which need no settings."""

from __future__ import annotations

import importlib
import os
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from gpu.host import extensions
from service.cli.doctor.finding import Finding
from service.core.version import package_version

LIBRARIES = ("fastokens", "tokenizers", "ahocorasick-rs", "numpy")
"""The packages that the CPU engine computes with."""
BUILD = (
    "install g++ and Python's headers, then install warptok again (in a checkout: "
    "`pip install -e .`)"
)


class Extension(NamedTuple):
    """A C++ extension that every service uses, and what is slower without it."""

    module: str
    name: str
    without: str


EXTENSIONS = (
    Extension(
        "vocabularies.batch._string_join",
        "C++ that joins strings",
        "Python joins the texts of a batch, which takes longer",
    ),
    Extension(
        "service.operations.rendering._json_rows",
        "C++ that writes ids as JSON",
        "orjson writes the rows of a batch, which takes longer",
    ),
    Extension(
        "service.engines.cpu.bpe._joined_short_texts",
        "C++ that joins short texts",
        "the CPU engine encodes short texts one by one, which takes longer",
    ),
    Extension(
        "service.engines.cpu.dna._dna_bpe",
        "C++ that encodes DNA BPE",
        "the CPU engine encodes DNABERT-2 and GENA-LM by tokenizers, fifty times slower",
    ),
    Extension(
        "service.engines.cpu.symbols._symbols",
        "C++ that encodes characters and k-mers",
        "the CPU engine encodes them by the reference, more than a thousand times slower",
    ),
)


def check_version() -> Iterator[Finding]:
    """Report the versions of warptok and Python, the cores and the memory."""
    yield Finding("warptok", "ok", package_version())
    yield Finding("Python", "ok", f"{platform.python_implementation()} {platform.python_version()}")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0))
    yield Finding("machine", "ok", f"{cores} cores, {gib(memory)} of memory")


def check_extensions() -> Iterator[Finding]:
    """Report which C++ extensions are built."""
    for extension in EXTENSIONS:
        try:
            importlib.import_module(extension.module)
        except ImportError:
            detail = f"not built: {extension.without}"
            yield Finding(extension.name, "warning", detail, BUILD)
        else:
            yield Finding(extension.name, "ok", "built")
    if extensions.are_built:
        yield Finding("C++ of the GPU engine", "ok", "built")
    else:
        detail = "not built, or from older sources: the GPU engine cannot be used"
        yield Finding("C++ of the GPU engine", "warning", detail, BUILD)


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
