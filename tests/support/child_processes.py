"""Lists the living processes that another process has started."""

from __future__ import annotations

import contextlib
from pathlib import Path


def find_children(parent: int, program: str) -> list[int]:
    """Return the ids of the children of a process whose command line has `program`."""
    return [
        process
        for process in map(
            int, filter(str.isdigit, (path.name for path in Path("/proc").iterdir()))
        )
        if read_parent(process) == parent and program in _read(process, "cmdline")
    ]


def read_parent(process: int) -> int | None:
    """Return the id of a process's parent; None if the process has ended."""
    fields = _read(process, "stat").rpartition(")")[2].split()
    return int(fields[1]) if fields and fields[0] != "Z" else None


def _read(process: int, name: str) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/{name}").read_text(errors="replace")
    return ""
