"""The layer embeds every row once and in order, on every path and after every failure."""

from __future__ import annotations

import functools
import itertools
import json
import logging
import mmap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.inputs.sequence_strategies import (
    SEQUENCES,
    character_vocabularies,
    kmer_vocabularies,
)
from tests.support.torch_or_skip import torch_or_skip
from vocabularies.batch.batch import Batch, EncodeOptions, RowRefused
from vocabularies.builtin import load
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference import tokenizer

pytestmark = pytest.mark.torch
torch = torch_or_skip()
from benchmarks.dna import embedding as benchmark  # noqa: E402
from gpu.embedding.layer import EmbeddingLayer, Part  # noqa: E402
from gpu.embedding.lookup.kernel_lookup import KernelLookUp  # noqa: E402
from gpu.embedding.lookup.torch_lookup import TorchLookUp  # noqa: E402
from gpu.embedding.row_layout import RowLayout  # noqa: E402
from gpu.embedding.sequence_ids import SequenceIds  # noqa: E402
from gpu.embedding.tokenizer_discovery import Discovery, discover  # noqa: E402
from gpu.embedding.upstream_tokenizer import SequenceRefused  # noqa: E402

CUDA = pytest.param("cuda", marks=pytest.mark.gpu)
DEVICES = pytest.mark.parametrize("device", ["cpu", CUDA])
FAMILIES = [
    "hyenadna",
    "caduceus",
    "gpn",
    "evo_bytes",
    "ntv3",
    "nt_v1",
    "nt_v2",
    "mtdna6",
    "dnabert1_3mer",
    "dnabert1_6mer",
]
LETTERS = np.frombuffer(b"ACGTN", np.uint8)
COUNTS = [1, 2, 3, 4, 5, 33]  # Micro-batches: DNATok's own are right up to two.


@functools.cache
def discovered(name: str) -> Discovery:
    """What `discover` finds; once, since the reference encodes for a second until it is proved."""
    return discover(load(name))


def ids_of(vocabulary: Vocabulary, text: str) -> list[int]:
    return tokenizer.encode(vocabulary, text, EncodeOptions(add_special_tokens=False)).ids


def padded(rows: list[list[int]], pad_id: int, width: int = 0) -> list[list[int]]:
    width = max(width, *map(len, rows), 0)
    return [[pad_id] * (width - len(row)) + row for row in rows]


def sequences(num_rows: int, length: int, alphabet: str = "ACGTN", seed: int = 0) -> list[str]:
    letters = np.random.default_rng(seed).choice(list(alphabet), (num_rows, length))
    return ["".join(row) for row in letters]


def check(parts: list[Part], expected: list[list[int]], weight: Any, pad_id: int = 0) -> None:
    """Check that every row comes once, in order, with its ids, padding and embeddings."""
    assert [0, *(part.end for part in parts)] == [*(part.begin for part in parts), len(expected)]
    for part in parts:
        rows = expected[part.begin : part.end]
        assert part.ids.shape[0] == len(rows)
        assert part.ids.tolist() == padded(rows, pad_id, part.ids.shape[1])
        assert torch.equal(part.activations, weight[part.ids.long()])


def embedding(num_ids: int = 5000, width: int = 4, device: str = "cpu") -> Any:
    return torch.nn.Embedding(num_ids, width, device=device).requires_grad_(False)


@DEVICES
@pytest.mark.parametrize("num_parts", COUNTS)
@pytest.mark.parametrize("path", ["ids", "bytes", "auto"])
def test_every_number_of_micro_batches(device: str, num_parts: int, path: Any) -> None:
    vocabulary, texts = load("hyenadna"), sequences(3 * num_parts - 1, 16)
    embed = embedding(device=device)
    layer = EmbeddingLayer(embed, discovered("hyenadna"), device=device, max_ids=3 * 16)
    parts = list(layer.embed_from_strings(texts, path))
    assert len(parts) == num_parts
    check(parts, [ids_of(vocabulary, text) for text in texts], embed.weight)


@DEVICES
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("path", ["ids", "bytes"])
@pytest.mark.parametrize("staging", ["int32", "int64"])
def test_every_family_with_ragged_rows(device: str, name: str, path: Any, staging: str) -> None:
    """Rows that the tables know, rows that only the reference knows, and empty ones."""
    vocabulary, embed = load(name), embedding(device=device)
    texts = [row[:length] for row, length in zip(sequences(24, 40), range(40, 0, -1), strict=False)]
    texts += ["", "ACGTNacgtN", "ACGTRYKM", "acgt", "A", "", "GATTACA" * 9, "é A[MASK]C", ""]
    layer = EmbeddingLayer(
        embed,
        discovery := discovered(name),
        device=device,
        max_ids=100,
        staging_dtype=getattr(torch, staging),
    )
    if name.startswith("dnabert"):
        texts = [text.replace(" ", "") for text in texts]  # A blank means k-mers that are apart.
    parts = list(layer.embed_from_strings(texts, path))
    check(parts, [ids_of(vocabulary, text) for text in texts], embed.weight, discovery.pad_id)
    assert all(part.reason == "" and part.path.startswith(path) for part in parts)
    assert (sum(part.num_upstream for part in parts) == 0) == discovery.rule.is_total
    whole = layer.ids_from_strings(texts, path)
    assert whole.tolist() == padded([ids_of(vocabulary, text) for text in texts], discovery.pad_id)


@settings(max_examples=60)
@given(
    name=st.sampled_from(FAMILIES[:8]),
    texts=st.lists(st.text("ACGTNacgtnRéß [", max_size=30), max_size=12),
    max_ids=st.integers(1, 200),
    max_rows=st.integers(1, 5) | st.none(),
    token_len=st.integers(1, 40) | st.none(),
    path=st.sampled_from(["ids", "bytes"]),
)
def test_random_rows(
    name: str,
    texts: list[str],
    max_ids: int,
    max_rows: int | None,
    token_len: int | None,
    path: Any,
) -> None:
    vocabulary, embed = load(name), embedding()
    layer = EmbeddingLayer(
        embed,
        discovery := replace(discovered(name), token_len=token_len),
        device="cpu",
        max_ids=max_ids,
        max_rows=max_rows,
    )
    parts = list(layer.embed_from_strings(texts, path))
    if not texts:
        assert parts == []
        return
    check(parts, [ids_of(vocabulary, text) for text in texts], embed.weight, discovery.pad_id)
    for part in parts:
        assert part.ids.shape[1] >= (token_len or 0)
        assert part.end - part.begin <= (max_rows or len(texts))
        assert part.ids.numel() <= max_ids or part.end - part.begin == 1


@settings(max_examples=16)
@given(
    vocabulary=kmer_vocabularies() | character_vocabularies(),
    texts=st.lists(SEQUENCES, min_size=1, max_size=6),
    path=st.sampled_from(["ids", "bytes"]),
    max_ids=st.integers(1, 100),
)
def test_random_vocabularies(
    vocabulary: Vocabulary, texts: list[str], path: Any, max_ids: int
) -> None:
    expected, refused = [], []
    for row, text in enumerate(texts):
        try:
            expected.append(ids_of(vocabulary, text))
        except RowRefused:
            refused.append(row)
    embed = embedding(max(5000, len(vocabulary)))
    layer = EmbeddingLayer(embed, discover(vocabulary), device="cpu", max_ids=max_ids)
    if refused:
        with pytest.raises(SequenceRefused) as error:
            list(layer.embed_from_strings(texts, path))
        assert error.value.row == refused[0]
    else:
        check(list(layer.embed_from_strings(texts, path)), expected, embed.weight)


def test_micro_batches_are_as_algorithm_2_says() -> None:
    """b = min(B_emb, max(1, M // T')), T' the length or the token length above it."""
    discovery = replace(discovered("hyenadna"), token_len=64)
    for max_ids, max_rows, size in ((640, None, 10), (640, 3, 3), (63, None, 1)):
        layer = EmbeddingLayer(
            embedding(), discovery, device="cpu", max_ids=max_ids, max_rows=max_rows
        )
        parts = list(layer.embed_from_strings(sequences(20, 50)))
        assert {part.end - part.begin for part in parts[:-1]} == {size}
        assert {part.ids.shape[1] for part in parts} == {64}
        assert (parts[0].ids[:, :14] == 4).all()  # The padding of HyenaDNA.


@DEVICES
def test_every_form_of_input_gives_the_same(device: str, tmp_path: Path) -> None:
    texts = sequences(9, 20)
    rows = [text.encode() for text in texts]
    file = tmp_path / "rows"
    file.write_bytes(b"".join(rows))
    offsets = np.arange(10) * 20
    layer = EmbeddingLayer(lambda ids: ids, discovered("ntv3"), device=device, max_ids=50)
    expected = layer.ids_from_strings(texts).tolist()
    with file.open("rb") as opened:
        mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    forms = [
        texts,
        tuple(rows),
        Batch(texts),
        Batch.from_bytes(rows),
        (b"".join(rows), offsets),
        pa.array(texts),
        pa.array(rows, pa.large_binary()),
        pa.chunked_array([pa.array(texts[:4]), pa.array(texts[4:])]),
        (mapped, offsets),
        np.memmap(file, np.uint8, "r").reshape(9, 20),
        np.array(texts),
        np.array(rows),
        torch.from_numpy(np.fromfile(file, np.uint8).reshape(9, 20)),
        tuple(torch.from_numpy(array) for array in (np.fromfile(file, np.uint8), offsets)),
        [memoryview(row.replace(b"", b".")[1:])[::2] for row in rows],
        [np.frombuffer(row, "<u4").data for row in rows],
    ]
    for form in forms:
        for path in ("bytes", "ids"):
            parts = list(layer.embed_from_strings(form, path))
            assert [ids for part in parts for ids in part.ids.tolist()] == expected, type(form)
    assert layer.ids_from_strings(pa.array(texts)[2:7]).tolist() == expected[2:7]
    assert layer.ids_from_strings(pa.array([], pa.string())).tolist() == []
    for kind in (bytes, bytearray, memoryview):
        assert layer.ids_from_strings(tuple(map(kind, rows[:2]))).tolist() == expected[:2]


def test_sequences_that_are_none_are_named() -> None:
    layer = EmbeddingLayer(embedding(), discovered("ntv3"), device="cpu")
    wrong: list[tuple[Any, type[Exception], str]] = [
        ("ACGT", TypeError, "one sequence"),
        (["A", b"C"], TypeError, "row 1 is a bytes"),
        ([1, 2], TypeError, "row 0 is a int"),
        (7, TypeError, "int is not a supported type"),
        (np.array("ACGT"), TypeError, "ndarray is not a supported type"),
        ((b"ACGT", [0, 3, 2]), ValueError, "row 1 ends"),
        ((b"ACGT", [0, 5]), ValueError, "0 to 5, not from 0 to 4"),
        ((b"ACGT", [0.0, 4.0]), TypeError, "float64"),
        (np.zeros((2, 2)), TypeError, "float64"),
        (torch.zeros((2, 2)), TypeError, "float32"),
        (["A", "\ud800"], ValueError, r"surrogates not allowed \(row 1\)"),
        (pa.array(["A", None]), ValueError, "row 1 is null"),
        (pa.array([1]), TypeError, "Arrow array has the type int64"),
        (Batch(["A"], options=EncodeOptions(reverse_complement=True)), ValueError, "options"),
    ]
    for sequences_, error, message in wrong:
        with pytest.raises(error, match=message):
            layer.embed_from_strings(sequences_)
    with pytest.raises(ValueError, match="must be auto, ids or bytes"):
        layer.embed_from_strings(["A"], "fast")  # type: ignore[arg-type]


def test_a_row_that_upstream_refuses_is_named_by_its_number() -> None:
    layer = EmbeddingLayer(embedding(), discovered("ntv3"), device="cpu", max_rows=2)
    parts = layer.embed_from_strings([*[b"AC"] * 9, b"A\xff"])
    assert [next(parts).end for _ in range(4)] == [2, 4, 6, 8]  # Looked up before the bad row.
    with pytest.raises(SequenceRefused, match=r"row 9: .*UTF-8") as refused:
        next(parts)
    assert refused.value.row == 9


def test_ids_beyond_the_embedder_are_refused_before_a_device_sees_them() -> None:
    with pytest.raises(ValueError, match="has 11 rows, but an id is 11"):
        EmbeddingLayer(embedding(11), discovered("hyenadna"), device="cpu")

    class Large:
        def encode(self, text: str) -> list[int]:
            return [ord(letter) for letter in text]

    layer = EmbeddingLayer(embedding(128), discover(Large()), device="cpu")
    with pytest.raises(ValueError, match="has 128 rows, but an id is 233"):
        list(layer.embed_from_strings(["é"]))


@DEVICES
def test_ids_go_to_other_libraries_without_a_copy(device: str) -> None:
    layer = EmbeddingLayer(embedding(device=device), discovered("ntv3"), device=device)
    ids = layer.ids_from_strings(["ACGT", "TT"])
    if device == "cpu":
        other = np.from_dlpack(ids)
        assert other.ctypes.data == ids.data_ptr()
        assert other.tolist() == [[6, 8, 9, 7], [1, 1, 7, 7]]
    else:
        cupy = pytest.importorskip("cupy")
        assert cupy.from_dlpack(ids).data.ptr == ids.data_ptr()


class Fussy:
    """An embedder that refuses more than so many rows, or fails at chosen calls."""

    def __init__(self, weight: Any, most: int, message: str, fails: tuple[int, ...] = ()) -> None:
        self.weight = weight
        self.most = most
        self.message = message
        self.fails = fails
        self.num_calls = 0

    def __call__(self, ids: Any) -> Any:
        self.num_calls += 1
        if len(ids) > self.most or self.num_calls in self.fails:
            raise RuntimeError(self.message)
        return self.weight[ids.long()]


MESSAGES = [
    "CUDA out of memory. Tried to allocate 2.00 GiB",
    "Expected canUse32BitIndexMath(input) && canUse32BitIndexMath(output) to be true",
    "conv1d index overflow",
    "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory",
]


@DEVICES
@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize("path", ["ids", "bytes"])
def test_micro_batches_are_halved_until_the_embedder_bears_them(
    device: str, message: str, path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    vocabulary, texts = load("hyenadna"), sequences(50, 8)
    embed = Fussy(embedding(device=device).weight, 3, message)
    layer = EmbeddingLayer(embed, discovered("hyenadna"), device=device, max_rows=16)
    with caplog.at_level(logging.WARNING):
        parts = list(layer.embed_from_strings(texts, path))
    check(parts, [ids_of(vocabulary, text) for text in texts], embed.weight)
    assert max(part.end - part.begin for part in parts) == 2  # 16, 8, 4, 2.
    assert caplog.text.count("too many at once") == 3
    assert {part.reason for part in parts} == {""}


@DEVICES
@pytest.mark.parametrize("path", ["ids", "bytes"])
def test_micro_batches_are_halved_until_their_look_up_fits(
    device: str, path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The embedder bears all rows; memory for the ids of so many is not there."""
    vocabulary, texts = load("hyenadna"), sequences(50, 8)
    embed = embedding(device=device)
    layer = EmbeddingLayer(lambda ids: embed.weight[ids], discovered("hyenadna"), device=device)
    look_up = layer._sequence_ids.look_up

    def fussy(batch: Batch, *way: Any) -> Any:
        if len(batch) > 7:
            raise RuntimeError(MESSAGES[0])
        return look_up(batch, *way)

    monkeypatch.setattr(layer._sequence_ids, "look_up", fussy)
    parts = list(layer.embed_from_strings(texts, path))
    check(parts, [ids_of(vocabulary, text) for text in texts], embed.weight)
    assert {part.reason for part in parts} == {""}
    assert {part.num_upstream for part in parts} == {0}


def test_one_row_that_is_too_large_is_an_error() -> None:
    embed = Fussy(None, 0, MESSAGES[0])
    layer = EmbeddingLayer(embed, discovered("hyenadna"), device="cpu")
    with pytest.raises(RuntimeError, match="out of memory"):
        list(layer.embed_from_strings(sequences(4, 8)))


@DEVICES
@pytest.mark.parametrize("failing", [1, 2, 3, 7])
def test_a_failing_call_leaves_out_no_row_and_gives_none_twice(
    device: str, failing: int, caplog: pytest.LogCaptureFixture
) -> None:
    vocabulary, texts = load("hyenadna"), sequences(20, 8)
    embed = Fussy(embedding(device=device).weight, 99, "something else", (failing,))
    layer = EmbeddingLayer(embed, discovered("hyenadna"), device=device, max_rows=3)
    parts = list(layer.embed_from_strings(texts, "bytes"))
    check(parts, [ids_of(vocabulary, text) for text in texts], embed.weight)
    first, second = ("bytes, pipelined", "bytes") if device == "cuda" else ("bytes", "ids")
    reason = f"{first} stopped at row {3 * (failing - 1)}: something else"
    expected = [(first, "")] * (failing - 1) + [(second, reason)] * (7 - failing + 1)
    assert [(part.path, part.reason) for part in parts] == expected
    assert f"{reason}; going on with {second}" in caplog.text


@DEVICES
def test_look_ups_that_fail_end_with_the_upstream_tokenizer(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    vocabulary, texts = load("nt_v2"), sequences(20, 13)
    num_calls = itertools.count(1)

    def fails_later(real: Callable[..., Any]) -> Callable[..., Any]:
        def look_up(self: Any, *arguments: Any) -> Any:
            if next(num_calls) > 1:
                raise RuntimeError("the look-up broke")
            return real(self, *arguments)

        return look_up

    for kind in (TorchLookUp, KernelLookUp):
        monkeypatch.setattr(kind, "__call__", fails_later(kind.__call__))
    embed = embedding(device=device)
    layer = EmbeddingLayer(embed, discovered("nt_v2"), device=device, max_rows=3)
    parts = list(layer.embed_from_strings(texts, "bytes"))
    check(parts, [ids_of(vocabulary, text) for text in texts], embed.weight, 1)
    assert {part.path for part in parts if part.begin >= 12} == {"upstream"}
    assert parts[-1].reason == "ids stopped at row 12: the look-up broke"
    assert sum(part.num_upstream for part in parts if part.begin >= 12) == 8


def test_a_tokenizer_without_a_rule_gives_all_ids(caplog: pytest.LogCaptureFixture) -> None:
    vocabulary, texts = load("dnabert2"), ["ACGTACGTTT", "", "GATTACA", "TTNTT"]
    discovery = discovered("dnabert2")
    assert "a model of kind bpe has no id for each letter" in caplog.text
    layer = EmbeddingLayer(embed := embedding(), discovery, device="cpu", max_rows=3)
    parts = list(layer.embed_from_strings(texts))
    check(parts, [ids_of(vocabulary, text) for text in texts], embed.weight, 3)
    assert [(part.path, part.num_upstream) for part in parts] == [("upstream", 3), ("upstream", 1)]


def test_an_embedder_without_a_tokenizer_has_the_fixed_table() -> None:
    class Embedder:
        pad_token_id = 9
        max_length = 6

        def embed_tokens(self, ids: Any) -> Any:
            return ids

    embedder = Embedder()
    discovery = discover(embedder, token_len="max")
    layer = EmbeddingLayer(embedder.embed_tokens, discovery, device="cpu")
    (part,) = layer.embed_from_strings(["ACGTN", "acgtn", "AxT"])
    assert part.ids.tolist() == [[9, 1, 2, 3, 4, 0], [9, 1, 2, 3, 4, 0], [9, 9, 9, 1, 0, 4]]


def test_an_iterator_that_is_left_does_not_disturb_the_next() -> None:
    vocabulary, texts = load("hyenadna"), sequences(20, 8)
    layer = EmbeddingLayer(embed := embedding(), discovered("hyenadna"), device="cpu", max_rows=3)
    left = layer.embed_from_strings(texts)
    next(left)
    pairs = zip(layer.embed_from_strings(texts), layer.embed_from_strings(texts), strict=True)
    first, second = map(list, zip(*pairs, strict=True))
    expected = [ids_of(vocabulary, text) for text in texts]
    check(first, expected, embed.weight)
    check(second, expected, embed.weight)
    check([*left][-1:] and first, expected, embed.weight)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_ids_have_the_dtype_that_was_asked_for(dtype: str) -> None:
    ids_dtype = getattr(torch, dtype)
    layer = EmbeddingLayer(lambda ids: ids, discovered("ntv3"), device="cpu", ids_dtype=ids_dtype)
    for text in ("ACGT", "é"):
        for path in ("ids", "bytes"):
            assert layer.ids_from_strings([text], path).dtype == ids_dtype
    with pytest.raises(ValueError, match="int32 or int64"):
        SequenceIds(discovered("ntv3"), RowLayout(1), layer.device, torch.int16, torch.int32, None)


def test_the_limits_are_checked() -> None:
    discovery: Discovery = discovered("ntv3")
    for limits in ({"max_ids": 0}, {"max_rows": 0}):
        with pytest.raises(ValueError, match="must be at least 1"):
            EmbeddingLayer(embedding(), discovery, device="cpu", **limits)
    with pytest.raises(ValueError, match="token_len is 0"):
        discover(load("ntv3"), token_len=0)


@pytest.mark.slow
def test_the_benchmark_proves_and_times_every_path(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    benchmark.main(["--quick", "--device", "cpu", "--rounds", "1", "--out", str(out)])
    rows = json.loads(out.read_text())["rows"]
    assert len(rows) == 2 * 12
    assert all(row["alone"]["median_s"] > 0 for row in rows)


@pytest.mark.gpu
@pytest.mark.parametrize("num_parts", COUNTS)
@pytest.mark.parametrize("path", ["ids", "bytes"])
@pytest.mark.parametrize("slow", ["embedder", "copies"])
def test_streams_that_run_far_apart_mix_no_rows(num_parts: int, path: Any, slow: str) -> None:
    """A stream that lags behind by far more than a micro-batch shows memory used again too early.

    The parts' own ids are kept and compared at the very end, when all of it has been reused.
    """
    vocabulary, texts = load("hyenadna"), sequences(64 * num_parts, 512, seed=num_parts)
    expected = torch.tensor([ids_of(vocabulary, text) for text in texts])
    embed = embedding(device="cuda")

    def slowly(ids: Any) -> Any:
        if slow == "embedder":
            torch.cuda._sleep(20_000_000)
        return embed.weight[ids]

    layer = EmbeddingLayer(slowly, discovered("hyenadna"), device="cuda", max_rows=64)
    for _ in range(2):
        parts = []
        for part in layer.embed_from_strings(texts, path):
            if slow == "copies":
                with torch.cuda.stream(layer._side_stream):
                    torch.cuda._sleep(20_000_000)
            parts.append(part)
        assert len(parts) == num_parts
        assert all(part.path == f"{path}, pipelined" and part.reason == "" for part in parts)
        assert torch.equal(torch.cat([part.ids for part in parts]).cpu(), expected)
        activations = torch.cat([part.activations for part in parts])
        assert torch.equal(activations, embed.weight[expected.cuda()])


@pytest.mark.gpu
@pytest.mark.parametrize("form", ["pinned", "ordinary", "list"])
@pytest.mark.parametrize("num_parts", COUNTS)
def test_letters_are_read_before_their_part_is_given_out(num_parts: int, form: str) -> None:
    """The caller may then change its text, and use the parts on any stream."""
    discovery, embed = discovered("hyenadna"), embedding(width=128, device="cuda")
    matrix = np.random.default_rng(num_parts).choice(LETTERS, (256 * num_parts, 512))
    expected = torch.from_numpy(discovery.rule.codes[matrix].astype(np.int64)).cuda()
    if form == "pinned":
        matrix = torch.from_numpy(matrix).pin_memory().numpy()
    rows = [row.tobytes().decode() for row in matrix] if form == "list" else matrix
    layer = EmbeddingLayer(embed, discovery, device="cuda", max_rows=256)
    torch.cuda.synchronize()
    parts = []
    for part in layer.embed_from_strings(rows, "bytes"):
        matrix[part.begin : part.end] = ord("N")
        parts.append(part)
    assert [part.path for part in parts] == ["bytes, at once"] * num_parts
    with torch.cuda.stream(torch.cuda.Stream()):
        assert torch.equal(torch.cat([part.ids for part in parts]), expected)
        activations = torch.cat([part.activations for part in parts])
        assert torch.equal(activations, embed.weight[expected])


@pytest.mark.gpu
def test_a_call_beside_other_work_does_not_wait_for_it() -> None:
    """Its look-ups run on the side stream, and the first part comes while the others wait."""
    discovery, embed = discovered("hyenadna"), embedding(width=128, device="cuda")
    texts = sequences(256 * 4, 512)
    layer = EmbeddingLayer(embed, discovery, device="cuda", max_rows=256)
    list(layer.embed_from_strings(texts, "bytes"))
    torch.cuda._sleep(2_000_000_000)
    assert next(iter(layer.embed_from_strings(texts, "bytes"))).path == "bytes, pipelined"
    assert not torch.cuda.current_stream().query()


@pytest.mark.gpu
def test_parts_that_are_dropped_give_their_memory_back() -> None:
    layer = EmbeddingLayer(embedding(device="cuda"), discovered("hyenadna"), max_rows=256)
    matrix = torch.full((256 * 64, 512), ord("A"), dtype=torch.uint8).pin_memory().numpy()
    torch.cuda.reset_peak_memory_stats()
    for part in layer.embed_from_strings(matrix):
        del part
    assert torch.cuda.max_memory_allocated() < 16 * 256 * 512 * 32
