"""Draws charts on a page: columns of bars with shared rows, and lines over logarithmic axes.

A chart knows figures and words, not what they are of.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from benchmarks.support.results import Measured
from benchmarks.support.svg import Page

MARGIN = 20
ROW_HEIGHT, BAR_HEIGHT = 24, 14
GAP = 20
SHORTEST_SPREAD = 8.0


@dataclass(slots=True)
class Bar:
    """A row of a bar chart.

    Attributes:
        fill: the colour, by its name in `svg`.
    """

    label: str
    fill: str


@dataclass(slots=True)
class Column:
    """One group of bars.

    Attributes:
        values: a figure for each row; None where there is none.
        words: what stands beside a bar; absent its figure.
        limit: a line that no bar can be longer than; 0: there is none.
    """

    title: str
    subtitle: str
    values: list[Measured | None]
    words: list[str] = field(default_factory=list)
    limit: float = 0.0
    limit_name: str = ""


@dataclass(slots=True)
class Series:
    """A line of a line chart.

    Attributes:
        label: stands at the line's end.
        shift: how far the label is moved down.
    """

    label: str
    colour: str
    points: list[tuple[float, float]]
    kind: str = ""
    shift: float = 0.0


def short(value: float) -> str:
    """Format a number with three digits, two below 1: 0.034, 2.17, 28.4, 106, 45,600."""
    if value == 0:
        return "0"
    digits = (2 if abs(value) >= 1 else 1) - math.floor(math.log10(abs(value)))
    rounded = round(value, digits)
    if abs(rounded) >= 100:
        return f"{rounded:,.0f}"
    return f"{rounded:.{max(0, digits)}f}"


def put_title(page: Page, title: str, subtitle: str) -> None:
    """Draw the title and the subtitle of a page."""
    page.text(MARGIN, 32, title, "title")
    page.text(MARGIN, 52, subtitle, "muted")
    page.bottom = 64


def put_note(page: Page, words: str) -> None:
    """Draw a line of text at the foot of a page."""
    page.text(MARGIN, page.bottom + 8, words, "muted small")
    page.bottom += 22


def put_bars(
    page: Page,
    bars: list[Bar],
    columns: list[Column],
    label_width: float,
    value_width: float = 50,
    has_one_scale: bool = True,
) -> None:
    """Draw columns of bars that share their rows, each figure at its column's right edge."""
    top = page.bottom + 14
    has_limits = any(column.limit for column in columns)
    first_row = top + (42 if has_limits else 26)
    last = first_row + ROW_HEIGHT * len(bars)
    bars_width = page.width - 2 * MARGIN - label_width
    width = (bars_width - GAP * (len(columns) - 1)) / len(columns)
    for number, bar in enumerate(bars):
        y = first_row + ROW_HEIGHT * number
        page.text(MARGIN + label_width - 10, y + 15, bar.label, "", "end")
    most = max(_most(column) for column in columns)
    for place, column in enumerate(columns):
        left = MARGIN + label_width + place * (width + GAP)
        scale = (width - value_width) / (most if has_one_scale else _most(column))
        page.text(left, top, column.title, "head")
        page.text(left, top + 16, column.subtitle, "muted small")
        page.line([(left, first_row - 2), (left, last)], "muted", "thin")
        for number, (bar, value) in enumerate(zip(bars, column.values, strict=True)):
            y = first_row + ROW_HEIGHT * number + (ROW_HEIGHT - BAR_HEIGHT) / 2 - 1
            if value is None:
                page.text(left + width, y + 12, "–", "muted", "end")
                continue
            page.bar(left, y, scale * value.value, BAR_HEIGHT, bar.fill)
            if scale * (value.high - value.low) > SHORTEST_SPREAD:
                middle = y + BAR_HEIGHT / 2
                ends = [(left + scale * value.low, middle), (left + scale * value.high, middle)]
                page.line(ends, "text", "thin")
            words = column.words[number] if column.words else short(value.value)
            page.text(left + width, y + 12, words, "", "end")
        if column.limit:
            x = left + scale * column.limit
            page.line([(x, first_row - 2), (x, last)], "limit", "dashed")
            page.text(x, first_row - 7, column.limit_name, "limit small", "middle")
    page.bottom = last + 16


def put_lines(
    page: Page,
    series: list[Series],
    x_ticks: dict[float, str],
    y_ticks: dict[float, str],
    height: float,
    label_width: float,
) -> None:
    """Draw lines over two logarithmic axes from the first tick to the last."""
    left, right = MARGIN + 60, page.width - MARGIN - label_width
    top, bottom = page.bottom + 10, page.bottom + 10 + height
    x_place = _logarithmic(list(x_ticks), left, right)
    y_place = _logarithmic(list(y_ticks), bottom, top)
    for value, words in y_ticks.items():
        y = y_place(value)
        page.line([(left, y), (right, y)], "grid", "thin")
        page.text(left - 8, y + 4, words, "muted small", "end")
    for value, words in x_ticks.items():
        x = x_place(value)
        page.line([(x, bottom), (x, bottom + 4)], "muted", "thin")
        page.text(x, bottom + 20, words, "muted small", "middle")
    page.line([(left, bottom), (right, bottom)], "muted", "thin")
    for each in series:
        places = [(x_place(x), y_place(y)) for x, y in each.points]
        page.line(places, each.colour, each.kind)
        if not each.kind:
            for x, y in places:
                page.dot(x, y, each.colour)
        end_x, end_y = places[-1]
        kind = each.colour if each.colour in ("ours", "limit") else ""
        page.text(end_x + 9, end_y + 4 + each.shift, each.label, f"{kind} small".strip())
    page.bottom = bottom + 36


def _most(column: Column) -> float:
    return max([column.limit, *(value.high for value in column.values if value is not None)])


class _Logarithmic:
    def __init__(self, low: float, high: float, begin: float, end: float) -> None:
        self._low = math.log(low)
        self._scale = (end - begin) / (math.log(high) - math.log(low))
        self._begin = begin

    def __call__(self, value: float) -> float:
        return self._begin + self._scale * (math.log(value) - self._low)


def _logarithmic(ticks: list[float], begin: float, end: float) -> _Logarithmic:
    return _Logarithmic(min(ticks), max(ticks), begin, end)
