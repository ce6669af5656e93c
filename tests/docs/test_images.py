"""The diagrams are readable, and the folders that they name exist."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
SVG = "{http://www.w3.org/2000/svg}"
# Where the paths of a diagram begin.
BASES = {"service.svg": ["service"], "gpu_stages.svg": ["gpu/cuda", ""]}


def labels(root: ElementTree.Element) -> list[str]:
    words = [text.text or "" for text in root.iter(f"{SVG}text") if "path" in text.get("class", "")]
    return [label for word in words for label in word.split(", ")]


def is_there(base: str, label: str) -> bool:
    place = ROOT / base / label
    return place.is_dir() or place.with_suffix(".cuh").is_file()


@pytest.mark.parametrize("name", BASES)
def test_the_folders_of_a_diagram_are_there(name: str) -> None:
    found = labels(ElementTree.parse(IMAGES / name).getroot())
    assert len(found) > 8
    for label in found:
        assert any(is_there(base, label) for base in BASES[name]), label


@pytest.mark.parametrize("path", sorted(IMAGES.glob("*.svg")), ids=lambda path: path.name)
def test_an_image_can_be_read_on_light_and_dark_and_aloud(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    assert "prefers-color-scheme: dark" in text
    for part in ("title", "desc"):
        element = root.find(f"{SVG}{part}")
        assert element is not None and element.text
    width = float(root.get("width", 0))
    assert 0 < width <= 900


@pytest.mark.parametrize("path", sorted(IMAGES.glob("*.svg")), ids=lambda path: path.name)
def test_every_image_is_shown_somewhere(path: Path) -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert any(f"images/{path.name})" in page.read_text(encoding="utf-8") for page in pages)
