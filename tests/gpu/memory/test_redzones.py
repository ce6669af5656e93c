"""Batches in workspaces of exactly their size: no kernel writes behind a field (redzones.py)."""

from __future__ import annotations

import ctypes
from random import Random

import numpy as np
import pytest

from gpu.engine import GpuEngine
from service.engines.cpu.engine import CpuEngine
from tests.fuzz.kernels import batch_of, compare
from tests.support.emulation.redzones import redzones
from vocabularies.batch.batch import Batch
from vocabularies.builtin import load


@pytest.mark.parametrize("name", ["gpt2", "dnabert2", "hyenadna", "nt_v2"])
@pytest.mark.slow
def test_no_kernel_writes_behind_a_field(name: str) -> None:
    vocabulary, rng, found = load(name), Random(name), list[str]()
    with redzones() as device:
        engine = GpuEngine(device, 1 << 28)
        for _ in range(6):
            compare(engine, CpuEngine(), vocabulary, batch_of(rng, vocabulary, 8192), rng, found)
        engine.close()
    assert found == []


@pytest.mark.parametrize("field", ["text", "ids", "hard", "post_processed_ids"])
def test_what_is_written_behind_a_field_is_seen(field: str) -> None:
    with redzones() as device:
        engine = GpuEngine(device, 1 << 28)
        workspace = engine.resources.workspaces.take(4096, 10)
        ends = sorted(gap for gap in device.gaps if gap > workspace.fields[field])
        ctypes.memset(ends[0], 0, 1)
        with pytest.raises(AssertionError, match="byte 0 behind a field was written"):
            engine.resources.workspaces.give(workspace)


def test_ids_fill_a_workspace_to_its_end() -> None:
    """Every byte of whole tiles is an id, post_processed, in as many rows as there is room for."""
    rows = [b"\x01" * 16] * 512
    with redzones() as device:
        engine = GpuEngine(device, 1 << 28)
        for name in ("gpt2", "dnabert2", "hyenadna"):
            expected = CpuEngine().encode(load(name), Batch.from_bytes(rows))
            encoded = engine.encode(load(name), Batch.from_bytes(rows))
            assert np.array_equal(encoded.ids, expected.ids)
        engine.close()
