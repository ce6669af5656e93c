"""The papers' page equals the results, and can be written from any part of them."""

from __future__ import annotations

import itertools
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.papers.page.__main__ import DOCS, PAGE, filled
from benchmarks.papers.page.claims import CLAIMS, NOT_MEASURED, VERIFIED
from benchmarks.papers.page.pictures import PICTURES
from benchmarks.papers.page.results import Results, read_results
from benchmarks.papers.page.tables import TABLES, gputok_sweep
from tests.benchmarks.report.test_plot import boxes

NOTHING = Results(())
SECONDS = {"median_s": 0.002, "q1_s": 0.001, "q3_s": 0.003}


def made_up(part: str, *rows: dict[str, Any]) -> Results:
    """Make results of one part on a GPU."""
    machine = {"device": "NVIDIA H200", "cores": 16, "cpu": "x", "date": "2026-01-01T00:00"}
    return Results(({"parts": {part: {"machine": machine, "rows": [*rows]}}},))


def test_the_page_is_what_the_results_say() -> None:
    written = PAGE.read_text(encoding="utf-8")
    assert written == filled(written, read_results()), "docs/papers.md is stale: run `make docs`"


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_what_the_results_say(name: str) -> None:
    written = (DOCS / "images" / name).read_text(encoding="utf-8")
    assert written == PICTURES[name](read_results()), f"{name} is stale: run `make docs`"


@pytest.mark.parametrize("name", PICTURES)
def test_words_of_a_picture_do_not_stand_on_each_other(name: str) -> None:
    root = ElementTree.fromstring(PICTURES[name](read_results()))
    placed = [*boxes(root)]
    assert all(box.left >= 0 and box.right <= float(root.get("width", 0)) for box in placed)
    for one, other in itertools.combinations(placed, 2):
        assert not one.overlaps(other), (one, other)


def test_the_page_can_be_written_from_nothing() -> None:
    page = filled(PAGE.read_text(encoding="utf-8"), NOTHING)
    assert page.count("Not measured yet") >= len(TABLES) - 3
    for picture in PICTURES.values():
        assert "Not measured yet" in picture(NOTHING)


def test_the_page_can_be_written_from_each_part_alone() -> None:
    document = read_results().documents[0]
    page = PAGE.read_text(encoding="utf-8")
    for name, part in document["parts"].items():
        for rows in (part["rows"], part["rows"][:1], part["rows"][-1:]):
            results = Results(({"parts": {name: part | {"rows": rows}}},))
            assert filled(page, results)
            for picture in PICTURES.values():
                assert picture(results)


def test_a_page_without_its_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="has not one table of"):
        filled(PAGE.read_text(encoding="utf-8").replace("<!-- begin left out -->", ""), NOTHING)


def test_figures_of_a_gpu_stand_before_those_of_a_processor() -> None:
    on_gpu = made_up("sweep", {"table": "sweep", "tokens": 256, "way": "a", "seconds": SECONDS})
    both = Results((*on_gpu.documents, *read_results().documents))
    assert both.table("sweep", "sweep").where() == "H200, 16 cores of x, 2026-01-01"
    assert "2026-01-01" in gputok_sweep(both)


@pytest.mark.parametrize("name", CLAIMS)
def test_claims_without_figures_are_not_measured(name: str) -> None:
    verdicts = [claim.verdict for claim in CLAIMS[name](NOTHING)]
    assert any(verdict.startswith(NOT_MEASURED) for verdict in verdicts)


def test_a_verdict_follows_from_the_figures() -> None:
    fast, slow = SECONDS, {name: 100 * value for name, value in SECONDS.items()}
    rows = [
        {"table": "sweep", "tokens": 131_072, "way": way, "seconds": seconds}
        for way, seconds in (
            ("tiktoken", slow),
            ("HF tokenizers", slow),
            ("GPUTok optimized", fast),
            ("warptok GPU", fast),
        )
    ]
    claims = [*CLAIMS["gputok claims"](made_up("sweep", *rows))]
    [claim] = [claim for claim in claims if "1.7× as fast as tiktoken" in claim.words]
    assert claim.verdict == f"{VERIFIED}; warptok: better"
    assert claim.here == "GPUTok's kernel 100×, warptok 100×"
