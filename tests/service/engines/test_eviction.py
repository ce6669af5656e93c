"""The least recently used vocabularies are evicted, and loaded again for a request."""

from __future__ import annotations

import asyncio
import ctypes
import functools
import gc
import os
from pathlib import Path

import pytest

from service.core.settings import Settings
from service.engines.base import Holding
from service.engines.cpu.engine import CpuEngine
from service.engines.cpu.verification import verify
from service.engines.eviction import choose_evicted
from service.registry.registry import Registry
from service.registry.reports import samples
from tests.fuzz import memory
from tests.fuzz.memory import GROWTH_BYTES, Size, measured, what_grew
from tests.support.fake_engine import FakeEngine, byte_vocabulary
from tests.support.inputs.tokenizer_documents import rank_file
from tests.support.waiting import run
from vocabularies.batch.batch import Batch
from vocabularies.formats import read_vocabulary

MIB = 1 << 20
BYTES = [bytes([byte]) for byte in range(256)]


def ranked(word: bytes):
    """A small byte-level vocabulary, for which there is an encoder with a large table."""
    files = {"r.tiktoken": rank_file([*BYTES, b"ab", word])}
    return read_vocabulary(files, pretokenizer="gpt2")


@pytest.mark.parametrize(
    ("kept", "max_bytes", "gone"),
    [
        ("", 60, ""),
        ("", 59, "b"),
        ("", 30, "ba"),
        ("b", 30, "ac"),
        ("abc", 0, ""),
        ("", 0, "bac"),
    ],
)
def test_the_longest_unused_leave_until_the_others_fit(kept, max_bytes, gone):
    holdings = {"a": Holding(10, 2.0), "b": Holding(20, 1.0), "c": Holding(30, 3.0)}
    assert choose_evicted(holdings, set(kept), max_bytes) == list(gone)


class SizedEngine(FakeEngine):
    """Every vocabulary takes ten bytes; `order` is that of their last use."""

    def __init__(self):
        super().__init__()
        self.order: list[str] = []

    def load(self, vocabulary, permanent=False):
        self.order.append(vocabulary.digest)
        return super().load(vocabulary, permanent)

    def holdings(self):
        return {d: Holding(10, float(self.order.index(d))) for d in self.loaded}


FIRST, SECOND, THIRD = (byte_vocabulary(size) for size in (256, 300, 301))


def test_an_upload_evicts_vocabularies_and_their_next_use_loads_them(tmp_path, caplog):
    caplog.set_level("INFO")

    async def scenario():
        settings = Settings(
            store_dir=tmp_path, default_vocabulary="first", loaded_vocabulary_bytes=20
        )
        registry = Registry(engine := SizedEngine(), settings)
        for name, vocabulary in (("first", FIRST), ("second", SECOND), ("third", THIRD)):
            registry.put(name, vocabulary, replace=False)
        # The default vocabulary stays although it is the oldest.
        assert registry.entries.keys() == {"first", "third"}
        assert engine.loaded == {FIRST.digest, THIRD.digest}
        assert "evicted second" in caplog.text
        state = {
            sample.name: sample.state for sample in samples(registry, frozenset({"second"}), 20)
        }
        assert state["second"] == "unloaded"
        assert (await registry.get_loaded("second")).vocabulary.digest == SECOND.digest
        assert registry.entries.keys() == {"first", "second"}

    run(scenario)


def test_the_engine_tells_what_was_used_last_and_loads_again_what_left():
    engine = CpuEngine()
    for vocabulary in (FIRST, SECOND):
        engine.load(vocabulary)
    assert engine.holdings()[FIRST.digest].used < engine.holdings()[SECOND.digest].used
    engine.encode(FIRST, Batch(["a"]))
    assert engine.holdings()[FIRST.digest].used > engine.holdings()[SECOND.digest].used
    engine.unload(FIRST.digest)
    assert engine.encode(FIRST, Batch(["a"])).ids.tolist() == [97]
    engine.close()


class Mallinfo2(ctypes.Structure):
    """The statistics of malloc (malloc.h)."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks".split()
    ] + [("keepcost", ctypes.c_size_t)]


def used_bytes() -> int:
    """Return the bytes that malloc has allocated."""
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is None:
        pytest.skip("malloc is not glibc's")
    mallinfo2.restype = Mallinfo2
    gc.collect()
    info = mallinfo2()
    return info.uordblks + info.hblkhd


def resident_bytes() -> int:
    """Return the memory of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_what_an_encoder_is_said_to_take_is_what_it_takes_at_most():
    engine = CpuEngine()
    texts = Batch(["word " * 20_000] * 8)
    engine.encode(ranked(b"before"), texts)  # Tables of all vocabularies.
    vocabularies = [ranked(b"word%d" % number) for number in range(3)]
    before = resident_bytes()
    for vocabulary in vocabularies:
        engine.encode(vocabulary, texts)
    taken = (resident_bytes() - before) / len(vocabularies)
    said = engine.holdings()[vocabularies[0].digest].num_bytes
    assert taken < said * 1.5
    engine.close()


def test_verifying_leaves_no_memory_behind():
    engine = CpuEngine()
    vocabulary = ranked(b"verified")
    texts = [f"{number} words {number * 7919}" for number in range(100)]
    verify(engine, vocabulary, texts)
    before = used_bytes()
    for _ in range(40):
        assert verify(engine, vocabulary, texts).num_different == 0
    assert used_bytes() - before < MIB  # With the caches of words it was 2.2.
    engine.close()


def sizes(loaded: list[int], settled: list[int]) -> list[Size]:
    return [Size(a * MIB, b * MIB) for a, b in zip(loaded, settled, strict=True)]


def test_fuzzing_sees_memory_that_grows_and_memory_past_its_bound():
    flat = [300] * 10
    assert what_grew(sizes([400, 560, 330, 550, 310] * 2, flat), 256 * MIB) == ""
    leak = [300 + 10 * number for number in range(10)]
    assert "grew by 70 MiB" in what_grew(sizes([600] * 10, leak), 256 * MIB)
    assert "was at 700 MiB" in what_grew(sizes([400] * 9 + [700], flat), 256 * MIB)
    assert what_grew(sizes([300], [300]), 0) == ""
    assert GROWTH_BYTES < 70 * MIB


def test_only_caches_without_a_bound_keep_what_they_have_frozen_as_they_are(monkeypatch):
    bounded, unbounded = functools.lru_cache(9)(str), functools.cache(str)
    monkeypatch.setattr(memory, "bounded", bounded, raising=False)
    monkeypatch.setattr(memory, "unbounded", unbounded, raising=False)
    assert (bounded(1), unbounded(1)) == ("1", "1")
    gc.freeze()
    memory._empty_bounded_caches()
    gc.unfreeze()
    assert (bounded.cache_info().currsize, unbounded.cache_info().currsize) == (0, 1)


@pytest.mark.slow
def test_memory_is_measured_without_uploads_and_their_next_use_loads_them():
    class Held:
        registry = Registry(SizedEngine(), Settings(default_vocabulary="hyenadna"))

    async def scenario():
        registry = Held.registry
        await registry.get_loaded("hyenadna")
        registry.put("mine", SECOND, replace=False)
        registry.engine.load(THIRD)  # As a request that was accepted before its vocabulary left.
        await asyncio.to_thread(measured, Held)
        assert registry.entries.keys() == {"hyenadna"}
        assert registry.engine.loaded == {registry.entries["hyenadna"].vocabulary.digest}
        assert (await registry.get_loaded("mine")).vocabulary.digest == SECOND.digest

    run(scenario)
