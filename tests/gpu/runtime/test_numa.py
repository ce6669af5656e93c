"""The cores near a device are those of its NUMA node."""

from __future__ import annotations

import os

import pytest

from gpu.runtime.numa import cores_near, parse_cores

ADDRESS = "0000:1B:00.0"


@pytest.mark.parametrize(
    ("text", "cores"),
    [("", set()), ("0\n", {0}), ("0-3,8", {0, 1, 2, 3, 8}), ("2,4-5\n", {2, 4, 5})],
)
def test_lists_of_cores_are_read(text, cores):
    assert parse_cores(text) == cores


def make_system(folder, num_nodes: int, cores: str):
    for node in range(num_nodes):
        (folder / f"devices/system/node/node{node}").mkdir(parents=True)
    device = folder / "bus/pci/devices" / ADDRESS.lower()
    device.mkdir(parents=True)
    (device / "local_cpulist").write_text(cores)
    return folder


def test_only_cores_that_the_process_may_use_are_near(tmp_path):
    own = min(os.sched_getaffinity(0))
    system = make_system(tmp_path, 2, f"{own},4000-4003\n")
    assert cores_near(ADDRESS, system) == {own}
    assert cores_near("0000:ff:00.0", system) == frozenset()


def test_with_one_node_or_an_odd_list_no_core_is_nearer(tmp_path):
    assert cores_near(ADDRESS, make_system(tmp_path / "one", 1, "0")) == frozenset()
    assert cores_near(ADDRESS, make_system(tmp_path / "odd", 2, "x")) == frozenset()
    assert cores_near(ADDRESS, tmp_path / "nothing") == frozenset()
