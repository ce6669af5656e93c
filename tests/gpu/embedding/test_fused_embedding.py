"""Letters that one kernel embeds have the ids and the rows that the look-up and torch give them."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

import numpy as np
import pytest

from gpu.embedding.letter_rule import NEEDS_UPSTREAM, LetterRule, read_letter_rule
from tests.support.emulation.torch_kernels import EmulatedKernels, compiled, memory
from tests.support.torch_or_skip import torch_or_skip
from vocabularies.batch.batch import Batch
from vocabularies.builtin import load

pytestmark = pytest.mark.torch
torch = torch_or_skip()
from gpu.embedding import fused_embedding, pinned_text  # noqa: E402
from gpu.embedding import layer as embedding  # noqa: E402
from gpu.embedding.fused_embedding import BLOCK_LETTERS, THREADS, LetterEmbedder  # noqa: E402
from gpu.embedding.layer import EmbeddingLayer  # noqa: E402
from gpu.embedding.lookup import kernel_lookup  # noqa: E402
from gpu.embedding.pinned_text import TextMemory  # noqa: E402
from gpu.embedding.tokenizer_discovery import discover  # noqa: E402

LAUNCH = """
#include "embedding/fused_embedding.cuh"
extern "C" void embed_letters(const Embed* embed, uint64_t blocks) {
    for (uint64_t first = 0; first < blocks * EMBED_LETTERS; first += EMBED_LETTERS) {
        int32_t rows[EMBED_LETTERS];
        for (uint32_t i = 0; i < EMBED_BLOCK; i++) look_block_up(*embed, rows, first, i);
        for (uint32_t i = 0; i < EMBED_BLOCK; i++) write_rows_of(*embed, rows, first, i);
    }
}
extern "C" uint64_t block_letters() { return EMBED_LETTERS; }
"""
LETTERS = np.frombuffer(b"ACGTN", np.uint8)


class Passed:
    """An event that has passed, and a stream that is idle."""

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass


def library() -> ctypes.CDLL:
    return compiled("embed_letters", LAUNCH)


@pytest.fixture(autouse=True)
def _without_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    marks = np.zeros(kernel_lookup.NUM_MARKS, np.int64)
    monkeypatch.setattr(kernel_lookup, "get_batch_marks", lambda: marks)
    monkeypatch.setattr(fused_embedding, "current_stream", lambda device: 0)
    monkeypatch.setattr(fused_embedding, "record_event", lambda device: Passed())
    monkeypatch.setattr(embedding._cuda, "current_stream", lambda device: Passed())


def embedder(rule: LetterRule, table: Any, dtype: Any = torch.int64) -> LetterEmbedder:
    kernels = EmulatedKernels(library(), THREADS)
    return LetterEmbedder(kernels, rule, table, dtype, TextMemory(memory))  # type: ignore[arg-type]


def table(num_ids: int, width: int, dtype: Any = torch.float32) -> Any:
    return torch.nn.Embedding(num_ids, width, dtype=dtype).requires_grad_(False)


def matrix(rows: int, length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).choice(LETTERS, (rows, length))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("width", [4, 12, 128, 1024, 1028, 3000])
@pytest.mark.parametrize("is_pinned", [True, False])
def test_ids_and_rows_are_the_tables(monkeypatch, dtype, width, is_pinned):
    """From one word to more words than a block has threads; however many letters are left over."""
    monkeypatch.setattr(pinned_text, "is_pinned", lambda data: is_pinned)
    monkeypatch.setattr(pinned_text, "PIECE_BYTES", 1024)
    vocabulary = load("hyenadna")
    rule, rows = read_letter_rule(vocabulary), table(len(vocabulary), width)
    for shape, begin in (((1, 1), 0), ((3, 7), 1), ((2, BLOCK_LETTERS), 2), ((5, 331), 3)):
        text = np.concatenate([np.zeros(begin, np.uint8), matrix(*shape).ravel()])[begin:]
        embed = embedder(rule, rows, dtype)
        result = embed(text, shape[0])
        expected = torch.from_numpy(rule.codes[text].reshape(shape).astype(np.int64))
        assert result.ids.dtype == dtype
        assert torch.equal(result.ids.long(), expected)
        assert torch.equal(result.activations, rows(expected))
        assert not result.has_unknown()


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_letters_behind_have_ids_alone(dtype):
    """Wherever they lie, and however many are left over."""
    vocabulary = load("hyenadna")
    rule, rows = read_letter_rule(vocabulary), table(len(vocabulary), 8)
    for first, more, length in ((1, 1, 1), (5, 5, 67), (9, 2, 331), (3, 1, 128)):
        text = matrix(first + more, length).ravel()
        embed = embedder(rule, rows, dtype)
        result = embed(text[: first * length], first, text[first * length :])
        ids = torch.from_numpy(rule.codes[text].reshape(-1, length)).to(dtype)
        assert torch.equal(result.ids, ids[:first])
        assert torch.equal(result.next_ids, ids[first:])
        assert torch.equal(result.activations, rows(result.ids))
        text[-1] = ord("[")
        assert embed(text[: first * length], first, text[first * length :]).has_unknown()


def test_a_letter_without_a_code_is_seen_wherever_it_stands():
    rule = read_letter_rule(load("hyenadna"))
    assert rule.codes[ord("[")] == NEEDS_UPSTREAM
    embed = embedder(rule, table(12, 4))
    for place in (0, 1, 3, BLOCK_LETTERS - 1, BLOCK_LETTERS, 299, 300):
        text = matrix(1, 301).ravel()
        text[place] = ord("[")
        assert embed(text, 1).has_unknown()
        text[place] = ord("A")
        assert not embed(text, 1).has_unknown()


def layer_of(rows: Any, **settings: Any) -> EmbeddingLayer:
    discovery = discover(load("hyenadna"))
    layer = EmbeddingLayer(rows, discovery, device="cpu", **settings)
    layer._fused = embedder(discovery.rule, rows)  # type: ignore[arg-type]
    return layer


def check(parts: list, texts: np.ndarray, rows: Any) -> None:
    rule = read_letter_rule(load("hyenadna"))
    expected = torch.from_numpy(rule.codes[texts].astype(np.int64))  # type: ignore[union-attr]
    assert [0, *(part.end for part in parts)] == [*(part.begin for part in parts), len(texts)]
    assert torch.equal(torch.cat([part.ids for part in parts]), expected)
    assert torch.equal(torch.cat([part.activations for part in parts]), rows(expected))


@pytest.mark.parametrize("is_pinned", [True, False])
@pytest.mark.parametrize("num_parts", [1, 2, 3, 4, 5, 33])
def test_every_number_of_micro_batches(monkeypatch, num_parts, is_pinned):
    for module in (pinned_text, fused_embedding):
        monkeypatch.setattr(module, "is_pinned", lambda data: is_pinned)
    texts, rows = matrix(3 * num_parts - 1, 16), table(12, 8)
    parts = list(layer_of(rows, max_ids=3 * 16).embed_from_strings(texts, "bytes"))
    check(parts, texts, rows)
    assert [part.path for part in parts] == ["bytes, at once"] * num_parts
    assert {(part.reason, part.num_upstream) for part in parts} == {("", 0)}


def test_a_row_that_only_the_tokenizer_knows_goes_there():
    texts, rows = [row.tobytes().decode() for row in matrix(9, 16)], table(12, 8)
    texts[4] = "ACGT[MASK]ACGTNN"
    assert len(texts[4]) == 16
    vocabulary = load("hyenadna")
    parts = list(layer_of(rows, max_ids=3 * 16).embed_from_strings(texts, "bytes"))
    discovery = discover(vocabulary)
    for part in parts:
        ids, offsets = discovery.upstream(Batch(texts[part.begin : part.end]))
        own = [ids[begin:end].tolist() for begin, end in itertools.pairwise(offsets)]
        width = part.ids.shape[1]
        assert part.ids.tolist() == [[discovery.pad_id] * (width - len(row)) + row for row in own]
        assert torch.equal(part.activations, rows(part.ids))
    assert [(part.path, part.num_upstream) for part in parts] == [
        ("bytes, at once", 0),
        ("bytes", 1),
        ("bytes, at once", 0),
    ]


@pytest.mark.parametrize("what", ["ragged", "padded", "busy", "gradients"])
def test_what_one_kernel_does_not_do_goes_the_other_way(monkeypatch, what):
    texts, rows = [row.tobytes().decode() for row in matrix(9, 16)], table(12, 8)
    if what == "ragged":
        texts[3] = "ACGT"
    layer = layer_of(rows, max_ids=3 * 16)
    if what == "padded":
        object.__setattr__(layer.discovery, "token_len", 17)
    if what == "busy":
        monkeypatch.setattr(Passed, "query", lambda self: False)
    if what == "gradients":
        rows.requires_grad_(True)
    parts = list(layer.embed_from_strings(texts, "bytes"))
    assert {part.path for part in parts} == {"bytes"}
    assert sum(len(part.ids) for part in parts) == 9


def test_what_is_too_large_is_halved(monkeypatch, caplog):
    texts, rows = matrix(50, 8), table(12, 8)
    layer, real = layer_of(rows, max_rows=16), LetterEmbedder.__call__

    def fussy(self, data, num_rows, behind=None):
        if num_rows > 3:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return real(self, data, num_rows, behind)

    monkeypatch.setattr(LetterEmbedder, "__call__", fussy)
    parts = list(layer.embed_from_strings(texts, "bytes"))
    check(parts, texts, rows)
    assert max(part.end - part.begin for part in parts) == 2  # 16, 8, 4, 2.
    assert caplog.text.count("too many at once") == 3
    assert {(part.path, part.reason) for part in parts} == {("bytes, at once", "")}


def test_a_kernel_that_fails_leaves_the_rest_to_other_paths(monkeypatch):
    texts, rows = matrix(20, 8), table(12, 8)
    layer, real = layer_of(rows, max_rows=3), LetterEmbedder.__call__
    calls: list[int] = []

    def fails(self, data, num_rows, behind=None):
        calls.append(num_rows)
        if len(calls) > 4:
            raise RuntimeError("the launch broke")
        return real(self, data, num_rows, behind)

    monkeypatch.setattr(LetterEmbedder, "__call__", fails)
    parts = list(layer.embed_from_strings(texts, "bytes"))
    check(parts, texts, rows)
    assert parts[-1].reason.startswith("bytes, at once stopped at row")
    assert parts[-1].path == "bytes"


def test_python_and_the_kernel_mean_the_same_blocks():
    assert library().block_letters() == BLOCK_LETTERS
