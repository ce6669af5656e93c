"""The results as one SVG: rates by corpus beside the copy rate, every engine, calls by shape.

Drawn by hand, so that it needs no library and is the same file everywhere. Knows only the document.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from html import escape
from typing import Any

__all__ = ["Panel", "draw", "plot"]

Row = dict[str, Any]
COPIED = "host_to_device"
NEARLY = 0.99  # Of the bytes of a shape, whose rows end at whole characters.
WIDTH, PANEL, LEFT, RIGHT, TOP, BOTTOM = 1180, 330, 70, 200, 46, 40
PLOT_WIDTH, PLOT_HEIGHT = WIDTH - LEFT - RIGHT, PANEL - TOP - BOTTOM
COLOURS = (
    *("#1b5e9e", "#e07b00", "#2a8f3c", "#b3322f", "#7a4fa3", "#8a5a44"),
    *("#cf5fa4", "#6d6d6d", "#a3a300", "#1397a5", "#000000"),
)


@dataclass(slots=True)
class Panel:
    """Groups of bars.

    Attributes:
        bars: {(group, series): figure}; groups and series come in the order of appearance.
        copy: a rate to be drawn as a line; 0: none.
        is_log: whether the axis is logarithmic.
    """

    title: str
    unit: str
    bars: dict[tuple[str, str], float] = field(default_factory=dict)
    copy: float = 0.0
    is_log: bool = False


def plot(document: dict[str, Any]) -> str:
    """An SVG of what there is."""
    about = document["machine"]
    title = f"{about['device']}, {about['date'][:10]}, {about['commit'][:9]}; medians"
    return draw(title, _panels(document))


def draw(title: str, all_panels: Iterable[Panel]) -> str:
    """An SVG of the panels that have bars."""
    panels = [panel for panel in all_panels if panel.bars]
    drawn = "".join(_draw(panel, 30 + number * PANEL) for number, panel in enumerate(panels))
    height = 30 + PANEL * len(panels)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'font-family="sans-serif" font-size="12">\n'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>\n'
        f"{_text(LEFT, 20, title, size=14)}{drawn}</svg>\n"
    )


def _panels(document: dict[str, Any]) -> Iterator[Panel]:
    by_way = (
        ("text on the device to ids on the device", "kernels", ("",)),
        ("pinned memory to ids on the device", "host", ("on_device",)),
        ("pinned to pinned memory, uint16 or packed", "host", ("uint16", "packed")),
        ("pinned to pinned memory, int32", "host", ("int32",)),
    )
    for title, block, ways in by_way:
        panel = Panel(title, "GB/s of text")
        for row in document.get(block, []):
            if str(row.get("way", "")).startswith(ways):
                panel.bars[row["corpus"], row["vocabulary"]] = row["gb_per_s"]
                panel.copy = max(panel.copy, row.get("copies_gb_per_s", {}).get(COPIED, 0.0))
        yield panel
    for name in document["vocabularies"]:
        corpora = Panel(f"{name}: every engine, memory to memory", "GB/s of text", is_log=True)
        for row, engine, warm in _warm(document, "corpora", name):
            corpora.bars[row["corpus"], engine] = warm["gb_per_s"]
        yield corpora
        shapes = Panel(f"{name}: every engine, one call", "microseconds", is_log=True)
        for row, engine, warm in _warm(document, "shapes", name):
            if row["bytes"] > NEARLY * row["rows"] * row["row_bytes"]:  # Not only a front of it.
                group = f"{row['rows']:,} x {row['row_bytes']:,} B"
                shapes.bars[group, engine] = 1e6 * warm["seconds"]["median_s"]
        yield shapes


def _warm(document: dict[str, Any], block: str, vocabulary: str) -> Iterator[tuple[Row, str, Row]]:
    """Rows with an engine's name and warm figures, and first calls of those that remember."""
    for row in document.get(block, []):
        if "warm" in row and row["vocabulary"] == vocabulary:
            engine = f"{row['engine']}" + (", 1 core" if row["cores"] == "1" else "")
            yield row, engine, row["warm"]
            if row["engine"] == "gigatoken":
                yield row, f"{engine}, first call", row["first"]


def _draw(panel: Panel, top: float) -> str:
    groups = list(dict.fromkeys(group for group, _ in panel.bars))
    series = list(dict.fromkeys(name for _, name in panel.bars))
    place, ticks = _axis(panel)
    bottom, step = top + TOP + PLOT_HEIGHT, PLOT_WIDTH / len(groups)
    width = 0.84 * step / len(series)
    parts = [_text(LEFT, top + TOP - 14, f"{panel.title}, {panel.unit}", size=13)]
    for tick in ticks:
        y = bottom - place(tick) * PLOT_HEIGHT
        parts += [_line(y, "#dddddd"), _text(LEFT - 6, y + 4, _short(tick), anchor="end")]
    for number, name in enumerate(series):
        colour, y = COLOURS[number % len(COLOURS)], top + TOP + 16 * number
        parts.append(_bar(WIDTH - RIGHT + 14, y, 11, 11, colour))
        parts.append(_text(WIDTH - RIGHT + 30, y + 10, name))
    for (group, name), figure in panel.bars.items():
        x = LEFT + step * (groups.index(group) + 0.08) + width * series.index(name)
        height = max(0.0, place(figure)) * PLOT_HEIGHT
        colour = COLOURS[series.index(name) % len(COLOURS)]
        parts.append(_bar(x, bottom - height, 0.92 * width, height, colour))
        above = bottom - height - 3
        parts.append(_text(x + width / 2, above, _short(figure), size=8, anchor="middle"))
    if panel.copy:
        y = bottom - place(panel.copy) * PLOT_HEIGHT
        parts += [_line(y, "black", dashes="6 4")]
        told = f"copy alone {panel.copy:.1f}"
        parts += [_text(WIDTH - RIGHT, y - 4, told, size=10, anchor="end")]
    for number, group in enumerate(groups):
        middle = LEFT + step * (number + 0.5)
        parts.append(_text(middle, bottom + 16, group, size=10, anchor="middle"))
    return "".join([*parts, _line(bottom, "black")])


def _axis(panel: Panel) -> tuple[Callable[[float], float], list[float]]:
    """Where a figure lies between 0 and 1, and the ticks."""
    figures = list(panel.bars.values())
    if panel.is_log:
        low = math.floor(math.log10(min(figures)) - 0.2)
        high = max(low + 1, math.ceil(math.log10(max(figures))))
        ticks = [10.0**power for power in range(low, high + 1)]
        return lambda figure: (math.log10(figure) - low) / (high - low), ticks
    most = 1.1 * max(*figures, panel.copy)
    power = 10.0 ** math.floor(math.log10(most))
    step = next(power * part for part in (0.1, 0.2, 0.5, 1, 2) if most / (power * part) <= 8)
    ticks = [step * number for number in range(int(most / step) + 1)]
    return lambda figure: figure / most, ticks


def _short(figure: float) -> str:
    """Two digits, or all before the point up to a thousand: 0.034, 28, 106, 1.3k, 20M."""
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if figure >= limit:
            return f"{float(f'{figure / limit:.2g}'):g}{unit}"
    return f"{figure:.0f}" if figure >= 10 else f"{figure:.2g}"


def _text(x: float, y: float, text: str, size: int = 12, anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"'
    return f"<text {place}>{escape(text)}</text>\n"


def _bar(x: float, y: float, width: float, height: float, colour: str) -> str:
    size = f'width="{width:.1f}" height="{height:.1f}"'
    return f'<rect x="{x:.1f}" y="{y:.1f}" {size} fill="{colour}"/>\n'


def _line(y: float, colour: str, dashes: str = "none") -> str:
    ends = f'x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-dasharray="{dashes}"/>\n'
