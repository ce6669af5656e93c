"""Compiles C++ to shared libraries for the tests, each once for all processes."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.data_files import ROOT

BUILD = ROOT / "build" / "emulation"
EMULATION_FLAGS = (
    *os.environ.get("WARPTOK_EMULATION_FLAGS", "-O2").split(),
    "-fno-ipa-cp",  # GCC 12 may take shared memory that a function fills for constant.
    "-Wno-unknown-pragmas",
)
"""The compiler's flags for kernels that are compiled as C++.

WARPTOK_EMULATION_FLAGS replaces -O2, for example by `-O1 -g -fsanitize=address`, together with
LD_PRELOAD of libasan and ASAN_OPTIONS=detect_leaks=0.
"""


def compiled(name: str, source: str, flags: Sequence[str], included: Iterable[Path] = ()) -> Path:
    """Compile a source to a library in build/, named by the digest of source, flags and headers.

    Skips the test where there is no g++.

    Args:
        name: the beginning of the library's file name.
        source: C++17.
        flags: the flags of the compiler.
        included: the files that the source includes.

    Raises:
        AssertionError: the source does not compile.
    """
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++ to compile the kernels with")
    made_of = [source, *flags, *(path.read_text() for path in included)]
    digest = hashlib.sha256("\0".join(made_of).encode()).hexdigest()[:16]
    path = BUILD / f"{name}-{digest}.so"
    BUILD.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            unfinished = path.with_suffix(".unfinished")
            command = [compiler, "-std=c++17", *flags, "-shared", "-fPIC", "-x", "c++"]
            command += ["-o", str(unfinished), "-"]
            done = subprocess.run(command, input=source, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            unfinished.rename(path)
    return path


def extension(source: Path, name: str) -> ModuleType:
    """Compile and import one of our C++ modules, with every warning an error."""
    include = sysconfig.get_paths()["include"]
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", f"-I{include}", f"-I{source.parent}"]
    path = compiled(name, source.read_text(), flags, source.parent.glob("*.hpp"))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
