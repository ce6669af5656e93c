"""Draws the statistics of a vocabulary as SVG.

It needs no plotting library. The same statistics give the same file on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from vocabularies.sequences.statistics import VocabularyStatistics

WIDTH, LEFT, TOP, ROW, LABEL = 920, 16, 70, 18, 110
PANEL = 440  # The width of one of two panels.
NUM_FREQUENT = 20
NUM_BINS = 10
COLOUR = "#1b5e9e"


class _Bar(NamedTuple):
    """One bar: its label, its length, and the text of its value."""

    label: str
    length: float
    figure: str


def plot(statistics: VocabularyStatistics) -> str:
    """Draw the most frequent k-mers, how often k-mers occur, and the tokens of a sequence."""
    unit = statistics.unit
    title = (
        f"{statistics.num_sequences:,} sequences, {statistics.num_tokens:,} tokens: "
        f"{statistics.num_seen:,} of {statistics.num_possible:,} {unit} seen "
        f"({statistics.share_seen:.1%}), [UNK] {statistics.unknown_share:.3%}"
    )
    frequent = [
        _Bar(each.token, each.share, f"{each.share:.3%}")
        for each in statistics.most_frequent(NUM_FREQUENT)
    ]
    occurrences, lengths = _bars_of_occurrences(statistics), _bars_of_lengths(statistics)
    right = LEFT + PANEL
    below = TOP + ROW * (len(occurrences) + 3)
    drawn = [
        _text(LEFT, 26, title, size=14),
        *_panel(LEFT, TOP, f"Most frequent {unit}, share of all tokens", frequent),
        *_panel(right, TOP, f"Occurrences: number of {unit}", occurrences),
        *_panel(right, below, "Tokens of a sequence: number of sequences", lengths),
    ]
    height = max(TOP + ROW * len(frequent), below + ROW * len(lengths)) + 20
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'font-family="sans-serif" font-size="12">\n'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>\n{"".join(drawn)}</svg>\n'
    )


def _bars_of_occurrences(statistics: VocabularyStatistics) -> list[_Bar]:
    """Make a bar for k-mers that never occur, and one for each power of ten of occurrences."""
    counts = statistics.counts[statistics.is_word]
    bars = [_count_bar("never", int(np.count_nonzero(counts == 0)))]
    low = 1
    while low <= counts.max(initial=0):
        number = int(np.count_nonzero((counts >= low) & (counts < 10 * low)))
        bars.append(_count_bar(f"{low:,} to {10 * low - 1:,}", number))
        low *= 10
    return bars


def _bars_of_lengths(statistics: VocabularyStatistics) -> list[_Bar]:
    """Divide the lengths of sequences into ranges of equal size, and make a bar for each."""
    if not statistics.lengths:
        return []
    shortest, longest = min(statistics.lengths), max(statistics.lengths)
    width = (longest - shortest) // NUM_BINS + 1
    numbers = [0] * ((longest - shortest) // width + 1)
    for length, number in statistics.lengths.items():
        numbers[(length - shortest) // width] += number
    bars = []
    for bin_number, number in enumerate(numbers):
        first = shortest + bin_number * width
        last = min(first + width - 1, longest)
        label = f"{first:,}" if first == last else f"{first:,} to {last:,}"
        bars.append(_count_bar(label, number))
    return bars


def _count_bar(label: str, number: int) -> _Bar:
    return _Bar(label, number, f"{number:,}")


def _panel(x: int, y: int, title: str, bars: Sequence[_Bar]) -> list[str]:
    longest = max([bar.length for bar in bars], default=0) or 1
    drawn = [_text(x, y - 10, title, size=13)]
    for number, bar in enumerate(bars):
        top = y + ROW * number
        width = (PANEL - LABEL - 90) * bar.length / longest
        drawn.append(
            f'<rect x="{x + LABEL}" y="{top}" width="{width:.1f}" height="{ROW - 4}" '
            f'fill="{COLOUR}" opacity="0.6"/>\n'
        )
        drawn.append(_text(x, top + 12, bar.label, size=11))
        drawn.append(_text(x + LABEL + 4 + width, top + 12, bar.figure, size=11))
    return drawn


def _text(x: float, y: float, text: str, size: int) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}">{escape(text)}</text>\n'
