"""Rows have the tokenizer's begin and end tokens, padding on either side, and a mask of both."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.inputs.sequence_strategies import kmer_vocabularies
from tests.support.torch_or_skip import torch_or_skip
from vocabularies.batch.batch import Batch, EncodeOptions, RowRefused
from vocabularies.builtin import load
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference import tokenizer

pytestmark = pytest.mark.torch
torch = torch_or_skip()
from gpu.embedding.layer import EmbeddingLayer  # noqa: E402
from gpu.embedding.letter_rule import read_letter_rule  # noqa: E402
from gpu.embedding.lookup.run_lookup import RunLookUp  # noqa: E402
from gpu.embedding.tokenizer_discovery import Discovery, discover  # noqa: E402

CUDA = pytest.param("cuda", marks=pytest.mark.gpu)
DEVICES = pytest.mark.parametrize("device", ["cpu", CUDA])
FAMILIES = ["hyenadna", "nt_v2", "ntv3", "dnabert1_6mer", "dnabert2", "mtdna6"]
TEXTS = [
    "ACGTACGTACGTA",
    "",
    "GATTACANNACGT",
    "A",
    "NNN",
    "ACGTRYKMACGTAC",
    "acgt",
    "TTTTTTTTTTTTTTT",
]


@functools.cache
def discovered(name: str) -> Discovery:
    return discover(load(name))


def reference_rows(
    vocabulary: Vocabulary, texts: list[str], with_special_tokens: bool
) -> list[list[int]]:
    options = EncodeOptions(add_special_tokens=with_special_tokens)
    return [tokenizer.encode(vocabulary, text, options).ids for text in texts]


def pad(rows: list[list[int]], pad_id: int, side: str, width: int) -> tuple[list, list]:
    """Return the ids and the mask, as any library pads."""
    gaps = [width - len(row) for row in rows]
    if side == "left":
        ids = [[pad_id] * gap + row for row, gap in zip(rows, gaps, strict=True)]
        return ids, [[0] * gap + [1] * (width - gap) for gap in gaps]
    ids = [row + [pad_id] * gap for row, gap in zip(rows, gaps, strict=True)]
    return ids, [[1] * (width - gap) + [0] * gap for gap in gaps]


@DEVICES
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("path", ["bytes", "ids"])
def test_rows_are_the_references_padded(device: str, name: str, side: Any, path: Any) -> None:
    vocabulary, discovery = load(name), discovered(name)
    embed = torch.nn.Embedding(5000, 4, device=device).requires_grad_(False)
    for with_special_tokens in (False, True):
        for texts in (TEXTS, ["ACGTACGTAC"] * 5, ["ACGTACGTACNT"] * 3, [""], ["", ""]):
            layer = EmbeddingLayer(
                embed,
                discovery,
                device=device,
                max_rows=3,
                add_special_tokens=with_special_tokens,
                padding_side=side,
            )
            rows = reference_rows(vocabulary, texts, with_special_tokens)
            for part in layer.embed_from_strings(texts, path):
                expected = rows[part.begin : part.end]
                ids, mask = pad(expected, discovery.pad_id, side, part.ids.shape[1])
                assert part.ids.tolist() == ids
                assert part.attention_mask.tolist() == mask
                assert part.counts.tolist() == list(map(len, expected))
                assert torch.equal(part.activations, embed.weight[part.ids])
            inputs = layer.inputs_from_strings(texts, path)
            ids, mask = pad(rows, discovery.pad_id, side, max(map(len, rows)))
            assert inputs["input_ids"].tolist() == ids
            assert inputs["attention_mask"].tolist() == mask
            assert inputs["attention_mask"].device == inputs["input_ids"].device


@DEVICES
def test_tokens_around_every_piece_come_from_the_tokenizer(device: str) -> None:
    """DNABERT-1 puts [CLS] and [SEP] around every 510 tokens."""
    vocabulary = load("dnabert1_6mer")
    texts = ["ACGT" * 200, "ACGTACGT", "ACGTT" * 103, ("ACGTT" * 103)[:514], "C" * 1025]
    layer = EmbeddingLayer(
        lambda ids: ids, discovered("dnabert1_6mer"), device=device, add_special_tokens=True
    )
    (part,) = layer.embed_from_strings(texts)
    rows = reference_rows(vocabulary, texts, with_special_tokens=True)
    assert part.ids.tolist() == pad(rows, 0, "left", max(map(len, rows)))[0]
    assert part.num_upstream == 3


@DEVICES
@pytest.mark.parametrize("name", ["nt_v1", "nt_v2"])
def test_rows_with_n_stay_on_the_device(device: str, name: str) -> None:
    """Rows with other letters do, too, whose runs are one unknown token; special tokens do not."""
    vocabulary = load(name)
    letters = np.random.default_rng(5).choice(list("ACGT" * 9 + "NRn\n"), (40, 90))
    texts = ["".join(row)[: 90 - i] for i, row in enumerate(letters)]
    layer = EmbeddingLayer(
        lambda ids: ids,
        discovered(name),
        device=device,
        max_rows=16,
        add_special_tokens=True,
        padding_side="right",
    )
    for path in ("bytes", "ids"):
        for texts_now, num_upstream in ((texts, 0), ([*texts, "AC<mask>GT", "é"], 2)):
            parts = list(layer.embed_from_strings(texts_now, path))
            assert sum(part.num_upstream for part in parts) == num_upstream
            rows = reference_rows(vocabulary, texts_now, with_special_tokens=True)
            for part in parts:
                expected = rows[part.begin : part.end]
                assert part.ids.tolist() == pad(expected, 1, "right", part.ids.shape[1])[0]


@DEVICES
def test_rows_with_n_are_in_pieces_by_their_own_number_of_ids(device: str) -> None:
    """Each N is an id, so that such a row has more ids than the words of its length."""
    model = dataclasses.replace(load("nt_v2").model, max_piece_tokens=8)
    vocabulary = dataclasses.replace(load("nt_v2"), model=model)
    layer = EmbeddingLayer(
        lambda ids: ids, discover(vocabulary), device=device, add_special_tokens=True
    )
    texts = ["ACGTAC" * 3 + "N" * 12, "ACGTAC" * 3 + "N", "ACGTAC" * 9, "N" * 8, "N" * 7, "ACNGT"]
    (part,) = layer.embed_from_strings(texts)
    rows = reference_rows(vocabulary, texts, with_special_tokens=True)
    assert part.ids.tolist() == pad(rows, 1, "left", max(map(len, rows)))[0]
    assert part.num_upstream == 3


@settings(max_examples=100)
@given(
    vocabulary=kmer_vocabularies(),
    texts=st.lists(st.text("ACGTNacgtnRé \n<mask>", max_size=30), max_size=6),
)
def test_any_runs_have_the_references_ids(vocabulary: Vocabulary, texts: list[str]) -> None:
    rule = read_letter_rule(vocabulary)
    if isinstance(rule, str) or rule.runs is None:
        return
    covered, expected = [], []
    for text in texts:
        data = np.frombuffer(text.encode(), np.uint8)
        if not rule.runs.knows(data):
            continue
        try:
            ids = reference_rows(vocabulary, [text], with_special_tokens=False)[0]
        except RowRefused:
            continue
        covered.append(text)
        expected.append(ids)
        plain = rule.encode(data)
        assert plain is not None and plain.tolist() == ids
    look_up = RunLookUp(rule, rule.runs, torch.device("cpu"), torch.int64)
    batch = Batch.from_bytes([text.encode() for text in covered])
    ids, counts = look_up(batch.data, batch.offsets)
    assert ids.tolist() == [token_id for row in expected for token_id in row]
    assert counts.tolist() == list(map(len, expected))


def test_the_side_of_the_tokenizer_is_taken_where_none_is_given() -> None:
    for name, side in (("hyenadna", "left"), ("nt_v2", "right")):
        layer = EmbeddingLayer(lambda ids: ids, discovered(name), device="cpu", padding_side=None)
        assert layer.padding_side == discovered(name).padding_side == side
    with pytest.raises(ValueError, match="padding_side is 'up'"):
        EmbeddingLayer(lambda ids: ids, discovered("ntv3"), device="cpu", padding_side="up")  # type: ignore[arg-type]


def test_ids_of_begin_and_end_tokens_are_below_the_embedders_rows() -> None:
    embed = torch.nn.Embedding(4106, 2)
    with pytest.raises(ValueError, match="has 4106 rows"):
        EmbeddingLayer(embed, discovered("nt_v2"), device="cpu", add_special_tokens=True)


@pytest.mark.gpu
def test_equal_rows_without_added_tokens_are_still_one_kernel() -> None:
    embed = torch.nn.Embedding(16, 128, device="cuda").requires_grad_(False)
    texts = ["ACGTN" * 40] * 64
    for side, with_special_tokens, path in (
        ("left", False, "bytes, at once"),
        ("right", False, "bytes, at once"),
        ("right", True, "bytes, pipelined"),
    ):
        layer = EmbeddingLayer(
            embed, discovered("hyenadna"), add_special_tokens=with_special_tokens, padding_side=side
        )
        torch.cuda.synchronize()
        (part,) = layer.embed_from_strings(texts)
        assert part.path == path
        assert part.ids.tolist() == reference_rows(load("hyenadna"), texts, with_special_tokens)
        assert part.attention_mask.tolist() == [[1] * (200 + with_special_tokens)] * 64
