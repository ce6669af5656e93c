"""The pictures equal the results, and their texts do not overlap."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree import ElementTree

import pytest

from benchmarks.report import plot
from benchmarks.report.charts import short
from benchmarks.report.results import load, only

SVG = "{http://www.w3.org/2000/svg}"
LETTER = 0.55  # The width of a letter in units of the font's size, on average.


@dataclass(frozen=True)
class Box:
    """Where words stand, as far as can be told without a font."""

    words: str
    left: float
    right: float
    top: float
    bottom: float

    def overlaps(self, other: Box) -> bool:
        beside = self.right <= other.left or other.right <= self.left
        above = self.bottom <= other.top or other.bottom <= self.top
        return not (beside or above)


def boxes(root: ElementTree.Element) -> Iterator[Box]:
    for element in root.iter(f"{SVG}text"):
        kinds = element.get("class", "").split()
        size = 17 if "title" in kinds else 12 if "small" in kinds else 13
        words = element.text or ""
        x, y = float(element.get("x", 0)), float(element.get("y", 0))
        width = LETTER * size * len(words)
        left = (
            x
            - width * {"start": 0.0, "middle": 0.5, "end": 1.0}[element.get("text-anchor", "start")]
        )
        yield Box(words, left, left + width, y - 0.75 * size, y + 0.2 * size)


@pytest.mark.parametrize("name", plot.PICTURES)
def test_a_picture_is_what_the_results_say(name: str) -> None:
    written = (plot.IMAGES / name).read_text(encoding="utf-8")
    assert written == plot.PICTURES[name](), f"docs/images/{name} is stale: run `make docs`"


@pytest.mark.parametrize("name", plot.PICTURES)
def test_words_stand_on_the_page_and_not_on_each_other(name: str) -> None:
    root = ElementTree.fromstring(plot.PICTURES[name]())
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    placed = [*boxes(root)]
    assert len(placed) > 10
    for box in placed:
        assert box.left >= 0 and box.right <= width, box
        assert box.top >= 0 and box.bottom <= height, box
    for one, other in itertools.combinations(placed, 2):
        assert not one.overlaps(other), (one, other)


@pytest.mark.parametrize("name", plot.PICTURES)
def test_a_picture_has_a_description_for_screen_readers(name: str) -> None:
    root = ElementTree.fromstring(plot.PICTURES[name]())
    title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None and title.text
    assert description is not None and len(description.text or "") > 100


def test_bars_are_as_long_as_their_figures() -> None:
    root = ElementTree.fromstring(plot.throughput())
    bars = [bar for bar in root.iter(f"{SVG}rect") if bar.get("class") != "page"]
    rows = load("engine/engine_h200.json")["corpora"]
    ours, gigatoken = (
        only(rows, corpus="english", vocabulary="gpt2", cores="all", engine=engine)
        for engine in ("gpu pinned, narrow ids", "gigatoken")
    )
    ratio = ours["warm"]["gb_per_s"] / gigatoken["warm"]["gb_per_s"]
    assert float(bars[1].get("width", 0)) / float(bars[3].get("width", 0)) == pytest.approx(
        ratio, rel=0.02
    )


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.00105, "0.0010"),
        (0.0534, "0.053"),
        (0.996, "1.00"),
        (2.174, "2.17"),
        (28.44, "28.4"),
        (99.96, "100"),
        (105.6, "106"),
        (45_618.2, "45,600"),
        (0, "0"),
    ],
)
def test_figures_are_short(value: float, words: str) -> None:
    assert short(value) == words
