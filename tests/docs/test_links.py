"""Links between documents have targets, and README.md is short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.data_files import ROOT

DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
MAX_README_LINES = 150


def anchor(heading: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(document: Path) -> None:
    for link in LINK.findall(document.read_text(encoding="utf-8")):
        if link.startswith(("http://", "https://")):
            continue
        name, _, heading = link.partition("#")
        target = (document.parent / name).resolve() if name else document
        assert target.exists(), link
        if heading:
            headings = HEADING.findall(target.read_text(encoding="utf-8"))
            assert heading in map(anchor, headings), link


def test_the_readme_is_short() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MAX_README_LINES
