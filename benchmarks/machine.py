"""What figures were measured on, and with what."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gpu.device import Device

__all__ = ["machine"]

PACKAGES = (
    *("numpy", "cupy-cuda12x", "cupy-cuda13x", "torch", "tiktoken", "tokenizers", "fastokens"),
    *("gigatoken", "awkward", "matplotlib", "warptok"),
)


def machine(device: Device) -> dict[str, Any]:
    """Device, host, versions, commit and date."""
    info = device.info
    return {
        "device": info.name,
        "driver": " ".join(filter(None, (info.driver, _driver()))),
        "multiprocessors": info.processors,
        "device_bytes": info.total_bytes,
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "versions": {name: found for name in PACKAGES if (found := _version(name))},
        "commit": _output("git", "rev-parse", "HEAD") or os.environ.get("WARPTOK_COMMIT", ""),
        "changed_files": len(_output("git", "status", "--porcelain").splitlines()),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _driver() -> str:
    """Of the kernel module; what the runtime calls its driver is the newest CUDA it knows."""
    return _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0")


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _output(*command: str) -> str:
    """What a program prints; "" where it is not there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
