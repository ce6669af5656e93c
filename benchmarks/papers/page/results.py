"""Reads the results of benchmarks.papers from machines with and without a GPU.

If both machines have measured a part, the results are those of the machine with a GPU.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report.results import FOLDER, Measured, Row, rate, seconds, select

FILES = ("papers/h200.json", "papers/cpu.json")


@dataclass(frozen=True, slots=True)
class Found:
    """The rows of one table of a part, and the machine that measured them."""

    rows: list[Row]
    machine: Mapping[str, Any]

    def __bool__(self) -> bool:
        return bool(self.rows)

    @property
    def has_gpu(self) -> bool:
        """Return whether the machine has a GPU."""
        return "device" in self.machine

    def where(self) -> str:
        """Name the machine and the day."""
        device = str(self.machine.get("device", "")).removeprefix("NVIDIA ")
        cores = f"{self.machine.get('cores', '?')} cores of {self.machine.get('cpu', '?')}"
        return ", ".join(filter(None, (device, cores, str(self.machine.get("date", ""))[:10])))

    def seconds(self, **fields: object) -> Measured | None:
        """Return the seconds of a row, or None."""
        rows = select(self.rows, **fields)
        return seconds(rows[0]["seconds"]) if rows else None

    def rate(self, **fields: object) -> Measured | None:
        """Return the ids per second of a row, or None."""
        rows = select(self.rows, **fields)
        return rate(rows[0]["ids"], rows[0]["seconds"]) if rows else None

    def ratio(self, slow: Mapping[str, object], fast: Mapping[str, object]) -> float | None:
        """Return how many times the seconds of one row are those of another."""
        one, other = self.seconds(**slow), self.seconds(**fast)
        return None if one is None or other is None else one.value / other.value


@dataclass(frozen=True, slots=True)
class Results:
    """The measured parts of all machines; those of machines with a GPU come first."""

    documents: tuple[Row, ...]

    def table(self, part: str, table: str) -> Found:
        """Return the rows of a table of a part; none where it was not measured."""
        for document in self.documents:
            found = document["parts"].get(part, {})
            rows = select(found.get("rows", []), table=table)
            if rows:
                return Found(rows, found["machine"])
        return Found([], {})

    def left_out(self) -> list[str]:
        """List the measurements that runs left out, each once."""
        words: dict[str, None] = {}
        for document in self.documents:
            for part in document["parts"].values():
                words |= dict.fromkeys(part.get("left_out", []))
                if "error" in part:
                    words[f"{part['tables']} failed: {part['error']}"] = None
        return [*words]


def read_results(folder: Path = FOLDER) -> Results:
    """Read the result files of a folder; missing files are skipped."""
    paths = [folder / name for name in FILES]
    return Results(tuple(json.loads(path.read_text()) for path in paths if path.is_file()))
