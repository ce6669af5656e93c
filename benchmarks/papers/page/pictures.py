"""Draws the papers' figures with ours beside them, from the results that were measured."""

from __future__ import annotations

import math
from collections.abc import Callable

from benchmarks.papers.page import published as paper
from benchmarks.papers.page.results import Found, Results
from benchmarks.report.charts import (
    Bar,
    Column,
    Panel,
    Series,
    put_bars,
    put_note,
    put_panels,
    put_title,
    short,
)
from benchmarks.report.results import Measured
from benchmarks.report.svg import Page

WIDTH = 840
LEAST_MS, MOST_MS = 0.01, 10_000.0
SWEEP = {
    "HF tokenizers": ("HF tokenizers", "others", ""),
    "tiktoken": ("tiktoken", "muted", ""),
    "GPUTok optimized": ("GPUTok's kernel here", "limit", ""),
    "warptok CPU": ("warptok CPU", "ours_too", ""),
    "warptok GPU": ("warptok GPU", "ours", ""),
}
GRID_SHAPES = {
    (256, 512): ("256 × 512 B", "batch"),
    (1024, 256): ("1,024 × 256 B", "batch"),
    (64, 4096): ("64 × 4,096 B", "batch"),
}
GRID_BARS = {
    "HF tokenizers": Bar("HF tokenizers", "others"),
    "tiktoken": Bar("tiktoken", "others"),
    "BlockBPE, 256 threads, host to host": Bar("BlockBPE, 256 threads", "limit"),
    "BlockBPE, 1024 threads, host to host": Bar("BlockBPE, 1,024 threads", "limit"),
    "warptok CPU": Bar("warptok CPU", "ours_too"),
    "warptok GPU": Bar("warptok GPU", "ours"),
}
ENCODE_BARS = {
    "HF native (Python characters)": Bar("HF native", "others"),
    "a dict in Python": Bar("a dict in Python", "others"),
    "HF tokenizers (Rust)": Bar("HF tokenizers, Rust", "others"),
    "DNATok staging i64": Bar("DNATok staging i64", "limit"),
    "DNATok staging i32": Bar("DNATok staging i32", "limit"),
    "warptok CPU": Bar("warptok CPU", "ours_too"),
    "warptok GPU, list[str] to ids": Bar("warptok GPU, strings", "ours"),
    "warptok GPU, pinned bytes to ids": Bar("warptok GPU, pinned", "ours"),
}
ENCODE_COLUMNS = {"standard": "4,096 × 512", "large batch": "8,192 × 512", "long": "2,048 × 2,048"}


def sweep(results: Results) -> str:
    """Draw GPUTok's Figure 2, the paper's points beside ours."""
    found = results.table("sweep", "sweep")
    ours = [
        Series(label, colour, points, kind)
        for way, (label, colour, kind) in SWEEP.items()
        if (points := _points(found, way))
    ]
    theirs = [
        Series(label, colour, [(_x(n), _y(value(row))) for n, row in paper.GPUTOK_LATENCY.items()])
        for label, colour, value in (
            ("HF", "others", _hugging_face),
            ("tiktoken", "muted", _tiktoken),
            ("GPUTok optimized", "limit", _optimized),
        )
    ]
    y_ticks = {_y(10.0**power): f"{10.0**power:g} ms" for power in range(-2, 5)}
    x_ticks = {_x(1 << power): words for power, words in _LENGTHS.items()}
    page = Page(WIDTH)
    put_title(
        page, "One text of WikiText to GPT-2 ids", "Milliseconds by tokens, both logarithmic."
    )
    panels = [
        Panel("here", ours, y_ticks),
        Panel(f"the paper ({paper.GPUTOK_MACHINE})", theirs, y_ticks),
    ]
    put_panels(page, panels, x_ticks, 2, 260)
    put_note(page, _where(found))
    described = "; ".join(f"{series.label} {_last(series)} ms" for series in ours)
    return page.to_svg(
        "GPUTok's sweep of WikiText",
        f"Milliseconds for the longest text, of 131,072 tokens, here: {described}. In the paper "
        "Hugging Face 1,673, tiktoken 598, GPUTok's optimized kernel 53.4.",
    )


_LENGTHS = {8: "256", 11: "2k", 14: "16k", 17: "131k"}


def _x(tokens: float) -> float:
    return math.log2(tokens) - 8


def _y(milliseconds: float) -> float:
    return math.log10(min(max(milliseconds, LEAST_MS), MOST_MS))


def _points(found: Found, way: str) -> list[tuple[float, float]]:
    lengths = dict.fromkeys(row["tokens"] for row in found.rows)
    seconds = {tokens: found.seconds(tokens=tokens, way=way) for tokens in lengths}
    return [(_x(n), _y(1e3 * known.value)) for n, known in seconds.items() if known is not None]


def _last(series: Series) -> str:
    return short(10 ** series.points[-1][1])


def _hugging_face(row: paper.Latency) -> float:
    return row.hugging_face


def _tiktoken(row: paper.Latency) -> float:
    return row.tiktoken


def _optimized(row: paper.Latency) -> float:
    return row.optimized


def grid(results: Results) -> str:
    """Draw BlockBPE's Figure 3: megabytes a second of three shapes."""
    found = results.table("grid", "grid")
    columns = [
        Column(title, "MB of text a second", [_megabytes(found, way, *shape) for way in GRID_BARS])
        for shape, (title, _) in GRID_SHAPES.items()
    ]
    return _bars(
        "War and Peace in batches to GPT-2 ids",
        "From memory to ids in memory. BlockBPE's kernel is in our own words, without the pattern.",
        [*GRID_BARS.values()],
        columns,
        found,
        "MB of text a second",
    )


def _megabytes(found: Found, way: str, batch: int, length: int) -> Measured | None:
    seconds = found.seconds(batch=batch, length=length, way=way)
    size = batch * length / 1e6
    if seconds is None:
        return None
    return Measured(size / seconds.value, size / seconds.high, size / seconds.low)


def encode(results: Results) -> str:
    """Draw DNATok's Figure 1 for the configurations of Table S1."""
    found = results.table("encode", "encode")
    columns = [
        Column(
            title, "millions of ids a second", [_millions(found, name, way) for way in ENCODE_BARS]
        )
        for name, title in ENCODE_COLUMNS.items()
    ]
    return _bars(
        "Rows of bases to ids of characters",
        "DNATok's paths are in our own words; the GPU's ways end with ids on the device.",
        [*ENCODE_BARS.values()],
        columns,
        found,
        "millions of ids a second",
    )


def _millions(found: Found, name: str, way: str) -> Measured | None:
    measured = found.rate(figure=name, way=way)
    return None if measured is None else measured.times(1e-6)


def _bars(
    title: str, subtitle: str, bars: list[Bar], columns: list[Column], found: Found, unit: str
) -> str:
    """Draw bars; a bar that was not measured is a dash."""
    page = Page(WIDTH)
    put_title(page, title, subtitle)
    columns = [column for column in columns if any(column.values)]
    if columns:
        put_bars(page, bars, columns, 170)
    put_note(page, _where(found))
    sentences = [
        f"{column.title}, {unit}: "
        + "; ".join(
            f"{bar.label} {short(value.value)}"
            for bar, value in zip(bars, column.values, strict=True)
            if value is not None
        )
        for column in columns
    ]
    return page.to_svg(title, ". ".join(sentences))


def _where(found: Found) -> str:
    if not found:
        return "Not measured yet."
    return f"{found.where()}. Every id was compared first.{'' if found.has_gpu else ' No GPU.'}"


PICTURES: dict[str, Callable[[Results], str]] = {
    "papers_gputok.svg": sweep,
    "papers_blockbpe.svg": grid,
    "papers_dnatok.svg": encode,
}
