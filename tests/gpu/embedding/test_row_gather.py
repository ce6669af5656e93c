"""Rows gathered by the kernel are the table's rows, bit for bit."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu.kernels.job import CUDA
from tests.support.emulation.torch_kernels import compiled
from tests.support.torch_or_skip import torch_or_skip

LAUNCH = """
#include "embedding/gather_rows.cuh"
extern "C" uint64_t launch(Gather gather, uint64_t blocks) {
    for (uint64_t block = 0; block < blocks; block++)
        for (uint32_t thread = 0; thread < GATHER_BLOCK; thread++)
            gather_words(gather, block, thread);
    return GATHER_BLOCK * GATHER_WORDS;
}
"""


class Gather(ctypes.Structure):
    """Gather of embedding/gather_rows.cuh."""

    _fields_ = (
        ("ids", ctypes.c_void_p),
        ("table", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("num_ids", ctypes.c_uint64),
        ("row_words", ctypes.c_uint64),
        ("id_bytes", ctypes.c_uint64),
    )


@functools.cache
def library() -> ctypes.CDLL:
    loaded = compiled("gather_rows", LAUNCH)
    loaded.launch.argtypes = (Gather, ctypes.c_uint64)
    loaded.launch.restype = ctypes.c_uint64
    return loaded


def block_words() -> int:
    return int(library().launch(Gather(), 0))


@settings(max_examples=60)
@given(
    num_ids=st.integers(0, 700),
    row_words=st.integers(1, 300),
    wide=st.booleans(),
    seed=st.integers(0, 99),
)
def test_every_word_is_written_once(num_ids: int, row_words: int, wide: bool, seed: int) -> None:
    source = np.random.default_rng(seed)
    table = source.integers(0, 2**32, (5, row_words * 4), np.uint32)
    ids = source.integers(0, 5, num_ids).astype(np.int64 if wide else np.int32)
    output = np.full((num_ids + 1, row_words * 4), 0xEEEEEEEE, np.uint32)
    arrays = ids.ctypes.data, table.ctypes.data, output.ctypes.data
    num_blocks = -(-num_ids * row_words // block_words())
    library().launch(Gather(*arrays, num_ids, row_words, ids.itemsize), num_blocks)
    assert np.array_equal(output[:-1], table[ids])
    assert (output[-1] == 0xEEEEEEEE).all()


@pytest.mark.torch
def test_python_and_the_kernel_mean_the_same_blocks() -> None:
    torch_or_skip()
    from gpu.embedding.row_gather import BLOCK_WORDS, THREADS

    assert block_words() == BLOCK_WORDS
    assert f"GATHER_BLOCK = {THREADS};" in Path(CUDA / "embedding/gather_rows.cuh").read_text()


@pytest.mark.torch
def test_other_embedders_are_left_alone() -> None:
    torch = torch_or_skip()
    from gpu.embedding.row_gather import choose_embedder

    for embedder in (torch.nn.Embedding(3, 4), lambda ids: ids):
        assert choose_embedder(embedder, torch.device("cpu")) == (embedder, "the embedder itself")


@pytest.mark.torch
def test_whatever_does_more_than_take_rows_is_left_to_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = torch_or_skip()
    from gpu.embedding.row_gather import takes_rows_only

    def takes() -> bool:
        with torch.no_grad():
            return takes_rows_only(embedding, torch.device("cpu"))

    class Spread(torch.Tensor):  # As quantized weights are, or those of several devices.
        pass

    embedding, nothing = torch.nn.Embedding(5, 4), lambda *_: None
    assert takes()
    assert not takes_rows_only(embedding, torch.device("cpu"))  # It needs a gradient.
    of_all = torch.nn.modules.module.register_module_forward_hook
    for register in (embedding.register_forward_hook, embedding.register_forward_pre_hook, of_all):
        handle = register(nothing)
        assert not takes()
        handle.remove()
    assert takes()
    for name, value in (
        ("forward", embedding.forward),
        ("max_norm", 1.0),
        ("_parameters", {"weight": embedding.weight.data.as_subclass(Spread)}),
        ("_parameters", {"weight": torch.nn.Parameter(torch.zeros(5, 3))}),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(embedding, name, value, raising=False)
            assert not takes(), name
    assert takes()


@pytest.mark.gpu
@pytest.mark.parametrize("width", [1, 3, 4, 8, 100, 128, 132, 1024])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.torch
def test_rows_are_torchs(width: int, dtype: str) -> None:
    torch = torch_or_skip()
    from gpu.embedding.row_gather import choose_embedder

    embedding = torch.nn.Embedding(77, width, dtype=getattr(torch, dtype), device="cuda")
    embed, named = choose_embedder(embedding, torch.device("cuda", 0))
    assert named.startswith("gather_rows")
    for shape in ((0,), (1,), (5, 0), (3, 333), (2, 3, 5)):
        ids = torch.randint(0, 77, shape, device="cuda")
        for some in (ids, ids.int(), ids.transpose(0, -1)):
            expected = embedding(some)
            with torch.no_grad():
                rows = embed(some)
            assert rows.shape == expected.shape
            assert torch.equal(rows, expected)


@pytest.mark.gpu
@pytest.mark.torch
def test_gradients_hooks_and_norms_are_torchs() -> None:
    torch = torch_or_skip()
    from gpu.embedding.row_gather import choose_embedder

    ids = torch.tensor([[1, 2, 2]], device="cuda")
    embedding = torch.nn.Embedding(5, 4, device="cuda")
    embed, _ = choose_embedder(embedding, ids.device)
    embed(ids).sum().backward()
    assert embedding.weight.grad.sum(1).tolist() == [0, 4, 8, 0, 0]
    calls: list[Any] = []
    handle = embedding.register_forward_hook(lambda *arguments: calls.append(arguments))
    with torch.no_grad():
        embed(ids)
        assert len(calls) == 1
        handle.remove()
        embedding.max_norm = 0.5
        assert embed(ids).norm(dim=-1).max() <= 0.501
