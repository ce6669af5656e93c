"""Describes the machine and the versions with which figures were measured."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gpu.host.cores import usable_cores

CUPY = ("cupy-cuda12x", "cupy-cuda13x")
"""The packages of CuPy; one of them is installed where there is a GPU."""


def machine(packages: Iterable[str]) -> dict[str, Any]:
    """Describe processor, cores, versions of packages and CuPy, commit and date.

    The commit is the value of SOURCE_COMMIT, for a copy without history; else that of the checkout.
    """
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": usable_cores(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "versions": {name: found for name in (*packages, *CUPY) if (found := _version(name))},
        "commit": os.environ.get("SOURCE_COMMIT") or _output("git", "rev-parse", "HEAD"),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def device_facts(info: Any) -> dict[str, Any]:
    """Describe a device: name, memory and drivers; `info` is a gpu.runtime.device.DeviceInfo."""
    command = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0")
    return {
        "device": info.name,
        "driver": " ".join(filter(None, (info.driver, _output(*command)))),
        "multiprocessors": info.processors,
        "device_bytes": info.total_bytes,
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _output(*command: str) -> str:
    """Return the output of a program; "" where it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
