"""Ids, masks and padding are those of transformers, which has an environment of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.clients.test_clients import run_client
from tests.support.data_files import DATA
from tests.support.torch_or_skip import torch_or_skip
from vocabularies.builtin import load
from vocabularies.formats import write_vocabulary

pytestmark = [pytest.mark.slow, pytest.mark.torch]
TEXTS = [
    "ACGTACGTACGTAACC",
    "",
    "GATTACA",
    "A",
    "ACGTNACGTACGTNNACG",
    "N" * 12,
    "ACGTRYKMACGT",
    "acgtACGT",
    "GATTACAGATTACA" * 30,
]
CALLS = (
    {},
    {"padding": True},
    {"padding": True, "truncation": True, "return_offsets_mapping": True},
    {"padding": "max_length", "max_length": 90, "truncation": True, "return_tensors": "np"},
    {"padding": True, "pad_to_multiple_of": 4, "add_special_tokens": False},
)
NAMES = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}


def make_case(folder: Path, name: str) -> dict[str, Any]:
    """Describe a tokenizer of transformers, from a file that a built-in vocabulary writes."""
    vocabulary = load(name)
    tokens = [token.decode() if token else "" for token in vocabulary.tokens]
    case: dict[str, Any] = {"texts": TEXTS, "calls": [], "has_rule": True, "least_by_rule": 8}
    if name == "nt_v2":
        case |= {"kind": "esm", "kwargs": {"model_max_length": 2048}}
        content = "\n".join(tokens).encode()
    elif name == "hyenadna":
        case |= {"kind": "characters", "kwargs": {"padding_side": "left"}}
        content = json.dumps({token: number for number, token in enumerate(tokens)}).encode()
    else:
        kwargs = {**NAMES, "model_max_length": 40}
        case |= {"kind": "fast", "kwargs": kwargs, "calls": CALLS, "has_rule": False}
        published = DATA / "dna_vocab" / name / "tokenizer.json"
        written = write_vocabulary(vocabulary, "tokenizer.json").values()
        content = published.read_bytes() if published.is_file() else next(iter(written))
    path = folder / f"{name}.file"
    path.write_bytes(content)
    return {**case, "file": str(path), "rows": list_rows(name)}


def list_rows(name: str) -> list[dict[str, Any]]:
    """List the embedding layer's rows, padded on either side, with and without added tokens."""
    from gpu.embedding.layer import EmbeddingLayer
    from gpu.embedding.tokenizer_discovery import discover

    found = discover(load(name))
    rows = []
    for side in ("left", "right", None):
        for with_special_tokens in (False, True):
            layer = EmbeddingLayer(
                lambda ids: ids,
                found,
                device="cpu",
                add_special_tokens=with_special_tokens,
                padding_side=side,
            )
            for path in ("bytes", "ids"):
                made = layer.inputs_from_strings(TEXTS, path)
                rows.append({name: tensor.tolist() for name, tensor in made.items()})
                rows[-1] |= {"padding_side": side, "add_special_tokens": with_special_tokens}
    return rows


@pytest.mark.parametrize("name", ["nt_v2", "dnabert2", "gena_lm_t2t_32k", "hyenadna"])
def test_ids_masks_and_padding_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    torch_or_skip()
    cases = tmp_path / "cases.json"
    cases.write_text(json.dumps([make_case(tmp_path, name)]))
    run_client("transformers", str(cases))
