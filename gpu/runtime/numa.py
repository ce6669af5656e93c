"""Finds the cores of this machine that are near a device, on machines with several NUMA nodes."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

SYSTEM = Path("/sys")


def cores_near(pci_address: str, system: Path = SYSTEM) -> frozenset[int]:
    """Return the cores of a device's NUMA node that this process may use.

    Empty if the machine has one node only, or if the kernel does not know the device's node.

    Args:
        pci_address: such as "0000:1b:00.0".
        system: where the kernel shows devices.
    """
    with suppress(OSError, ValueError):
        if len([*system.glob("devices/system/node/node[0-9]*")]) < 2:
            return frozenset()
        folder = system / "bus/pci/devices" / pci_address.lower()
        cores = parse_cores((folder / "local_cpulist").read_text())
        return frozenset(cores & os.sched_getaffinity(0))
    return frozenset()


def parse_cores(text: str) -> set[int]:
    """Parse a list of cores as the kernel writes it, such as "0-3,8"."""
    cores: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cores.update(range(int(first), int(last or first) + 1))
    return cores
