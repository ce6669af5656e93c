"""Rows that an engine encodes for a tokenizer of Hugging Face, and rows with N, on a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from service.engines.cpu.engine import CpuEngine
from tests.support.inputs.tokenizer_objects import write_tokenizer
from tests.support.torch_or_skip import torch_or_skip
from vocabularies.batch.batch import EncodeOptions
from vocabularies.builtin import load
from vocabularies.reference import tokenizer as reference

pytestmark = pytest.mark.torch
torch = torch_or_skip()
from gpu.embedding.layer import EmbeddingLayer  # noqa: E402
from gpu.embedding.tokenizer_discovery import discover  # noqa: E402

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def make_engine(device: str) -> Any:
    if device == "cpu":
        return CpuEngine()
    from gpu.engine import GpuEngine
    from gpu.runtime.cuda_device import CudaDevice

    return GpuEngine(CudaDevice(), workspace_bytes=1 << 30)


def rows_of(name: str, texts: list[str]) -> list[list[int]]:
    options = EncodeOptions(add_special_tokens=True)
    return [reference.encode(load(name), text, options).ids for text in texts]


def sequences(num_rows: int, longest: int, letters: str, seed: int) -> list[str]:
    random = np.random.default_rng(seed)
    sizes = random.integers(0, longest, num_rows)
    return ["".join(random.choice(list(letters), size)) for size in sizes]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["dnabert2", "gena_lm_t2t_32k"])
def test_bpe_of_hugging_face_is_encoded_by_the_engine(device: str, name: str) -> None:
    """The engine's pinned memory is lent again while copies run: no row has another's ids."""
    found = discover(write_tokenizer(name), engine=make_engine(device))
    assert found.has_engine, found.reason
    texts = sequences(300, 200, "ACGT" * 8 + "N", 1)
    embed = torch.nn.Embedding(40_000, 8, device=device).requires_grad_(False)
    layer = EmbeddingLayer(
        embed, found, device=device, max_rows=16, add_special_tokens=True, padding_side="right"
    )
    rows = rows_of(name, texts)
    parts = list(layer.embed_from_strings(texts))
    assert sum(part.num_upstream for part in parts) == len(texts)
    for part in parts:
        width = part.ids.shape[1]
        expected = rows[part.begin : part.end]
        assert part.ids.tolist() == [row + [3] * (width - len(row)) for row in expected]
        assert part.attention_mask.sum(1).tolist() == list(map(len, expected))
        assert torch.equal(part.activations, embed.weight[part.ids])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["nt_v1", "nt_v2"])
def test_rows_with_n_beside_others_in_many_groups(device: str, name: str) -> None:
    """Their rows are put into matrices of the side stream, whose memory is soon used again."""
    texts = [
        text if i % 3 else text.replace("N", "")
        for i, text in enumerate(sequences(400, 150, "ACGT" * 12 + "N", 2))
    ]
    rows = rows_of(name, texts)
    embed = torch.nn.Embedding(4107, 64, device=device).requires_grad_(False)
    layer = EmbeddingLayer(
        embed, discover(load(name)), device=device, max_rows=8, add_special_tokens=True
    )
    for _ in range(3):
        parts = list(layer.embed_from_strings(texts, "bytes"))
        assert sum(part.num_upstream for part in parts) == 0
        assert {part.reason for part in parts} == {""}
        for part in parts:
            width = part.ids.shape[1]
            expected = rows[part.begin : part.end]
            assert part.ids.tolist() == [[1] * (width - len(row)) + row for row in expected]
            assert torch.equal(part.activations, embed.weight[part.ids])


@pytest.mark.gpu
def test_rows_with_n_cost_no_tokenizer() -> None:
    """A quarter of a second for a million letters would be the tokenizer's time."""
    letters = np.frombuffer(b"ACGT", np.uint8)
    matrix = np.random.default_rng(0).choice(letters, (4096, 512))
    matrix[:, 100:130] = ord("N")
    layer = EmbeddingLayer(lambda ids: ids, discover(load("nt_v2")), device="cuda")
    for _ in range(3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        ids = layer.ids_from_strings(matrix)
        end.record()
        torch.cuda.synchronize()
    print(f"4,096 rows of 512 letters with N: {begin.elapsed_time(end):.2f} ms")
    assert ids.shape == (4096, 117)
    assert begin.elapsed_time(end) < 250
