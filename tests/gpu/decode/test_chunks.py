"""Many ids to bytes, in chunks on the emulated device, against the CPU engine's decoding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gpu.decode import chunks
from gpu.decode import decode as decoding
from gpu.engine import GpuEngine
from service.engines.cpu.engine import CpuEngine
from tests.support.each_device import DEVICES, new_engine
from tests.support.emulation.device import EmulatedDevice
from vocabularies.batch.batch import Batch
from vocabularies.batch.ragged import offsets_from_lengths
from vocabularies.builtin import load
from vocabularies.model.vocabulary import Vocabulary

CPU = CpuEngine()
NAMES = "gpt2", "hyenadna", "mtdna6", "nt_v2", "dnabert2"


@pytest.fixture(scope="module", params=DEVICES)
def engine(request: pytest.FixtureRequest) -> Iterator[GpuEngine]:
    made = new_engine(request.param)
    made.pipeline.chunk_bytes = 1 << 13
    yield made
    made.close()


@pytest.fixture(autouse=True)
def in_chunks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Small chunks for few ids; the names of the ways that calls took."""
    ways: list[str] = []
    for way in ("decode_in_chunks", "_decode_at_once"):
        own = getattr(decoding, way)
        monkeypatch.setattr(
            decoding, way, lambda *given, own=own, way=way: ways.append(way) or own(*given)
        )
    monkeypatch.setattr(decoding, "SMALL_BYTES", 64)
    monkeypatch.setattr(chunks, "ENDS", (1 << 10, 1 << 10))
    return ways


def check(
    engine: GpuEngine, vocabulary: Vocabulary, ids: Any, lengths: Any, *, skip: bool = False
) -> None:
    offsets = offsets_from_lengths(np.asarray(lengths))
    expected = CPU.decode(vocabulary, ids.astype(np.int64), offsets, skip)
    for dtype in (np.int32, np.int64):
        data, ends, errors = engine.decode(vocabulary, ids.astype(dtype), offsets, skip)
        assert data.tobytes() == expected.data.tobytes()
        assert ends.tolist() == expected.offsets.tolist()
        assert errors == expected.errors


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_rows_of_all_lengths(
    engine: GpuEngine, in_chunks: list[str], name: str, skip: bool
) -> None:
    chance, vocabulary = np.random.default_rng(len(name)), load(name)
    lengths = np.append(chance.choice([0, 1, 3, 200, 5000], 30), [0, 0])
    check(
        engine, vocabulary, chance.integers(0, len(vocabulary), lengths.sum()), lengths, skip=skip
    )
    assert set(in_chunks) == {"decode_in_chunks"}


@pytest.mark.parametrize("name", NAMES)
def test_one_long_row(engine: GpuEngine, in_chunks: list[str], name: str) -> None:
    vocabulary = load(name)
    ids = np.random.default_rng(1).integers(0, len(vocabulary), 30_001)
    check(engine, vocabulary, ids, [len(ids)])
    assert set(in_chunks) == {"decode_in_chunks"}


@pytest.mark.parametrize("name", NAMES)
def test_one_long_row_of_bases(engine: GpuEngine, in_chunks: list[str], name: str) -> None:
    bases = "".join(np.random.default_rng(6).choice([*"ACGT"], 30_000))  # K-mers share letters.
    encoded = CPU.encode(load(name), Batch([bases]))
    check(engine, load(name), encoded.ids, [len(encoded.ids)])
    assert set(in_chunks) == {"decode_in_chunks"}


@pytest.mark.parametrize("name", NAMES)
def test_ids_that_mean_nothing_in_short_rows(
    engine: GpuEngine, in_chunks: list[str], name: str
) -> None:
    vocabulary = load(name)
    ids = np.random.default_rng(2).integers(0, len(vocabulary), 14_000)
    ids[[0, 777, 780, 6_001, 13_999]] = -1, len(vocabulary), -5, (1 << 31) - 1, -(1 << 31)
    check(engine, vocabulary, ids, np.full(2_000, 7))
    assert set(in_chunks) == {"decode_in_chunks"}


@pytest.mark.parametrize("place", [0, 9_000, 29_999])
def test_an_id_that_means_nothing_in_a_row_that_is_cut(
    engine: GpuEngine, in_chunks: list[str], place: int
) -> None:
    vocabulary = load("gpt2")
    ids = np.random.default_rng(3).integers(0, len(vocabulary), 30_100)
    ids[place] = -1
    check(engine, vocabulary, ids, [30_000, 0, 100])
    assert "_decode_at_once" in in_chunks


def test_tokens_that_are_too_long_for_a_chunk(engine: GpuEngine, in_chunks: list[str]) -> None:
    vocabulary = load("gpt2")
    longest = max(range(len(vocabulary)), key=lambda i: len(vocabulary.tokens[i] or b""))
    check(engine, vocabulary, np.full(5_000, longest), [4_990, 10])
    assert "_decode_at_once" in in_chunks


def test_answers_beyond_the_cap_lie_in_ordinary_memory() -> None:
    engine = GpuEngine(EmulatedDevice(1 << 32), 1 << 28, answer_bytes=1)
    engine.pipeline.chunk_bytes = 1 << 13
    ids = np.random.default_rng(4).integers(0, 50_000, 20_000)
    check(engine, load("gpt2"), ids, np.full(100, 200))
    assert engine.resources.leases.used_bytes == 0
    engine.close()


def test_pinned_ids_are_read_where_they_lie(engine: GpuEngine) -> None:
    vocabulary, memory = load("gpt2"), engine.device.allocate_pinned(40_000)
    ids = memory.view(np.int32)
    ids[:] = np.random.default_rng(5).integers(0, len(vocabulary), 10_000)
    offsets = offsets_from_lengths(np.full(100, 100))
    data, ends, _ = engine.decode(vocabulary, ids, offsets, False)
    expected = CPU.decode(vocabulary, ids.astype(np.int64), offsets, False)
    assert (data.tobytes(), ends.tolist()) == (expected.data.tobytes(), expected.offsets.tolist())


def test_encoding_goes_on_in_workspaces_that_decoded(engine: GpuEngine) -> None:
    vocabulary, text = load("gpt2"), b"The quick brown fox. " * 1_000
    data, offsets = np.frombuffer(text, np.uint8), offsets_from_lengths(np.full(10, 2_100))
    for _ in range(3):
        ids, ends = engine.encode_ids(vocabulary, data, offsets)
        assert engine.decode(vocabulary, ids, ends, False)[0].tobytes() == text
