"""Strings that are joined while earlier chunks are being encoded; ids in unpinned memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from gpu.engine import GpuEngine, Joining
from gpu.errors import OutOfMemory
from gpu.streaming import encode_stream
from tests.support.emulation.device import EmulatedDevice
from vocabularies.batch.batch import JOINED_BY, Batch, EncodeOptions
from vocabularies.builtin import load

GPT2 = load("gpt2")
CHUNK_BYTES = 1 << 13
WORDS = ["the ", "naïve ", "北京 ", "queen\n", "42 "]
CONTENT = EncodeOptions(add_special_tokens=False)
needs_extensions = pytest.mark.skipif(
    JOINED_BY != "C++", reason="Python joins strings before anything else"
)


class _Late:
    """A copy that copies bytes only when `wait` is called for them."""

    seconds = 0.0

    def __init__(self, joined: bytes, target: np.ndarray) -> None:
        self.joined, self.target, self.done, self.waits = joined, target, 0, 0

    def wait(self, num_bytes: int, /) -> None:
        self.waits += num_bytes > self.done
        part = np.frombuffer(self.joined[self.done : num_bytes], np.uint8)
        self.target[self.done : self.done + len(part)] = part
        self.done = max(self.done, num_bytes)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[GpuEngine]:
    made = GpuEngine(EmulatedDevice(1 << 32), 1 << 28)
    made.pipeline.chunk_bytes = CHUNK_BYTES
    monkeypatch.setattr(made.resources.workspaces, "is_small", lambda *size: False)
    yield made
    made.close()


@pytest.fixture
def late(engine: GpuEngine, monkeypatch: pytest.MonkeyPatch) -> list[_Late]:
    """Return the copies that were begun; a text that is read too early has old bytes."""
    begun: list[_Late] = []

    def start_gather(texts: list[str], offsets: object, target: np.ndarray) -> _Late:
        target[:] = np.resize(np.frombuffer(b"a ", np.uint8), len(target))  # Cut anywhere.
        begun.append(_Late("".join(texts).encode(), target))
        return begun[-1]

    monkeypatch.setattr(engine.resources.staging, "start_gather", start_gather)
    return begun


def texts_of(num_rows: int, words: int) -> list[str]:
    chance = np.random.default_rng(num_rows)
    return ["".join(chance.choice(WORDS, words)) for _ in range(num_rows)]


@needs_extensions
@pytest.mark.parametrize(("num_rows", "words"), [(2_000, 40), (1, 70_000), (5, 12_000)])
def test_chunks_wait_for_their_own_strings(
    engine: GpuEngine, late: list[_Late], num_rows: int, words: int
) -> None:
    texts = texts_of(num_rows, words)
    expected = engine.encode(GPT2, Batch.from_bytes([*map(str.encode, texts)], CONTENT))
    encoded = engine.encode(GPT2, Batch(texts, options=CONTENT))
    assert encoded.ids.tolist() == expected.ids.tolist()
    assert encoded.offsets.tolist() == expected.offsets.tolist()
    counts, _ = engine.count(GPT2, Batch(texts, options=CONTENT))
    assert counts.tolist() == np.diff(expected.offsets).tolist()
    assert len(late) == 2
    assert num_rows < 2_000 or late[0].waits > 4


@needs_extensions
def test_strings_are_joined_when_a_call_ends_with_an_error(
    engine: GpuEngine, late: list[_Late], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: object) -> None:
        raise OutOfMemory("a test")

    texts = texts_of(2_000, 40)
    batch = Batch(texts, options=CONTENT)
    monkeypatch.setattr(engine.pipeline, "answer", fails)
    with pytest.raises(OutOfMemory):
        engine.encode(GPT2, batch)
    assert batch.data.tobytes() == "".join(texts).encode()


@needs_extensions
def test_strings_in_ordinary_memory_are_there_before_chunks_are_staged(
    engine: GpuEngine, late: list[_Late], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = texts_of(2_000, 40)
    expected = engine.encode(GPT2, Batch.from_bytes([*map(str.encode, texts)], CONTENT))
    monkeypatch.setattr(engine.resources.leases, "take", lambda num_bytes: None)
    encoded = engine.encode(GPT2, Batch(texts, options=CONTENT))
    assert encoded.ids.tolist() == expected.ids.tolist()
    assert len(late) == 1


def test_nothing_is_waited_for_where_bytes_were_given(engine: GpuEngine) -> None:
    with Joining(Batch.from_bytes([b"abc"]), engine.host_memory, engine.resources.staging) as copy:
        assert copy is None


@pytest.mark.parametrize("leased", [True, False])
def test_ids_to_ordinary_memory(
    engine: GpuEngine, monkeypatch: pytest.MonkeyPatch, leased: bool
) -> None:
    batch = Batch.from_bytes([*map(str.encode, texts_of(400, 60))], CONTENT)
    expected = engine.encode(GPT2, batch)
    if not leased:
        monkeypatch.setattr(engine.resources.leases, "take", lambda num_bytes: None)
    for dtype in (np.int32, np.uint16):
        out = np.zeros(len(batch.data), dtype)
        sizes = {"chunk_bytes": CHUNK_BYTES, "in_flight": 3}
        ends = encode_stream(engine, GPT2, batch.data, batch.offsets, out, **sizes)
        assert ends.tolist() == expected.offsets.tolist()
        assert out[: ends[-1]].tolist() == expected.ids.tolist()
        assert not out[ends[-1] :].any()
