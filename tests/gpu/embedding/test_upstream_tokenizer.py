"""Upstream tokenizers give the same ids whatever their owner changes in them later."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.implementations import CharBPETokenizer

from gpu.embedding.tokenizer_discovery import discover
from gpu.embedding.upstream_tokenizer import make_upstream_encoder
from vocabularies.batch.batch import Batch

LETTERS = {letter: i for i, letter in enumerate("?ACGT[]M")}


def letters() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(vocab=LETTERS, merges=[], unk_token="?"))
    tokenizer.add_special_tokens(["[M]"])
    return tokenizer


def ids(discovery: Any, *texts: str) -> list[list[int]]:
    flat, offsets = discovery.upstream(Batch(texts))
    return [flat[begin:end].tolist() for begin, end in itertools.pairwise(offsets)]


def test_padding_and_truncation_that_are_asked_for_later_do_not_reach_the_ids() -> None:
    tokenizer = letters()
    discovery = discover(tokenizer)
    tokenizer.enable_padding(pad_id=7)
    tokenizer.enable_truncation(2)
    assert ids(discovery, "A", "AC[M]GT") == [[1], [1, 2, 8, 3, 4]]


@pytest.mark.parametrize("is_padded", [True, False])
def test_special_tokens_that_are_to_be_text_stay_text(is_padded: bool) -> None:
    tokenizer = letters()
    tokenizer.encode_special_tokens = True
    if is_padded:
        tokenizer.enable_padding()
    assert ids(discover(tokenizer), "A[M]") == [[1, 5, 7, 6]]


def test_a_tokenizer_of_the_librarys_own_classes_may_pad() -> None:
    tokenizer = CharBPETokenizer(vocab={"A": 0, "C": 1, "<unk>": 2}, merges=[], suffix="")
    tokenizer.enable_padding()
    assert ids(discover(tokenizer), "AC", "A") == [[0, 1], [0]]


class Letters:
    """A part of a tokenizer that is Python's, which the library cannot write down."""

    def pre_tokenize(self, text: Any) -> None:
        text.split(lambda _, part: [part[i : i + 1] for i in range(len(str(part)))])


def test_parts_in_python_are_used_as_they_are() -> None:
    tokenizer = letters()
    tokenizer.pre_tokenizer = pre_tokenizers.PreTokenizer.custom(Letters())
    assert ids(discover(tokenizer), "ACG") == [[1, 2, 3]]
    tokenizer.enable_padding()
    with pytest.raises(TypeError, match="pads or truncates, and a copy that does not"):
        discover(tokenizer)


class Fast:
    """A tokenizer that fails without texts, as the fast tokenizers of transformers do."""

    def convert_tokens_to_ids(self, token: str) -> int:
        return LETTERS[token]

    def __call__(self, texts: list[str], *, add_special_tokens: bool) -> dict[str, Any]:
        assert texts[0] is not None
        assert not add_special_tokens
        return {"input_ids": [[LETTERS[letter] for letter in text] for text in texts]}


def test_no_texts_give_no_ids_and_no_error() -> None:
    flat, offsets = make_upstream_encoder(Fast())(Batch([]))
    assert (flat.tolist(), offsets.tolist()) == ([], [0])
    assert make_upstream_encoder(Fast())(Batch(["AC"]))[0].tolist() == [1, 2]
