"""GB/s of each corpus beside the copy rate, as an SVG; left out where matplotlib is not there."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

__all__ = ["plot"]

Rows = list[dict[str, Any]]
BAR = 0.8


def plot(document: dict[str, Any], path: Path) -> bool:
    """Draw kernels and ways from host memory; whether there was something to draw with."""
    try:
        importlib.import_module("matplotlib").use("svg")
    except ImportError:
        return False
    pyplot = importlib.import_module("matplotlib.pyplot")
    panels = [
        (title, rows)
        for title, rows in (
            ("device to device", document.get("kernels", [])),
            ("pinned to ids on the device", _ways(document, "on_device")),
            ("pinned to ids in pinned memory, fewest bits", _ways(document, "uint16", "packed")),
        )
        if rows
    ]
    if not panels:
        return False
    figure, axes = pyplot.subplots(
        len(panels), 1, figsize=(10, 3.2 * len(panels)), squeeze=False, layout="constrained"
    )
    for (title, rows), (axis,) in zip(panels, axes, strict=True):
        _draw(axis, title, rows)
    machine = document["machine"]
    figure.suptitle(f"{machine['device']}, {machine['date'][:10]}, {machine['commit'][:9]}")
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return True


def _ways(document: dict[str, Any], *names: str) -> Rows:
    return [row for row in document.get("host", []) if row["way"].startswith(names)]


def _draw(axis: Any, title: str, rows: Rows) -> None:
    """A group of bars for each corpus, one bar for each vocabulary, the copy rate as a line."""
    corpora = list(dict.fromkeys(row["corpus"] for row in rows))
    vocabularies = list(dict.fromkeys(row["vocabulary"] for row in rows))
    width = BAR / len(vocabularies)
    for number, vocabulary in enumerate(vocabularies):
        own = [row for row in rows if row["vocabulary"] == vocabulary]
        places = [corpora.index(row["corpus"]) + number * width - BAR / 2 for row in own]
        heights = [row["gb_per_s"] for row in own]
        axis.bar(places, heights, width, align="edge", label=vocabulary)
    copy = max(row["copies_gb_per_s"]["host_to_device"] for row in rows)
    axis.axhline(copy, color="black", linestyle="--", label=f"copy {copy:.0f}")
    axis.set_xticks(range(len(corpora)), corpora)
    axis.set_ylabel("GB/s of text")
    axis.set_title(title)
    axis.legend(fontsize="small", ncols=4)
