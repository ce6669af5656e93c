"""Writes the locks of the images: each package in its version, with the hashes of its files.

    python deploy/image/lock.py            # where pyproject.toml has changed: adds what is missing
    python deploy/image/lock.py --upgrade  # takes the newest versions

uv (`pip install uv`) chooses the versions, for both architectures and every Python from 3.13 on.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOCKS = ROOT / "deploy" / "locks"
IMAGE_PYTHON = "3.13"
# Only what routers need: no Arrow, no FASTQ, no training, no gRPC, and so no exporter of traces.
LEFT_OUT_OF_RENDER = ("arrow", "dna", "grpc")
# Requirements of requirements that the service never imports. tokenizers uses huggingface-hub for
# downloads, and uvicorn its extras for WebSockets and reloading.
UNUSED = ("huggingface-hub", "pyyaml", "watchfiles", "websockets")
# The others build dnaio, which has no wheel for arm64, and NumPy without BLAS for `render`.
BUILD = (
    *("pip>=25", "setuptools>=77", "cyclonedx-bom>=7"),
    *("cython>=3.1", "meson-python>=0.18", "ninja>=1.11", "setuptools-scm>=8"),
)


def name_of(requirement: str) -> str:
    """Return the normalized name of a requirement or of a line of a lock."""
    [name] = re.findall(r"^[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements() -> dict[str, list[str]]:
    """Return the requirements of each lock, from pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    everything: list[str] = project["dependencies"]
    left_out = {name_of(each) for extra in LEFT_OUT_OF_RENDER for each in extras[extra]}
    return {
        "build": list(BUILD),
        "cpu": everything + extras["tracing"],
        "gpu": everything + extras["tracing"] + extras["gpu"],
        "render": [each for each in everything if name_of(each) not in left_out],
    }


def head(name: str) -> str:
    """Return the first lines of a lock, which name its requirements."""
    lines = [f"# {requirement}" for requirement in sorted(requirements()[name])]
    return "\n".join(["# Written by deploy/image/lock.py from:", *lines]) + "\n"


def lock(name: str, upgrade: bool) -> None:
    """Write one lock."""
    path = LOCKS / f"{name}.txt"
    command = ["uv", "pip", "compile", "-", "--output-file", str(path), "--python-version"]
    command += [IMAGE_PYTHON, "--universal", "--generate-hashes", "--no-header", "--quiet"]
    command += ["--no-annotate", "--no-emit-index-url", "--no-emit-find-links"]
    command += ["--upgrade"] if upgrade else []
    with tempfile.NamedTemporaryFile("w") as unused:
        unused.write("\n".join(UNUSED if name == "render" else ()))
        unused.flush()
        command += ["--excludes", unused.name]
        subprocess.run(command, input="\n".join(requirements()[name]), text=True, check=True)
    path.write_text(head(name) + path.read_text())


if __name__ == "__main__":
    for each in requirements():
        lock(each, "--upgrade" in sys.argv[1:])
