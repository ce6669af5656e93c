"""The layer refuses rows by their numbers, after the parts before them, and wrong arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.each_engine import engine_of
from tests.support.torch_or_skip import torch_or_skip
from vocabularies.batch.batch import Batch
from vocabularies.builtin import load

pytestmark = pytest.mark.torch
torch = torch_or_skip()
from gpu.embedding.layer import EmbeddingLayer  # noqa: E402
from gpu.embedding.tokenizer_discovery import discover  # noqa: E402
from gpu.embedding.upstream_tokenizer import SequenceRefused, make_upstream_encoder  # noqa: E402


class Plain:
    """A tokenizer with an id for each of five letters, and what `find` returns for others."""

    def __init__(self, find: Callable[[str], int]) -> None:
        self.find = find

    def encode(self, text: str) -> list[int]:
        return [self.find(letter) for letter in text]


def ends(layer: EmbeddingLayer, rows: list[Any], path: Any = "auto") -> tuple[list[int], str]:
    """Return where the parts end that are given out, and the message of the refusal."""
    part_ends = []
    with pytest.raises(SequenceRefused) as refused:
        for part in layer.embed_from_strings(rows, path):
            part_ends.append(part.end)
    return part_ends, str(refused.value)


@pytest.mark.parametrize("path", ["auto", "ids", "bytes"])
@pytest.mark.parametrize("name", ["hyenadna", "dnabert2"])
def test_parts_before_a_refused_row_come_first(name, path):
    """This includes the parts of the group that is looked up together with the refused row."""
    discovery = discover(load(name), engine=engine_of("cpu"))
    for max_rows, expected in ((1, [1, 2, 3]), (2, [2]), (3, [3]), (4, [])):
        layer = EmbeddingLayer(lambda ids: ids, discovery, device="cpu", max_rows=max_rows)
        assert ends(layer, [*[b"ACGT"] * 3, b"AC\xffT", b"\xff"], path) == (
            expected,
            "row 3: the text is not UTF-8: invalid start byte (byte 2)",
        )


def test_an_error_of_a_foreign_tokenizer_names_the_row():
    """An id that no embedder has names its row, too; an error of the device names no row."""
    letters = {"A": 1, "C": 2, "G": 3, "T": 4, "N": 5}
    for find, message in (
        (letters.__getitem__, "row 1: the tokenizer has an error: KeyError: 'X'"),
        (lambda letter: letters.get(letter, -1), "row 1: the tokenizer gives the id -1"),
        (
            lambda letter: letters.get(letter, 1 << 31),
            f"row 1: the tokenizer gives the id {1 << 31}",
        ),
    ):
        discovery = discover(Plain(find))
        layer = EmbeddingLayer(torch.nn.Embedding(9, 2), discovery, device="cpu", max_rows=1)
        assert ends(layer, ["ACGT", "AXC", "A", "X"]) == ([1], message)

    def fails(letter: str) -> int:
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        make_upstream_encoder(Plain(fails))(Batch(["A", "C"]))


@pytest.mark.parametrize("source", [None, "hyenadna", b"ACGT", Plain, 5])
def test_what_is_no_tokenizer_is_refused(source):
    with pytest.raises(TypeError):
        discover(source)


def test_arguments_of_other_types_are_refused():
    discovery = discover(load("hyenadna"))
    with pytest.raises(TypeError, match="float"):
        discover(load("hyenadna"), token_len=1.5)
    with pytest.raises(TypeError, match="a Vocabulary; it must be what `discover` returns"):
        EmbeddingLayer(torch.nn.Embedding(12, 2), load("hyenadna"), device="cpu")
    with pytest.raises(TypeError, match="NoneType, cannot be called"):
        EmbeddingLayer(None, discovery, device="cpu")
