"""The cores that this process may use, by affinity masks and by control groups of both versions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpu.host import cores
from gpu.host.cores import limit_threads, usable_cores

MOUNT = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
V2 = "35 31 0:29 {top} /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = "32 31 0:30 {top} /sys/fs/cgroup/cpu\\040one rw - cgroup cgroup rw,cpuacct,cpu\n"


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))


def machine(root: Path, groups: str, mounts: str, quotas: dict[str, str]) -> Path:
    """Write what the kernel shows a process; `quotas` are the groups' files."""
    process = root / "proc/self"
    process.mkdir(parents=True)
    (process / "cgroup").write_text(groups)
    (process / "mountinfo").write_text(MOUNT + mounts)
    for name, text in quotas.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        ("max 100000", 8),
        ("50000 100000", 1),
        ("100000 100000", 1),
        ("150000 100000", 2),
        ("200000 100000", 2),
        ("1600000 100000", 8),
        ("5000 10000", 1),
        ("", 8),
        ("0 0", 8),
        ("some words", 8),
    ],
)
def test_a_part_of_a_core_counts_as_one(tmp_path: Path, quota: str, expected: int) -> None:
    root = machine(tmp_path, "0::/\n", V2.format(top="/"), {"cpu.max": quota})
    assert usable_cores(root) == expected


def test_the_smallest_quota_of_nested_groups_counts(tmp_path: Path) -> None:
    quotas = {
        "pods/cpu.max": "300000 100000",
        "pods/one/cpu.max": "max 100000",
        "pods/one/service/cpu.max": "500000 100000",
        "others/cpu.max": "100000 100000",
    }
    root = machine(tmp_path, "0::/pods/one/service\n", V2.format(top="/"), quotas)
    assert usable_cores(root) == 3


def test_a_container_sees_its_own_group_at_the_top(tmp_path: Path) -> None:
    mounts = V2.format(top="/docker/abc")
    quotas = {"cpu.max": "400000 100000", "inner/cpu.max": "200000 100000"}
    assert usable_cores(machine(tmp_path / "a", "0::/docker/abc\n", mounts, quotas)) == 4
    assert usable_cores(machine(tmp_path / "b", "0::/docker/abc/inner\n", mounts, quotas)) == 2


@pytest.mark.parametrize("group", ["/docker/abcd", "/elsewhere", "/../other", "/gone"])
def test_a_group_that_is_not_shown_leaves_the_one_at_the_top(tmp_path: Path, group: str) -> None:
    quotas = {"cpu.max": "400000 100000", "d/cpu.max": "100000 100000"}
    root = machine(tmp_path, f"0::{group}\n", V2.format(top="/docker/abc"), quotas)
    assert usable_cores(root) == 4


@pytest.mark.parametrize(
    ("quota", "expected"), [("-1", 8), ("50000", 1), ("250000", 3), ("900000", 8)]
)
def test_version_1_has_two_files(tmp_path: Path, quota: str, expected: int) -> None:
    groups = "4:memory:/docker/x\n2:cpu,cpuacct:/docker/x\n1:cpuset:/small\n0::/\n"
    folder = "cpu one/docker/x"
    quotas = {
        "cpu one/cpu.cfs_quota_us": "-1",
        f"{folder}/cpu.cfs_quota_us": quota,
        f"{folder}/cpu.cfs_period_us": "100000",
        "cpu one/small/cpu.cfs_quota_us": "100000",
        "cpu one/small/cpu.cfs_period_us": "100000",
    }
    root = machine(tmp_path, groups, V1.format(top="/"), quotas)
    assert usable_cores(root) == expected


def test_the_affinity_mask_counts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = machine(tmp_path, "0::/\n", V2.format(top="/"), {"cpu.max": "400000 100000"})
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5})
    assert usable_cores(root) == 2


def test_a_machine_without_control_groups_has_its_cores(tmp_path: Path) -> None:
    assert usable_cores(tmp_path) == 8
    assert usable_cores(machine(tmp_path, "", "", {})) == 8


def test_a_setting_bounds_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "usable_cores", lambda: 4)
    assert [limit_threads(most) for most in (0, 1, 3, 4, 64)] == [4, 1, 3, 4, 4]


def test_taskset_bounds_this_machine() -> None:
    program = (
        "import os; from gpu.host.cores import usable_cores\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); print(usable_cores())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "1\n", done.stderr
