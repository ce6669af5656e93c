"""Narrow ids and counts of large batches on the emulated device against the CPU engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gpu.engine import GpuEngine
from service.engines.cpu.engine import CpuEngine
from tests.support.each_device import DEVICES, new_engine
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.builtin import load

CPU = CpuEngine()
CONTENT = EncodeOptions(add_special_tokens=False)
NARROW = {"gpt2": np.uint16, "dnabert1_3mer": np.uint8, "nt_v2": np.uint16, "dnabert2": np.uint16}


@pytest.fixture(scope="module", params=DEVICES)
def engine(request: pytest.FixtureRequest) -> Iterator[GpuEngine]:
    made = new_engine(request.param)
    made.pipeline.chunk_bytes = 1 << 13
    made.resources.workspaces.is_small = lambda *size: False  # type: ignore[method-assign]
    yield made
    made.close()


def rows_of(name: str) -> list[str]:
    chance = np.random.default_rng(len(name))
    letters = ["queen ", "naïve ", "北京 ", "42\n"] if name == "gpt2" else [*"ACGT"]
    return ["".join(chance.choice(letters, size)) for size in chance.integers(0, 300, 200)]


def check(engine: GpuEngine, name: str, rows: list[bytes], dtype: Any, **options: Any) -> Any:
    batch = Batch.from_bytes(rows, EncodeOptions(**options))
    batch.id_dtype = dtype
    expected = CPU.encode(load(name), Batch.from_bytes(rows, EncodeOptions(**options)))
    encoded = engine.encode(load(name), batch)
    assert encoded.ids.tolist() == expected.ids.tolist()
    assert encoded.offsets.tolist() == expected.offsets.tolist()
    assert encoded.errors == expected.errors
    counts, errors = engine.count(load(name), batch)
    assert counts.tolist() == np.diff(expected.offsets).tolist()
    assert errors == expected.errors
    return encoded


@pytest.mark.parametrize("name", NARROW)
def test_ids_have_the_dtype_of_the_batch(engine: GpuEngine, name: str) -> None:
    rows = [row.encode() for row in rows_of(name)]
    encoded = check(engine, name, rows, NARROW[name], add_special_tokens=False)
    assert encoded.ids.dtype == NARROW[name]


def test_rows_that_are_refused_have_no_narrow_ids(engine: GpuEngine) -> None:
    rows = [row.encode() for row in rows_of("gpt2")]
    rows[150] = b"\xff" + rows[150]
    encoded = check(engine, "gpt2", rows, np.uint16, add_special_tokens=False)
    assert list(encoded.errors) == [150]


@pytest.mark.parametrize(
    "options", [{}, {"max_length": 20}, {"add_special_tokens": False, "spans": True}]
)
def test_what_is_added_cut_or_placed_has_ids_of_32_bits(
    engine: GpuEngine, options: dict[str, Any]
) -> None:
    rows = [row.encode() for row in rows_of("dnabert2")]
    encoded = check(engine, "dnabert2", rows, np.uint16, **options)
    assert encoded.ids.dtype == np.int32


@pytest.mark.parametrize("options", [{}, {"max_length": 20}, {"max_length": 1}])
@pytest.mark.parametrize("name", NARROW)
def test_counts_of_small_batches(
    engine: GpuEngine, monkeypatch: pytest.MonkeyPatch, name: str, options: dict[str, Any]
) -> None:
    rows = [row.encode() for row in rows_of(name)]
    if not name.startswith("dnabert1"):  # Which leaves what is no letter to the CPU.
        rows[150] = b"\xff" + rows[150]
    batch = Batch.from_bytes(rows, EncodeOptions(**options))
    expected = CPU.encode(load(name), batch)
    monkeypatch.setattr(engine.resources.workspaces, "is_small", lambda *size: True)
    monkeypatch.setattr("gpu.engine.count_large", None)
    counts, errors = engine.count(load(name), batch)
    assert counts.tolist() == np.diff(expected.offsets).tolist()
    assert errors == expected.errors


def test_the_other_strand_of_a_row_is_not_cut_at_its_blanks(engine: GpuEngine) -> None:
    """Its last part would come first; other rows beside it are cut, and may be limited."""
    rows = ["".join(rows_of("dnabert2")[n : n + 99]).encode() + b" ACG" * 900 for n in (0, 99)]
    check(engine, "dnabert2", rows, np.uint16, reverse_complement=True)
    options = [EncodeOptions(reverse_complement=True), EncodeOptions(max_length=9)]
    expected = CPU.encode(load("dnabert2"), Batch.from_bytes(rows, options))
    encoded = engine.encode(load("dnabert2"), Batch.from_bytes(rows, options))
    assert encoded.ids.tolist() == expected.ids.tolist()
