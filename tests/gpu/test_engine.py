"""The whole GPU engine against the reference: on the emulated device, and on a CUDA device."""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from gpu.engine import GpuEngine
from gpu.errors import NotCovered, OutOfMemory
from gpu.streaming import encode_stream
from tests.engines.test_contract import OPTIONS, SOME_TEXTS, check, right
from tests.gpu.compute_sanitizer import skip_under_compute_sanitizer
from tests.support.data_files import data_bytes, expected, ids_digest
from tests.support.each_device import DEVICES, limit_fused, new_device
from tests.support.emulation.device import EmulatedDevice
from tests.support.inputs.nasty_texts import SEQUENCES, TEXTS
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.builtin import load
from vocabularies.model.types import Bpe, SpecialToken
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference import tokenizer

NAMES = ("gpt2", "cl100k_base", "o200k_base")
MEGABYTES = 1 << 20
TEXT_OPTIONS = [o for o in OPTIONS if not o.reverse_complement and o.circular is None]
ENGINES = ("emulated", "emulated, a launch for each stage")
ENGINES += tuple(
    pytest.param(name.replace("emulated", "cuda"), marks=pytest.mark.gpu) for name in ENGINES
)


device_of = functools.cache(new_device)


@functools.cache
def engine_of(name: str) -> GpuEngine:
    made = GpuEngine(device_of(name.split(",")[0]), 1 << 30)
    if "," in name:
        limit_fused(made, 0)
    return made


@functools.cache
def reference_ids(text: str) -> list[int]:
    return tokenizer.encode(load("gpt2"), text).ids


@pytest.fixture(params=DEVICES)
def device(request):
    return device_of(request.param)


@pytest.fixture(params=ENGINES)
def engine(request):
    return engine_of(request.param)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("options", TEXT_OPTIONS, ids=str)
@pytest.mark.slow
def test_a_batch_has_the_ids_spans_and_refusals_of_the_reference(engine, name, options):
    texts = [*TEXTS, *SEQUENCES] if options == EncodeOptions() else SOME_TEXTS
    rows = [text.encode() for text in texts]
    for batch in (Batch(texts, options=options), Batch.from_bytes(rows, options)):
        for _ in range(4):  # As single launches first, then as one recording.
            encoded = engine.encode(load(name), batch)
            check(encoded, name, texts, [options] * len(texts))
        counts, errors = engine.count(load(name), batch)
        assert counts.tolist() == np.diff(encoded.offsets).tolist()
        assert errors == encoded.errors


def test_mixed_options_in_one_batch_give_what_each_gives_alone(engine):
    texts = [text for text in SOME_TEXTS for _ in TEXT_OPTIONS]
    options = [option for _ in SOME_TEXTS for option in TEXT_OPTIONS]
    order = np.random.default_rng(0).permutation(len(texts))[:300]
    texts, options = [texts[i] for i in order], [options[i] for i in order]
    check(engine.encode(load("gpt2"), Batch(texts, options=options)), "gpt2", texts, options)


@pytest.mark.parametrize("longest", [2, 40])
@pytest.mark.slow
def test_many_more_rows_than_warps_have_their_offsets(engine, longest):
    chance = np.random.default_rng(longest)
    words = "a b-- \n\n  xqzt 京都 12345 'll" * 3
    texts = [
        words[begin : begin + size]
        for begin, size in zip(
            chance.integers(0, 20, 20_000), chance.integers(0, longest, 20_000), strict=True
        )
    ]
    check(engine.encode(load("gpt2"), Batch(texts)), "gpt2", texts, [EncodeOptions()] * len(texts))


@pytest.mark.parametrize("longest", [1, 3, 40])
@pytest.mark.parametrize("size", [4096, 3 * 4096, 9001])
def test_many_rows_of_a_tile_have_their_offsets(engine, size, longest):
    """Empty rows among them, in front of the first byte and behind the last."""
    chance = np.random.default_rng(size + longest)
    text = "".join(chance.choice(["It's", " the", "x", "ab" * 70, "\n"], size).tolist())[:size]
    cuts = np.sort(chance.integers(0, size + 1, 2 * size // longest)).tolist()
    rows = [text[a:b] for a, b in pairwise([0, 0, *cuts, size, size])]
    encoded = engine.encode(load("gpt2"), Batch(rows))
    for row, (begin, end) in zip(rows, pairwise(encoded.offsets.tolist()), strict=True):
        assert encoded.ids[begin:end].tolist() == reference_ids(row), row


def test_rows_that_are_not_utf8_are_refused_alone(engine):
    rows = [b"one", b"t\xffwo", b"\xe4", b"three " * 200_000]
    encoded = engine.encode(load("gpt2"), Batch.from_bytes(rows))
    assert {row: (e.code, e.where) for row, e in encoded.errors.items()} == {
        1: ("not_utf8", "byte 1"),
        2: ("not_utf8", "byte 0"),
    }
    assert encoded.row(0).tolist() == right("gpt2", "one", EncodeOptions()).ids
    assert len(encoded.row(3)) == 200_001
    assert len(encoded.row(1)) == len(encoded.row(2)) == 0


def test_what_other_kernels_compute_is_refused_with_a_reason(engine):
    for options in (EncodeOptions(reverse_complement=True), EncodeOptions(circular=True)):
        with pytest.raises(NotCovered, match="no reverse complement"):
            engine.encode(load("gpt2"), Batch(["ACGT"], options=options))


@pytest.mark.parametrize("name", NAMES)
def test_decode_is_the_inverse_and_names_ids_that_mean_nothing(engine, name):
    vocabulary = load(name)
    encoded = engine.encode(vocabulary, Batch(SOME_TEXTS))
    ids = encoded.ids.astype(np.int64)
    data, offsets, errors = engine.decode(vocabulary, ids, encoded.offsets, False)
    texts = [data[begin:end].tobytes().decode() for begin, end in pairwise(offsets)]
    assert (texts, errors) == (SOME_TEXTS, {})
    size = len(vocabulary)
    rows = [[0, 1], [0, 1, size], [-1], [], [1, -(2**62), 2**62], [1]]
    ids = np.array([i for row in rows for i in row], np.int64)
    _, offsets, errors = engine.decode(vocabulary, ids, np.cumsum([0, *map(len, rows)]), False)
    assert {row: error.where for row, error in errors.items()} == {
        1: "ids[2]",
        2: "ids[0]",
        4: "ids[1]",
    }
    assert np.diff(offsets)[[1, 2, 3, 4]].tolist() == [0, 0, 0, 0]


def random_vocabulary(chance: np.random.Generator) -> Vocabulary:
    """All bytes, and merges of two to four letters in any order; some tokens by two ways."""
    letters = b"abcd"[: chance.integers(2, 5)]
    tokens: list[bytes | None] = [bytes([byte]) for byte in range(256)]
    known = {token: i for i, token in enumerate(tokens)}
    parts, merges = [bytes([letter]) for letter in letters], []
    for _ in range(chance.integers(4, 60)):
        left, right_part = (parts[chance.integers(len(parts))] for _ in range(2))
        pair, joined = (known[left], known[right_part]), left + right_part
        if pair in merges or len(joined) > 40:
            continue
        if joined not in known:
            known[joined] = len(tokens)
            tokens.append(joined)
            parts.append(joined)
        merges.append(pair)
    order = chance.permutation(len(merges)) if chance.random() < 0.5 else range(len(merges))
    rule = ("none", "gpt2", "llama3")[chance.integers(3)]
    ignore = bool(chance.random() < 0.3)
    model = Bpe(tuple(merges[i] for i in order), ignore_merges=ignore)
    special = SpecialToken("<ab>", len(tokens))
    tokens.append(b"<ab>")
    return Vocabulary(
        tuple(tokens), model, (special,) if chance.random() < 0.3 else (), pretokenizer=rule
    )


@pytest.mark.parametrize("seed", range(60))
def test_random_vocabularies_give_the_ids_of_the_reference(engine, seed):
    chance = np.random.default_rng(seed)
    vocabulary = random_vocabulary(chance)
    sizes = [*range(8), *chance.integers(8, 400, 30).tolist(), 1300]
    letters = "abcd" if chance.random() < 0.7 else "aab b\n1é中<>"
    texts = ["".join(chance.choice([*letters], size)) for size in sizes]
    texts += ["a" * size for size in (15, 16, 17, 63, 64, 65, 129, 700)]
    texts += ["ab" * 40, "abc" * 60, "aab" * 90]
    encoded = engine.encode(vocabulary, Batch(texts, options=EncodeOptions(spans=True)))
    for row, text in enumerate(texts):
        wanted = tokenizer.encode(vocabulary, text)
        assert encoded.row(row).tolist() == wanted.ids, text
    engine.unload(vocabulary.digest)


@pytest.mark.parametrize("in_flight", [1, 2, 3, 8, 33])
def test_any_number_of_chunks_in_flight_gives_the_same_ids(engine, in_flight):
    chance = np.random.default_rng(in_flight)
    words = ["tokens ", "of ", "12345 ", "größe ", "中文字 ", "\n\n  x", "don't "]
    text = "".join(chance.choice(words, 40_000))
    data = np.frombuffer(text.encode(), np.uint8)
    lines = np.flatnonzero(data == ord("\n"))
    offsets = np.unique([0, *chance.choice(lines, 7), len(data)]).astype(np.int64)
    offsets = np.sort(np.append(offsets, [offsets[2], len(data)]))  # Empty rows.
    ids, id_offsets = engine.encode_ids(load("cl100k_base"), data, offsets)
    out = np.full(len(data), -1, np.int32)
    got = encode_stream(
        engine, load("cl100k_base"), data, offsets, out, chunk_bytes=9000, in_flight=in_flight
    )
    assert got.tolist() == id_offsets.tolist()
    assert out[: len(ids)].tolist() == ids.tolist()
    assert (out[len(ids) :] == -1).all()
    narrow = np.zeros(len(data), np.uint16)
    ids, _ = engine.encode_ids(load("gpt2"), data, offsets)
    encode_stream(engine, load("gpt2"), data, offsets, narrow, chunk_bytes=9000)
    assert narrow[: len(ids)].tolist() == ids.tolist()


def num_allocations(engine: GpuEngine) -> tuple[int, ...]:
    return (
        engine.resources.workspaces.num_allocations,
        engine.resources.leases.num_allocations,
        engine.resources.residents.num_evicted,
    )


@pytest.mark.slow
def test_the_steady_state_allocates_nothing(engine, monkeypatch):
    vocabulary = load("gpt2")
    batches = [Batch(["some words " * size]) for size in (1, 100, 3000, 30_000, 400_000)]
    for batch in batches:
        engine.encode(vocabulary, batch)
    skip_under_compute_sanitizer()
    before = num_allocations(engine)
    for name in ("allocate", "allocate_pinned"):
        monkeypatch.setattr(engine.device, name, None)  # Free memory is others' to take, too.
    for batch in batches * 3:
        engine.encode(vocabulary, batch)
    assert num_allocations(engine) == before


def test_threads_get_the_ids_that_one_caller_gets(engine):
    modes = [EncodeOptions(special="match"), EncodeOptions(special="plain", max_length=7)]
    expected_ids = [engine.encode(load("gpt2"), Batch(SOME_TEXTS, options=o)) for o in modes]

    def encode(i: int) -> bool:
        if i in (20, 60):  # Under the others.
            engine.unload(load("gpt2").digest)
        got = engine.encode(load("gpt2"), Batch(SOME_TEXTS, options=modes[i % 2]))
        return got.ids.tolist() == expected_ids[i % 2].ids.tolist()

    if isinstance(engine.device, EmulatedDevice):
        pytest.skip("the emulation runs one kernel at a time")
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(encode, range(100)))


def test_it_works_with_a_hundredth_of_the_memory(device):
    small = GpuEngine(device, 10 * MEGABYTES, 32 * MEGABYTES)
    assert small.resources.workspaces.chunk_sizes(small.pipeline.chunk_bytes)[0] < MEGABYTES
    texts = [*(text * 40 for text in SOME_TEXTS), "word " * 300_000, *["a b"] * 30_000]
    assert sum(map(len, texts)) > MEGABYTES
    vocabulary = load("gpt2")
    for batch in (Batch(texts), Batch.from_bytes([text.encode() for text in texts])):
        encoded = small.encode(vocabulary, batch)
        for row, text in enumerate(texts[: len(SOME_TEXTS)]):
            assert encoded.row(row).tolist() == tokenizer.encode(vocabulary, text).ids
        words = encoded.row(len(SOME_TEXTS)).tolist()
        assert words == [4775] + [1573] * 299_999 + [220]
        assert encoded.ids[-60_000:].tolist() == [64, 275] * 30_000
        counts, _ = small.count(vocabulary, batch)
        assert counts.tolist() == np.diff(encoded.offsets).tolist()
    with pytest.raises(OutOfMemory):
        small.encode(vocabulary, Batch(["中" * 2_000_000]))
    assert small.resources.workspaces.used_bytes <= 10 * MEGABYTES
    skip_under_compute_sanitizer()
    del encoded
    small.close()
    assert small.resources.workspaces.used_bytes == small.resources.leases.used_bytes == 0


FILES = [(name, f) for name in NAMES for f in expected().get(name, {}) if ".fa" not in f]


@pytest.mark.parametrize(("name", "file"), FILES)
@pytest.mark.slow
def test_the_data_files_have_the_hashes_of_the_reference(engine, name, file):
    wanted = expected()[name][file]
    data = np.frombuffer(data_bytes(file), np.uint8)
    if isinstance(engine.device, EmulatedDevice) and len(data) > MEGABYTES:
        pytest.skip("minutes in emulation")
    options = replace(EncodeOptions(), add_special_tokens=False)
    batch = Batch(data=data, offsets=np.array([0, len(data)]), options=options)
    encoded = engine.encode(load(name), batch)
    assert encoded.errors == {}
    assert ids_digest(encoded.ids) == wanted["sha256"]
