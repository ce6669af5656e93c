"""Reads the results that the benchmarks have written.

A result file is one run of one command on one machine. Times lie in it as summaries of
`timing.summary`: a median, quartiles, extremes.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]
FOLDER = Path(__file__).parents[1] / "results"
GIGA = 1e9


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure with its spread.

    Attributes:
        low, high: quartiles where a run has many samples, else the least and the most; both equal
            `value` where nothing was repeated.
    """

    value: float
    low: float
    high: float

    def times(self, factor: float) -> Measured:
        """Convert to another unit."""
        return Measured(self.value * factor, self.low * factor, self.high * factor)


def load(name: str, folder: Path = FOLDER) -> Row:
    """Load the document of a result file."""
    document: Row = json.loads((folder / name).read_text())
    return document


def select(rows: Iterable[Row], /, **fields: object) -> list[Row]:
    """Select the rows whose fields have these values."""
    return [row for row in rows if all(row.get(name) == value for name, value in fields.items())]


def only(rows: Iterable[Row], /, **fields: object) -> Row:
    """Select the single row whose fields have these values.

    Raises:
        LookupError: there is none, or more than one.
    """
    found = select(rows, **fields)
    if len(found) != 1:
        raise LookupError(f"{len(found)} rows with {fields}")
    return found[0]


def exactly(value: float) -> Measured:
    """Make a figure without a spread."""
    return Measured(value, value, value)


def seconds(summary: Row) -> Measured:
    """Read the time of a summary."""
    return Measured(summary["median_s"], summary["q1_s"], summary["q3_s"])


def rate(amount: float, summary: Row) -> Measured:
    """Divide an amount by each time of a summary: amounts per second."""
    time = seconds(summary)
    return Measured(amount / time.value, amount / time.high, amount / time.low)


def gigas(amount: float, summary: Row) -> Measured:
    """Divide an amount by each time of a summary: units of 10**9 per second."""
    return rate(amount / GIGA, summary)


def of_rounds(values: Iterable[float]) -> Measured:
    """Return the median of a few rounds with their least and most."""
    known = sorted(values)
    return Measured(statistics.median(known), known[0], known[-1])


def card(document: Row) -> str:
    """Describe the machine of a run: its GPU if it has one, and the number of cores."""
    about = document.get("machine", document)
    device = about.get("device") or about.get("gpu") or document.get("alone", {}).get("device")
    if not device:
        device = document.get("device")
    names = [device.removeprefix("NVIDIA ")] if device else []
    if "cores" in about:
        names.append(f"{about['cores']} {'core' if about['cores'] == 1 else 'cores'}")
    return ", ".join(names)
