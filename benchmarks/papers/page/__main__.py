"""Writes the tables of docs/papers.md and its pictures from the results.

    python -m benchmarks.papers.page

The page's prose is written by hand; the text between the two marks of a table is replaced.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.papers.page.claims import CLAIMS, claims_table
from benchmarks.papers.page.pictures import PICTURES
from benchmarks.papers.page.results import Results, read_results
from benchmarks.papers.page.tables import TABLES
from benchmarks.report.marked_tables import fill

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "papers.md"


def filled(page: str, results: Results) -> str:
    """Return the page with new contents in its tables.

    Raises:
        ValueError: the page lacks the marks of a table.
    """
    tables = {name: table(results) for name, table in TABLES.items()}
    tables |= {name: claims_table(claims(results)) for name, claims in CLAIMS.items()}
    return fill(page, "docs/papers.md", tables)


def main() -> None:
    """Write the page and the pictures."""
    results = read_results()
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")
    for name, picture in PICTURES.items():
        (DOCS / "images" / name).write_text(picture(results), encoding="utf-8")
    print("written: docs/papers.md and its pictures")


if __name__ == "__main__":
    main()
