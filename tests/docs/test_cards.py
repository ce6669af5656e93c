"""The table of cards says what the launch shapes and families say."""

from __future__ import annotations

import re

import pytest

from gpu.kernels.catalog import KERNELS
from gpu.kernels.families import TEXT, family_on
from gpu.kernels.launch_shape import CLASSES, launch_shape
from tests.support.data_files import ROOT

TABLE = (ROOT / "docs" / "deploy" / "cards.md").read_text(encoding="utf-8")
ROWS = {
    int(kib): [cell.strip() for cell in rest.split("|")]
    for kib, rest in re.findall(r"^\| (\d+) KiB \|(.*)\|$", TABLE, re.MULTILINE)
}


def test_every_class_has_a_row() -> None:
    assert list(ROWS) == list(CLASSES)


@pytest.mark.parametrize("kib", CLASSES)
def test_a_row_says_what_runs_on_the_cards_of_its_class(kib: int) -> None:
    limits = CLASSES[kib]
    cards, merge, fused, dna, *_ = ROWS[kib]
    shape = launch_shape(KERNELS["merge"], limits)
    assert shape is not None
    assert merge == f"{shape.threads} threads, {shape.shared_bytes / 1024:.0f} KiB"
    kinds = dict.fromkeys(
        name.removeprefix("encode_") for name in family_on(TEXT, limits.runs).fused
    )
    assert fused == ", ".join(f"a {kind}" for kind in kinds)
    assert dna.startswith("one launch") == limits.runs("encode_dna_parts")
    assert f"({'.'.join(map(str, limits.capability))})" in cards
