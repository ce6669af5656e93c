"""The generated documents equal what `docs.generate` writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs import generate
from vocabularies.builtin import BUILTINS

ROOT = Path(generate.__file__).parents[1]
PACKAGES = ("vocabularies", "gpu", "service")


@pytest.mark.parametrize("name", generate.DOCUMENTS)
def test_the_document_is_what_the_code_says(name: str) -> None:
    written = (generate.DOCS / name).read_text(encoding="utf-8")
    assert written == generate.DOCUMENTS[name](), f"docs/{name} is stale: run `make docs`"


def test_every_code_has_advice_and_no_others_have() -> None:
    codes = [code.name for code in (*generate.request_codes(), *generate.ROW_CODES)]
    assert set(codes) == set(generate.ADVICE)


def test_the_codes_of_rows_are_those_that_the_sources_name() -> None:
    sources = [path.read_text() for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    named = set(re.findall(r'RowError\(\s*"(\w+)"', "".join(sources)))
    assert {code.name for code in generate.ROW_CODES} == named


def test_every_built_in_vocabulary_is_described() -> None:
    text = (generate.DOCS / "vocabularies.md").read_text(encoding="utf-8")
    assert [name for name in BUILTINS if f"`{name}`" not in text] == []
