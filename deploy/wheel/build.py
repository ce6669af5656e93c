"""Builds wheels for Linux with all C++ extensions, one for each architecture.

    python deploy/wheel/build.py [--compiler zig|g++] FOLDER [ARCHITECTURE]...

Zig, a compiler that PyPI has, links for an old glibc and for other architectures, and puts its C++
library into each extension, so that one machine builds wheels that nearly every Linux can install.
g++ links for the glibc of this machine. auditwheel names a wheel by the libraries that it needs.
A wheel is for the version of Python that runs this. docs/decisions/project/0077 has what each
costs. All packages are below warptok in it (nest.py).
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from nest import OUTER, nest

ROOT = Path(__file__).resolve().parents[2]
ARCHITECTURES = ("x86_64", "aarch64")
GLIBC = "2.17"
"""The oldest glibc of the wheels, of 2012; Zig has the symbols of each version."""


def main() -> int:
    """Build the wheels; return 1 if one lacks an extension or needs a newer glibc."""
    parser = argparse.ArgumentParser(description="Builds wheels for Linux.")
    parser.add_argument("--compiler", choices=("zig", "g++"), default="zig")
    parser.add_argument("folder", type=Path)
    parser.add_argument("architectures", nargs="*", default=ARCHITECTURES, metavar="ARCHITECTURE")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for architecture in arguments.architectures:
        with tempfile.TemporaryDirectory(prefix="warptok-wheel-") as name:
            wheel = build(arguments.compiler, architecture, Path(name))
            named = name_by_libraries(wheel, Path(name) / "named")
            problem = find_missing(named)
            if arguments.compiler == "zig" and not is_for_glibc(named.name):
                problem = f"needs a newer glibc than {GLIBC}"
            if problem:
                print(f"{named.name}: {problem}", file=sys.stderr)
                return 1
            print(shutil.copy(named, arguments.folder))
    return 0


def build(compiler: str, architecture: str, scratch: Path) -> Path:
    """Build the wheel of an architecture, named linux_ARCHITECTURE, in a folder of its own."""
    # Not build/, which keeps modules that no longer exist.
    (scratch / "setup.cfg").write_text(f"[build]\nbuild_base = {scratch / 'build'}\n")
    sources = scratch / "sources"
    nest(sources)
    options = ["--no-deps", "--no-build-isolation", "--quiet", "--disable-pip-version-check"]
    environment = compiler_variables(compiler, architecture)
    environment["DIST_EXTRA_CONFIG"] = str(scratch / "setup.cfg")
    run(
        [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", scratch, sources],
        environment,
    )
    [wheel] = scratch.glob("*.whl")
    return wheel


def compiler_variables(compiler: str, architecture: str) -> dict[str, str]:
    """Return the variables by which setuptools compiles for an architecture."""
    if compiler == "zig":
        target = f"-target {architecture}-linux-gnu.{GLIBC}"
        c, cpp = (f"{sys.executable} -m ziglang {name} {target}" for name in ("cc", "c++"))
    else:
        c, cpp = (f"{architecture}-linux-gnu-{name}" for name in ("gcc", "g++"))
    suffix = str(sysconfig.get_config_var("EXT_SUFFIX"))
    return {
        "CC": c,
        "CXX": cpp,
        "LDSHARED": f"{c} -shared",
        "LDCXXSHARED": f"{cpp} -shared",
        "CFLAGS": "-g0",
        "LDFLAGS": "-s",
        "ZIG_GLOBAL_CACHE_DIR": str(Path(sys.prefix) / "zig"),
        "_PYTHON_HOST_PLATFORM": f"linux-{architecture}",
        "SETUPTOOLS_EXT_SUFFIX": suffix.replace(platform.machine(), architecture),
    }


def name_by_libraries(wheel: Path, folder: Path) -> Path:
    """Copy a wheel to a folder under the name of the oldest manylinux that has its libraries."""
    tools = str(Path(sys.executable).parent)
    path = f"{tools}:{os.environ['PATH']}"
    run([f"{tools}/auditwheel", "repair", "--wheel-dir", folder, wheel], {"PATH": path})
    [named] = folder.glob("*.whl")
    return named


def run(command: Sequence[str | Path], environment: Mapping[str, str]) -> None:
    """Run a command, and print what it says if it fails."""
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)
    if done.returncode:
        print(done.stdout, done.stderr, sep="", file=sys.stderr)
        done.check_returncode()


def find_missing(wheel: Path) -> str:
    """Return which extensions a wheel lacks: where one does not compile, setuptools goes on."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    with zipfile.ZipFile(wheel) as archive:
        built = {name.partition(".")[0] for name in archive.namelist() if name.endswith(".so")}
    modules = [module["name"] for module in project["tool"]["setuptools"]["ext-modules"]]
    missing = [name for name in modules if f"{OUTER}/{name.replace('.', '/')}" not in built]
    return f"lacks {', '.join(missing)}" if missing else ""


def is_for_glibc(name: str) -> bool:
    """Return whether the name of a wheel says that GLIBC suffices."""
    return f"manylinux_{GLIBC.replace('.', '_')}_" in name


if __name__ == "__main__":
    sys.exit(main())
