"""Draws the figures of `motifs report` as SVG: a panel for each measure, a bar a vocabulary.

It needs no plotting library; equal figures produce the same file on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from math import isnan

from vocabularies.motifs.metrics import MotifMetrics

WIDTH, PANEL, LEFT, TOP, BAR_HEIGHT = 920, 300, 16, 34, 20
COLUMNS = 3
COLOURS = ("#1b5e9e", "#e07b00", "#2a8f3c", "#b3322f", "#7a4fa3", "#8a5a44", "#6d6d6d")


def plot(measured: Mapping[str, MotifMetrics]) -> str:
    """Draw an SVG of vocabularies that were measured on one corpus."""
    panels = _panels(measured)
    step = TOP + BAR_HEIGHT * len(measured) + 26
    height = 44 + step * -(-len(panels) // COLUMNS)
    any_metrics = next(iter(measured.values()))
    title = (
        f"{any_metrics.num_instances:,} motif instances in {any_metrics.num_sequences:,} sequences "
        f"of {any_metrics.num_bases:,} letters"
    )
    drawn = [_text(LEFT, 24, title, size=14)]
    for number, (name, figures) in enumerate(panels.items()):
        x = LEFT + PANEL * (number % COLUMNS)
        drawn.append(_panel(x, 44 + step * (number // COLUMNS), name, figures))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'font-family="sans-serif" font-size="12">\n'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>\n{"".join(drawn)}</svg>\n'
    )


def _panels(measured: Mapping[str, MotifMetrics]) -> dict[str, dict[str, float]]:
    """Arrange the figures as {measure: {vocabulary: figure}}."""
    panels: dict[str, dict[str, float]] = {}
    for name, metrics in measured.items():
        figures = {
            f"distortion, k = {k}": share for k, share in enumerate(metrics.distortion[:3], 1)
        }
        figures["motifs preserved"] = metrics.preserved
        figures["split rate"] = metrics.split_rate
        if metrics.num_instances:
            figures["border violations an instance"] = (
                metrics.boundary_violations / metrics.num_instances
            )
        figures["compression, letters a token"] = metrics.compression
        figures["fertility, tokens an instance"] = metrics.fertility
        figures["tokens a sequence"] = metrics.tokens_per_sequence
        for measure, figure in figures.items():
            panels.setdefault(measure, {})[name] = figure
    return panels


def _panel(x: float, y: float, title: str, figures: Mapping[str, float]) -> str:
    """Draw bars from the left, each with its vocabulary and figure; shares go from 0 to 1."""
    largest = max([1.0, *(figure for figure in figures.values() if not isnan(figure))])
    parts = [_text(x, y + 14, title, size=13)]
    for number, (name, figure) in enumerate(figures.items()):
        top = y + TOP - 10 + BAR_HEIGHT * number
        length = 0.0 if isnan(figure) else (PANEL - 30) * figure / largest
        colour = COLOURS[number % len(COLOURS)]
        size = f'width="{length:.1f}" height="{BAR_HEIGHT - 4}"'
        parts.append(f'<rect x="{x:.1f}" y="{top:.1f}" {size} fill="{colour}" opacity="0.45"/>\n')
        label = f"{name[-28:]}  {'none' if isnan(figure) else f'{figure:.3g}'}"
        parts.append(_text(x + 4, top + 12, label, size=11))
    return "".join(parts)


def _text(x: float, y: float, text: str, size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}">{escape(text)}</text>\n'
