"""The results of a run as a document, on disk and as a table that fits on a screen."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.goals import goal_rows
from benchmarks.machine import machine
from benchmarks.plot import plot
from benchmarks.session import Row, Session

__all__ = ["document_of", "table", "write"]

Document = dict[str, Any]


def document_of(
    session: Session, vocabularies: dict[str, Row], rows: dict[str, list[Row]]
) -> Document:
    """Everything that was measured and all that is needed to measure it again."""
    corpora = {
        name: {"bytes": len(text.data), "sha256": text.sha256}
        for name, text in session.made_corpora.items()
    }
    return {
        "command": "python -m benchmarks.engine " + " ".join(sys.argv[1:]),
        "machine": machine(session.gpu.device),
        "sizes": asdict(session.sizes) | {"chunk_bytes": session.gpu.chunk_bytes},
        "vocabularies": vocabularies,
        "corpora": corpora,
        "proofs": [asdict(proved) for proved in session.proofs.records],
        **rows,
        "goals": goal_rows(rows),
    }


def write(document: Document, path: Path) -> None:
    """The document, and beside it the plot."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")
    print(f"written: {path}")
    picture = path.with_suffix(".svg")
    if plot(document, picture):
        print(f"written: {picture}")


def table(document: Document) -> str:
    """The figures of each block in a few lines, and the goals."""
    return "\n".join((*_bulk(document), *_rivals(document), *_shapes(document), *_goals(document)))


def _grid(title: str, cells: dict[tuple[str, str], str]) -> Iterator[str]:
    """Rows and columns in the order in which they first appear."""
    if not cells:
        return
    rows = list(dict.fromkeys(row for row, _ in cells))
    columns = list(dict.fromkeys(column for _, column in cells))
    first = max(len(title), *map(len, rows))
    widths = [max(len(column), 8) for column in columns]
    heads = zip(columns, widths, strict=True)
    yield ""
    yield title.ljust(first) + "".join(f"  {column:>{width}}" for column, width in heads)
    for row in rows:
        line = [cells.get((row, column), "-") for column in columns]
        yield row.ljust(first) + "".join(
            f"  {cell:>{width}}" for cell, width in zip(line, widths, strict=True)
        )


def _bulk(document: Document) -> Iterator[str]:
    kernels = {
        (row["corpus"], row["vocabulary"]): f"{row['gb_per_s']:.1f}"
        for row in document.get("kernels", [])
    }
    yield from _grid("kernels, GB/s", kernels)
    host = {
        (f"{row['corpus']} {row['vocabulary']}", row["way"].split("_1")[0]): (
            f"{row['gb_per_s']:.1f}"
        )
        for row in document.get("host", [])
    }
    copies = {
        (f"{row['corpus']} {row['vocabulary']}", "copy"): (
            f"{row['copies_gb_per_s']['host_to_device']:.1f}"
        )
        for row in document.get("host", [])
    }
    yield from _grid("from host memory, GB/s", host | copies)


def _rivals(document: Document) -> Iterator[str]:
    cells = {}
    for row in document.get("rivals", []):
        for when in ("first", "warm"):
            if when in row:
                where = f"{row['corpus']} {row['vocabulary']} {when}"
                cells[where, f"{row['engine']} {row['cores']}"] = f"{row[when]['gb_per_s']:.3f}"
    yield from _grid("GB/s", cells)


def _shapes(document: Document) -> Iterator[str]:
    shapes = {
        (f"{row['vocabulary']} {row['rows']} x {row['row_bytes']} B", row["engine"]): (
            f"{1e6 * row['seconds']['median_s']:.1f}"
        )
        for row in document.get("shapes", [])
        if "seconds" in row
    }
    yield from _grid("a call, us", shapes)
    alone = {
        (row["text"], row["vocabulary"]): (
            f"{row['gb_per_s']:.1f}" if "gb_per_s" in row else f"{row['times_without']:.2f}"
        )
        for row in document.get("cliffs", [])
    }
    yield from _grid("alone GB/s; in a batch, times", alone)
    starts = {
        (row["vocabulary"], row["kernels"]): f"{row['seconds']['median_s']:.2f}"
        for row in document.get("starts", [])
    }
    yield from _grid("first answer, s", starts)


def _goals(document: Document) -> Iterator[str]:
    cells = {}
    for row in document["goals"]:
        if row["reached"] is not None:
            name, sign = row["goal"], "<=" if row["at_most"] else ">="
            cells[name, "wanted"] = f"{sign} {row['wanted']:g} {row['unit']}"
            cells[name, "reached"] = f"{row['reached']:.3g}"
            cells[name, "ratio"] = f"{row['ratio']:.2f}" + ("" if row["met"] else " !")
    yield from _grid("goals", cells)
