"""Runs tests of the CPU engine with its C++ extensions compiled for a sanitizer of GCC.

A process of its own runs them, with the sanitizer's library in LD_PRELOAD: pytest loads this module
as a plugin there, which puts the sanitized extensions in place of the built ones.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path

from tests.support.compiled import compiled
from tests.support.data_files import ROOT

VARIABLE = "WARPTOK_SANITIZED"
ENGINE = ROOT / "service" / "engines" / "cpu"
SOURCES = {
    "service.engines.cpu.text._text_bpe": Path("text/native/text_bpe.cpp"),
    "service.engines.cpu.dna._dna_bpe": Path("dna/native/dna_bpe.cpp"),
    "service.engines.cpu.symbols._symbols": Path("symbols/native/symbols.cpp"),
}
FLAGS = ("-O1", "-g1", "-pthread")


@dataclass(frozen=True)
class Sanitizer:
    """A sanitizer of GCC.

    Attributes:
        flags: for the compiler.
        libraries: the libraries that are loaded before Python.
        environment: its options.
        report: how its reports begin.
    """

    flags: tuple[str, ...]
    libraries: tuple[str, ...]
    environment: Mapping[str, str]
    report: str


ADDRESS = Sanitizer(
    ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
    ("libasan.so", "libubsan.so", "libstdc++.so"),
    {"ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc"},
    "ERROR: AddressSanitizer",
)
THREAD = Sanitizer(
    ("-fsanitize=thread",),
    ("libtsan.so", "libstdc++.so"),
    {"TSAN_OPTIONS": "report_signal_unsafe=0:exitcode=66"},
    "WARNING: ThreadSanitizer",
)


def compile_extensions(
    sanitizer: Sanitizer, engine: Path = ENGINE, sources: Mapping[str, Path] = SOURCES
) -> dict[str, Path]:
    """Compile extensions for a sanitizer, several at once; return their files by module.

    Args:
        sanitizer: the sanitizer.
        engine: the folder of the CPU engine, or a copy of it.
        sources: the extensions' sources in it, by module.
    """

    def compile_one(source: Path) -> Path:
        path = engine / source
        include = f"-I{sysconfig.get_paths()['include']}"
        headers = sorted((*path.parent.glob("*.hpp"), *(engine / "native").glob("*.hpp")))
        flags = (*FLAGS, *sanitizer.flags, include, f"-I{path.parent}")
        return compiled(f"sanitized-{path.stem}", path.read_text(), flags, headers)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(sources, pool.map(compile_one, sources.values()), strict=True))


def run_sanitized(
    sanitizer: Sanitizer, extensions: Mapping[str, Path], arguments: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    """Run pytest with extensions that are compiled for a sanitizer."""
    libraries = [_find_library(name) for name in sanitizer.libraries]
    environment = {
        **os.environ,
        **sanitizer.environment,
        "LD_PRELOAD": " ".join(libraries),
        "HYPOTHESIS_PROFILE": "quick",
        VARIABLE: json.dumps({name: str(path) for name, path in extensions.items()}),
    }
    plugins = ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", __name__]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-s", *plugins, *arguments]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)


def _find_library(name: str) -> str:
    """Find a library of the compiler; the named file may be a linker script that refers to it."""
    command = ["g++", f"-print-file-name={name}"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    return str(Path(found.stdout.strip()).resolve())


class _Finder(MetaPathFinder):
    """Finds the sanitized extensions before the built ones."""

    def __init__(self, extensions: Mapping[str, str]) -> None:
        self.extensions = extensions

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        if name not in self.extensions:
            return None
        return importlib.util.spec_from_file_location(name, self.extensions[name])


if VARIABLE in os.environ:
    sys.meta_path.insert(0, _Finder(json.loads(os.environ[VARIABLE])))
