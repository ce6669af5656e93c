"""Draws charts on a page: columns of bars with shared rows, lines, and panels of lines.

Nothing here depends on what the figures mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from benchmarks.report.results import Measured
from benchmarks.report.svg import Page

MARGIN = 20
ROW_HEIGHT, BAR_HEIGHT = 24, 14
GAP = 20
SHORTEST_SPREAD = 8.0
TICK_WIDTH = 52  # Room for the words beside the vertical axis of a panel.
LEGEND_COLUMNS, LEGEND_HEIGHT = 2, 18
DOTS = "dots"
"""The kind of a series whose points no line joins."""


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
        words: the text beside each bar; empty: the figures.
        limit: a line that no bar can be longer than; 0: there is none.
    """

    title: str
    subtitle: str
    values: list[Measured | None]
    words: list[str] = field(default_factory=list)
    limit: float = 0.0
    limit_name: str = ""


@dataclass(slots=True)
class Piece:
    """One piece of a stacked bar, with its colour by its name in `svg`."""

    fill: str
    value: float


@dataclass(slots=True)
class Stack:
    """A stacked bar: pieces from the left to the right, and the words behind them."""

    pieces: list[Piece]
    words: str


@dataclass(slots=True)
class StackColumn:
    """One group of stacked bars; None for a row without a bar."""

    title: str
    stacks: list[Stack | None]


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


@dataclass(slots=True)
class Panel:
    """A small chart with linear axes; that of x begins at 0.

    Attributes:
        series: lines, or dots where the kind is DOTS.
        y_ticks: words beside the vertical axis, from its lowest to its highest place.
    """

    title: str
    series: list[Series]
    y_ticks: dict[float, str]


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


def put_stacks(
    page: Page,
    labels: list[str],
    columns: list[StackColumn],
    legend: dict[str, str],
    label_width: float,
    value_width: float = 60,
) -> None:
    """Draw columns of stacked bars of equal length that share row labels, and a legend.

    The legend maps the name of each colour in `svg` to its meaning.
    """
    top = page.bottom + 14
    first_row = top + 14
    width = (page.width - 2 * MARGIN - label_width - GAP * (len(columns) - 1)) / len(columns)
    for number, label in enumerate(labels):
        y = first_row + ROW_HEIGHT * number
        page.text(MARGIN + label_width - 10, y + 15, label, "", "end")
    for place, column in enumerate(columns):
        left = MARGIN + label_width + place * (width + GAP)
        page.text(left, top, column.title, "head")
        for number, stack in enumerate(column.stacks):
            y = first_row + ROW_HEIGHT * number + (ROW_HEIGHT - BAR_HEIGHT) / 2 - 1
            if stack is None:
                page.text(left + width, y + 12, "–", "muted", "end")
                continue
            x, scale = left, (width - value_width) / sum(piece.value for piece in stack.pieces)
            for piece in stack.pieces:
                page.bar(x, y, scale * piece.value, BAR_HEIGHT, piece.fill)
                x += scale * piece.value
            page.text(left + width, y + 12, stack.words, "", "end")
    page.bottom = first_row + ROW_HEIGHT * len(labels) + 22
    x = float(MARGIN)
    for fill, words in legend.items():
        page.bar(x, page.bottom - 11, 12, 12, fill)
        page.text(x + 18, page.bottom, words, "small")
        x += 34 + 7 * len(words)
    page.bottom += 18


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


def put_panels(
    page: Page, panels: list[Panel], x_ticks: dict[float, str], num_columns: int, height: float
) -> None:
    """Draw panels beside and below each other, each with its title, its axes and a legend."""
    width = (page.width - 2 * MARGIN - GAP * (num_columns - 1)) / num_columns
    rows = [panels[begin : begin + num_columns] for begin in range(0, len(panels), num_columns)]
    for row in rows:
        top = page.bottom + 14
        legend_rows = max(math.ceil(len(panel.series) / LEGEND_COLUMNS) for panel in row)
        for place, panel in enumerate(row):
            left = MARGIN + place * (width + GAP)
            page.text(left, top, panel.title, "head")
            _put_panel(page, panel, x_ticks, left, top + 14, width, height)
            _put_legend(page, panel.series, left, top + height + 50, width)
        page.bottom = top + height + 50 + LEGEND_HEIGHT * legend_rows


def _put_panel(
    page: Page,
    panel: Panel,
    x_ticks: dict[float, str],
    left: float,
    top: float,
    width: float,
    height: float,
) -> None:
    """Draw the axes and the lines of a panel."""
    begin, right, bottom = left + TICK_WIDTH, left + width, top + height
    x_scale = (right - begin) / max(x_ticks)
    low = min(panel.y_ticks)
    y_scale = height / (max(panel.y_ticks) - low)
    for value, words in panel.y_ticks.items():
        y = bottom - y_scale * (value - low)
        page.line([(begin, y), (right, y)], "grid" if value else "muted", "thin")
        page.text(begin - 6, y + 4, words, "muted small", "end")
    for value, words in x_ticks.items():
        anchor = "end" if value == max(x_ticks) else "middle"
        page.text(begin + x_scale * value, bottom + 17, words, "muted small", anchor)
    for each in panel.series:
        places = [(begin + x_scale * x, bottom - y_scale * (y - low)) for x, y in each.points]
        if each.kind == DOTS:
            for place in places:
                page.dot(*place, each.colour)
        else:
            page.line(places, each.colour, each.kind)


def _put_legend(page: Page, series: list[Series], left: float, top: float, width: float) -> None:
    """Draw a piece of each line with its label."""
    for number, each in enumerate(series):
        row, column = divmod(number, LEGEND_COLUMNS)
        x, y = left + column * width / LEGEND_COLUMNS, top + LEGEND_HEIGHT * row
        if each.kind == DOTS:
            page.dot(x + 8, y - 4, each.colour)
        else:
            page.line([(x, y - 4), (x + 16, y - 4)], each.colour, each.kind)
        page.text(x + 22, y, each.label, "small")


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
