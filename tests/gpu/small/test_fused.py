"""Fused kernels: their answers, and which small batches they encode."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest

from gpu.batch.row_options import NOTHING_ADDED, row_options
from gpu.batch.transfer import TAKE_IN_BYTES
from gpu.engine import GpuEngine
from gpu.errors import OutOfMemory
from gpu.host.copy_pool import Copy
from gpu.kernels.families import DNA, TEXT
from gpu.kernels.launch_shape import CLASSES
from gpu.small.call import COPIED_BYTES
from gpu.small.fused import CLUSTER_BYTES, ONE_BLOCK_BYTES
from gpu.streaming import encode_stream
from tests.engines.test_contract import OPTIONS, check
from tests.gpu.large.test_encode import DeviceArray
from tests.support.each_device import new_engine
from tests.support.emulation.device import EmulatedDevice, EmulatedStream, note_launches
from tests.support.gpus.card_class import need_largest_class
from tests.support.inputs.nasty_texts import SEQUENCES, TEXTS
from vocabularies.batch.batch import Batch, EncodeOptions
from vocabularies.builtin import load
from vocabularies.reference import tokenizer

NAMES = ("gpt2", "cl100k_base", "o200k_base")
PARTS = [text for text in [*TEXTS, *SEQUENCES] if len(text) < 80]
PARTS += ["<|endoftext|>", "<|endof", "don't", " 12345678", "\r\n\n ", "größe", "中文字符", "🙂🙃"]
PLAIN = EncodeOptions(add_special_tokens=False)
TEXT_OPTIONS = [
    o for o in OPTIONS if not (o.reverse_complement or o.circular is not None or o.spans)
]


engine_of = functools.cache(new_engine)


@pytest.fixture(params=["by size", "encode_grid"])
def kernel(request, monkeypatch):
    """Choose the kernel of every batch: the one for its size, or always one grid kernel."""
    if request.param != "by size":
        monkeypatch.setattr("gpu.small.fused.fused_kernel", lambda family, size: request.param)
    return request.param


@pytest.fixture
def launches(monkeypatch):
    """The kernels that the emulation ran."""
    return note_launches(monkeypatch)


def random_texts(chance: np.random.Generator, rows: int, size: int) -> list[str]:
    """Rows of about so many characters, some empty."""
    lengths = chance.integers(0, 2 * size, rows)
    return ["".join(chance.choice(PARTS, 1 + size // 8))[:length] for length in lengths]


@pytest.mark.parametrize("seed", range(40))
def test_random_batches_have_the_ids_and_refusals_of_the_reference(engine, kernel, seed):
    chance = np.random.default_rng(seed)
    name, rows = NAMES[seed % 3], int(chance.integers(1, 65))
    texts = random_texts(chance, rows, int(chance.choice([3, 30, 300])))
    options = [TEXT_OPTIONS[i] for i in chance.integers(0, len(TEXT_OPTIONS), rows)]
    if seed % 2:
        options = [TEXT_OPTIONS[seed // 2 % len(TEXT_OPTIONS)]] * rows
    id_dtype = np.uint16 if name == "gpt2" and seed % 4 < 2 else np.int32
    for batch in (
        Batch(texts, options=options),
        Batch.from_bytes([text.encode() for text in texts], options),
    ):
        batch.id_dtype = id_dtype
        check(engine.encode(load(name), batch), name, texts, options, id_dtype)


def test_rows_that_are_not_utf8_are_refused_alone(engine, kernel):
    rows = [b"fine", b"\xff", "größe".encode(), b"ab\xe4\xb8", b"", b"fine too"] * 40
    options = replace(EncodeOptions(), special="refuse")
    encoded = engine.encode(load("gpt2"), Batch.from_bytes(rows, options))
    assert {row: error.code for row, error in encoded.errors.items()} == {
        row: "not_utf8" for row in range(len(rows)) if row % 6 in (1, 3)
    }
    assert encoded.row(6).tolist() == encoded.row(0).tolist() != []
    assert len(encoded.row(1)) == len(encoded.row(3)) == 0


@pytest.mark.parametrize(
    ("rows", "size", "kernel"),
    [
        (1, 1, "encode_block"),
        (1, ONE_BLOCK_BYTES, "encode_block"),
        (1, ONE_BLOCK_BYTES + 1, "encode_cluster"),
        (64, 1000, "encode_cluster"),
        (1, CLUSTER_BYTES, "encode_cluster"),
        (1, CLUSTER_BYTES + 1, "encode_grid"),
        (300, 2000, "encode_grid"),
    ],
)
def test_a_tiny_batch_is_one_launch(launches, rows, size, kernel):
    need_largest_class()
    engine = GpuEngine(EmulatedDevice(), 1 << 28)
    texts = [("some words and 12 more, " * 6000)[:size]] * rows
    encoded = engine.encode(load("gpt2"), Batch(texts))
    assert launches == [kernel]
    check(encoded, "gpt2", texts, [EncodeOptions()] * rows)


def test_a_tile_whose_last_piece_has_more_ids_than_bytes_are_left(engine, kernel):
    """Ids of a byte each, and at the tile's last byte a piece of 128 of them."""
    text = "a1" * 2047 + "a" + "\x01" * 128 + "a1" * 3000
    for id_dtype in (np.int32, np.uint16):
        for texts in ([text], [text[:4000], text[4000:], text]):
            encoded = engine.encode(load("gpt2"), Batch(texts, id_dtype=id_dtype))
            check(encoded, "gpt2", texts, [EncodeOptions()] * len(texts), id_dtype)
            assert len(encoded.ids) == len("".join(texts))


@pytest.mark.parametrize("hard", ["ab" * 200, "=" * 3000, "1234567890" * 2000, "x" * 9000], ids=len)
@pytest.mark.parametrize("name", NAMES)
def test_where_a_long_run_or_piece_is_found_all_kernels_run(launches, name, hard):
    need_largest_class()
    engine = GpuEngine(EmulatedDevice(), 1 << 28)
    texts = ["before ", hard, " behind"]
    for _ in range(2):
        encoded = engine.encode(load(name), Batch(texts))
        check(encoded, name, texts, [EncodeOptions()] * 3)
    assert launches[0].startswith("encode_")
    assert launches[1] == "load_batch"


@pytest.mark.parametrize("validates", [False, True])
@pytest.mark.parametrize(
    ("hard", "goes_on_from"),
    [
        ("ab" * 200, "windows"),
        ("x" * 9000, "windows"),
        ("1234567890" * 2000, "pretokenize"),
        (" " * 3000 + "x" * 500, "windows"),
    ],
    ids=["letters", "one piece", "digits", "both"],
)
@pytest.mark.parametrize("name", NAMES)
def test_other_kernels_go_on_from_where_a_grid_stops(
    launches, monkeypatch, name, hard, goes_on_from, validates
):
    monkeypatch.setattr("gpu.small.fused.fused_kernel", lambda family, size: "encode_grid")
    engine = GpuEngine(EmulatedDevice(), 1 << 28)
    texts = ["before <|endoftext|> 北京", hard, " behind", "no such thing"]
    for options in (EncodeOptions(), EncodeOptions(max_length=40), EncodeOptions(special="refuse")):
        batch = Batch(texts, options=options)
        if validates:
            batch = Batch.from_bytes([text.encode() for text in texts], options)
        check(engine.encode(load(name), batch), name, texts, [options] * 4)
    assert launches[0] == "encode_grid"
    assert "load_batch" not in launches
    assert launches[1] == ("windows" if name == "gpt2" else goes_on_from)  # It marks nothing.


@pytest.mark.parametrize("name", ["gpt2", "dnabert2", "hyenadna"])
@pytest.mark.slow
def test_ids_are_as_narrow_as_is_asked_in_the_workspace_and_leased(engine, name):
    vocabulary = load(name)
    text = "ACGTTGCANA" if name != "gpt2" else "größe and 12 more, "
    widths = [np.int32, np.uint16] + [np.uint8] * (len(vocabulary) <= 256)
    for size in (300, COPIED_BYTES + 1):
        texts = [(text * (size // len(text) + 1))[:size], "", text]
        for id_dtype in widths:
            encoded = engine.encode(vocabulary, Batch(texts, id_dtype=id_dtype))
            check(encoded, name, texts, [EncodeOptions()] * 3, id_dtype)
            assert engine.device.is_pinned(encoded.ids) == (size > COPIED_BYTES)


@pytest.mark.parametrize("begin", [0, 1, 16])
@pytest.mark.parametrize("size", [CLUSTER_BYTES + 1, TAKE_IN_BYTES + 1])
@pytest.mark.slow
def test_a_grid_has_pinned_text_from_where_it_lies(engine, monkeypatch, size, begin):
    """It reads it there, unless it is not aligned; where it is long, the device copies it."""
    staged: list[int] = []
    start = engine.resources.staging.start

    def noted(target: np.ndarray, source: np.ndarray) -> Copy:
        staged.append(len(source))
        return start(target, source)

    monkeypatch.setattr(engine.resources.staging, "start", noted)
    text = "some words, größe and 12 more, ".encode() * (size // 33 + 1)
    text = text[: size - 1].decode(errors="ignore").encode().ljust(size, b".")
    pinned = engine.host_memory(begin + size)
    pinned[begin:] = np.frombuffer(text, np.uint8)
    offsets = np.array([0, 1000, 1000, size])
    for data in (pinned[begin:], np.frombuffer(text, np.uint8)):
        for _ in range(2):
            encoded = engine.encode(load("gpt2"), Batch(data=data, offsets=offsets))
            texts = [text[:1000].decode(), "", text[1000:].decode()]
            check(encoded, "gpt2", texts, [EncodeOptions()] * 3)
        copied = engine.device.is_pinned(data) and (begin % 16 == 0 or size > TAKE_IN_BYTES)
        assert staged == ([] if copied else 2 * [size])
        staged.clear()


@pytest.mark.parametrize("limits", [CLASSES[64], CLASSES[99], CLASSES[163]], ids=str)
def test_a_device_without_clusters_encodes_in_one_block_or_a_grid(launches, limits):
    engine = GpuEngine(EmulatedDevice(limits=limits), 1 << 28)
    for size, first in ((ONE_BLOCK_BYTES, "encode_block"), (ONE_BLOCK_BYTES + 1, "encode_grid")):
        text = ("some words and 12 more, " * 6000)[:size]
        check(engine.encode(load("gpt2"), Batch([text])), "gpt2", [text], [EncodeOptions()])
        assert launches[0] == first
        launches.clear()


def test_calls_of_all_kinds_follow_each_other_in_one_workspace(engine):
    texts = ["It's unzipped", "<|endoftext|>", "北京 now"]
    for turn in range(12):
        name, options = NAMES[turn % 3], TEXT_OPTIONS[turn % len(TEXT_OPTIONS)]
        encoded = engine.encode(load(name), Batch(texts, options=options))
        check(encoded, name, texts, [options] * 3)
        ids = engine.encode(load(name), Batch(texts))
        data, _, errors = engine.decode(load(name), ids.ids.astype(np.int64), ids.offsets, False)
        assert (data.tobytes().decode(), errors) == ("".join(texts), {})
        counts, _ = engine.count(load(name), Batch(texts, options=options))
        assert counts.tolist() == np.diff(encoded.offsets).tolist()


@pytest.mark.slow
def test_a_small_stream_is_one_launch(launches):
    """To any memory, also with room for no more than the ids, or where others follow a grid."""
    need_largest_class()
    engine = GpuEngine(EmulatedDevice(), 1 << 28)
    hard = "x" * 9000
    for name, texts in (
        ("gpt2", ["It's unzipped", "", "北京 now" * 500]),
        ("cl100k_base", ["before", hard, "a <|endoftext|> b " + "some words " * 12_000]),
        ("dnabert2", ["ACGT" * 300, "", "ACGNNACGTTA", "A" * 700]),
    ):
        batch, seen = Batch(texts), set[str]()
        wanted = [i for text in texts for i in tokenizer.encode(load(name), text, PLAIN).ids]
        for kind in ("<i4", "<u2"):
            if len(load(name)) >> 16 and kind == "<u2":
                continue
            there = DeviceArray(engine.device, len(batch.data), kind)
            here = engine.device.allocate_pinned(np.dtype(kind).itemsize * len(batch.data))
            here = here.view(kind)
            just_enough = here[: len(wanted)], np.zeros(len(wanted), kind)
            for out in (there, here, np.zeros_like(here), *just_enough):
                launches.clear()
                here[:] = 7
                offsets = encode_stream(engine, load(name), batch.data, batch.offsets, out)
                ids = there.values(engine.device) if out is there else out
                assert ids[: offsets[-1]].tolist() == wanted
                assert (here[len(wanted) :] == 7).all()
                assert launches[0].startswith("encode_")
                seen.update(launches)  # What is recorded is not seen again.
        assert ("windows" in seen) == (hard in texts)
        # The next answer goes to the host again.
        check(engine.encode(load(name), Batch(texts)), name, texts, [EncodeOptions()] * len(texts))


def test_a_small_stream_without_room_for_its_ids_is_refused(engine):
    batch = Batch(["It's unzipped, and long enough. " * 2000])
    num_ids = len(engine.encode_ids(load("gpt2"), batch.data, batch.offsets)[0])
    pinned = engine.device.allocate_pinned(2 * num_ids).view(np.uint16)
    for out in (np.full(num_ids, 7, np.uint16), pinned):
        out[-1] = 7
        with pytest.raises(ValueError, match=f"out is too small: {2 * num_ids - 2} bytes"):
            encode_stream(engine, load("gpt2"), batch.data, batch.offsets, out[:-1])
        assert out[-1] == 7


def test_a_small_stream_without_a_workspace_of_its_size_goes_in_chunks(engine, monkeypatch):
    batch, taken = Batch(["some words and 12 more, " * 6000]), []
    wanted, _ = engine.encode_ids(load("gpt2"), batch.data, batch.offsets)

    def take(num_bytes: int, *arguments: object) -> object:
        taken.append(num_bytes)
        if len(taken) == 1:
            raise OutOfMemory("a test")
        return own(num_bytes, *arguments)

    own = engine.resources.workspaces.take
    monkeypatch.setattr(engine.resources.workspaces, "take", take)
    out = np.zeros(len(batch.data), np.int32)
    ends = encode_stream(engine, load("gpt2"), batch.data, batch.offsets, out)
    assert out[: ends[-1]].tolist() == wanted.tolist()
    assert len(taken) == 2


@pytest.mark.parametrize("name", ["gpt2", "dnabert2"])
def test_a_small_batch_of_bytes_is_one_launch(launches, name):
    need_largest_class()
    engine = GpuEngine(EmulatedDevice(), 1 << 28)
    batch = Batch(["ACGT" * 30, "", "ACGNNACGTTA"], options=PLAIN)
    ids, offsets = engine.encode_ids(load(name), batch.data, batch.offsets)
    assert (len(launches), ids.dtype) == (1, np.int32)
    encoded = engine.encode(load(name), batch)
    assert (ids.tolist(), offsets.tolist()) == (encoded.ids.tolist(), encoded.offsets.tolist())


def test_without_begin_and_end_tokens_nothing_is_said_of_each_row():
    """Where the vocabulary has none; else a row that is counted is post_processed."""
    batch = Batch(["a", "b"], options=PLAIN)
    assert row_options(load("gpt2"), batch, TEXT) is NOTHING_ADDED
    assert len(row_options(load("dnabert2"), batch, DNA).flags) == 2


HARD = {
    "letters": "ab" * 300,
    "digits": "1234567890" * 2000,
    "plain": "some words and 12 more, " * 40,
}


@pytest.fixture
def grid(monkeypatch):
    """An engine that has a grid for every batch; the kernels it ran, and "wait" for each wait."""
    monkeypatch.setattr("gpu.small.fused.fused_kernel", lambda family, size: "encode_grid")
    seen = note_launches(monkeypatch)
    monkeypatch.setattr(EmulatedStream, "synchronize", lambda stream: seen.append("wait"))
    engine = GpuEngine(EmulatedDevice(), 1 << 28)
    engine.load(load("cl100k_base"))
    return engine, seen


@pytest.mark.parametrize(
    ("hard", "goes_on_from"), [("letters", "windows"), ("digits", "pretokenize")]
)
def test_fallback_of_the_last_batch_is_queued_behind_the_next_grid(grid, hard, goes_on_from):
    engine, seen = grid
    texts = ["before <|endoftext|> 北京", HARD[hard], ""]
    for waits in (2, 1, 1):
        seen.clear()
        encoded = engine.encode(load("cl100k_base"), Batch(texts))
        check(encoded, "cl100k_base", texts, [EncodeOptions()] * 3)
        kernels = [name for name in seen if name != "wait"]
        assert kernels[:2] == ["encode_grid", goes_on_from]
        assert (kernels[-1], seen[-1], seen.count("wait")) == ("compact_to_host", "wait", waits)


def test_a_batch_of_another_kind_than_the_last_one_is_right_and_the_next_one_is_as_fast(grid):
    engine, seen = grid
    for kind, wanted in (
        ("letters", ["encode_grid", "windows"]),
        ("plain", ["encode_grid", "windows"]),  # All the same, and nothing is there to cut.
        ("plain", ["encode_grid", "wait"]),
        ("letters", ["encode_grid", "wait", "windows"]),
        ("digits", ["encode_grid", "windows", "load_batch"]),  # Whose starts were wrong.
        ("letters", ["encode_grid", "pretokenize"]),
        ("letters", ["encode_grid", "windows"]),
        ("digits", ["encode_grid", "windows", "load_batch"]),
        ("plain", ["encode_grid", "pretokenize"]),
        ("plain", ["encode_grid", "wait"]),
    ):
        texts = ["größe", HARD[kind], " behind"]
        options = EncodeOptions(max_length=90) if kind == "plain" else EncodeOptions()
        seen.clear()
        encoded = engine.encode(load("cl100k_base"), Batch(texts, options=options))
        check(encoded, "cl100k_base", texts, [options] * 3)
        assert [name for name in seen if name in wanted][: len(wanted)] == wanted, (kind, seen)
        assert ("windows" in seen) == ("wait" != wanted[-1])
