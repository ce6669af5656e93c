"""Counts the cores that this process may use, for code that starts a thread or process per core.

These are the cores of its affinity mask (`taskset`, cpusets), limited by the CPU quotas of its
control group and of all enclosing groups: those of a container, a pod and a systemd unit. Both
versions of control groups are supported. Quotas are rounded up: 1.5 cores count as 2, and half a
core as 1.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/")


class _Mount(NamedTuple):
    """A mount of control groups: `folder` shows the group `top` and the groups in it."""

    top: str
    folder: Path


def usable_cores(root: Path = ROOT) -> int:
    """Return how many cores this process may use, at least 1.

    Args:
        root: the folder that has proc/ and the control groups, for tests.
    """
    cores = len(os.sched_getaffinity(0))
    return max(1, min([cores, *(math.ceil(quota) for quota in _quotas(root))]))


def limit_threads(most: int) -> int:
    """Return the number of threads to use: one for each core, at most `most` (0: no limit)."""
    cores = usable_cores()
    return min(most, cores) if most else cores


def _quotas(root: Path) -> Iterator[float]:
    """Yield the quota, in cores, of each control group that has one and this process in it."""
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
        mounts = _find_mounts(root)
    except OSError:
        return
    for line in groups:
        _, controllers, group = line.split(":", 2)
        version = _version_of(controllers)
        if version not in mounts:
            continue
        for folder in _folders(mounts[version], group):
            if quota := _read_quota(folder, version):
                yield quota


def _version_of(controllers: str) -> int:
    """Return the version of control groups from their controllers; 0: no limit of CPU time."""
    if not controllers:
        return 2
    return 1 if "cpu" in controllers.split(",") else 0


def _find_mounts(root: Path) -> dict[int, _Mount]:
    """Find where the groups of processor time are mounted, by the version of control groups."""
    mounts: dict[int, _Mount] = {}
    for line in (root / "proc/self/mountinfo").read_text().splitlines():
        fields, _, filesystem = line.partition(" - ")
        _, _, _, top, folder, *_ = fields.split()
        kind, _, options, *_ = filesystem.split()
        mount = _Mount(_unescape(top), root / _unescape(folder).lstrip("/"))
        if kind == "cgroup2":
            mounts.setdefault(2, mount)
        elif kind == "cgroup" and "cpu" in options.split(","):
            mounts.setdefault(1, mount)
    return mounts


def _unescape(path: str) -> str:
    r"""Return a path in which the kernel has written spaces as \040."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)


def _folders(mount: _Mount, group: str) -> Iterator[Path]:
    """Yield the folder of a group and those of the groups around it that are visible.

    In a container with its own namespace of groups, or in which only its own group is visible, this
    group is at the top.
    """
    yield mount.folder
    top = mount.top.rstrip("/")
    if group.startswith(f"{top}/") and ".." not in group:
        folder = mount.folder
        for name in filter(None, group[len(top) :].split("/")):
            folder /= name
            yield folder


def _read_quota(folder: Path, version: int) -> float | None:
    """Return the quota of a group in cores; None: it has none."""
    try:
        if version == 2:
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text()
            period = (folder / "cpu.cfs_period_us").read_text()
        return int(quota) / int(period) if int(quota) > 0 else None
    # The value is "max" or -1 if a group has no quota.
    except (OSError, ValueError, ZeroDivisionError):
        return None
