"""Converts a tokenizer of Hugging Face to a Vocabulary, so that an engine can replace it.

The engine's ids are compared with the tokenizer's before they are used.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gpu.embedding.discovery.probe_texts import SELF_TEST, list_vocabulary_strings, make_random_text
from gpu.embedding.upstream_tokenizer import EncodeBatch, Engine, make_upstream_encoder
from vocabularies.batch.batch import Batch
from vocabularies.errors import VocabularyError
from vocabularies.formats import read_vocabulary
from vocabularies.model.vocabulary import Vocabulary

_ALPHABETS = ("ACGT", "ACGTN", "ACGTNacgtnRYU-", "AC GT\nN")
_LENGTHS = (*range(1, 20), 100, 1030, 20_000)
_NUM_STRINGS = 20_000
"""Strings of the vocabulary that are compared, each between bases."""


class Recognized(NamedTuple):
    """The functions that encode by an engine.

    Attributes:
        vocabulary: the vocabulary in the tokenizer's file.
        content: encodes without begin and end tokens.
        with_special_tokens: encodes with them.
    """

    vocabulary: Vocabulary
    content: EncodeBatch
    with_special_tokens: EncodeBatch


def recognize(tokenizer: Any, engine: Engine) -> Recognized | str:
    """Make functions that encode by an engine instead of a tokenizer; else return the reason."""
    if isinstance(tokenizer, Vocabulary):
        vocabulary = tokenizer
    else:
        whole = getattr(tokenizer, "backend_tokenizer", tokenizer)
        if not callable(to_str := getattr(whole, "to_str", None)):
            return f"a {type(tokenizer).__name__} has no tokenizer.json"
        try:
            vocabulary = read_vocabulary({"tokenizer.json": to_str().encode()})
        except VocabularyError as error:
            return f"its tokenizer.json is not read: {error}"
        except Exception as error:  # tokenizers raises a bare Exception for parts in Python.
            return f"it has parts that it does not describe: {error}"
    encoders = {
        with_special_tokens: make_upstream_encoder(
            vocabulary, engine, add_special_tokens=with_special_tokens
        )
        for with_special_tokens in (False, True)
    }
    recognized = Recognized(vocabulary, encoders[False], encoders[True])
    if vocabulary is tokenizer:
        return recognized
    fault = _find_difference(tokenizer, encoders)
    return fault or recognized


def _find_difference(tokenizer: Any, encoders: dict[bool, EncodeBatch]) -> str:
    """Find a text for which the ids of the engine differ; "" if there is none."""
    texts = ["", SELF_TEST, *(letter * 40 for letter in "ACGTN")]
    texts += [make_random_text(each, size, size) for each in _ALPHABETS for size in _LENGTHS]
    strings = list_vocabulary_strings(tokenizer)[:_NUM_STRINGS]
    texts += ["GA".join(strings[i : i + 64]) for i in range(0, len(strings), 64)]
    for with_special_tokens, encode in encoders.items():
        own = make_upstream_encoder(tokenizer, add_special_tokens=with_special_tokens)
        try:
            ours, offsets = encode(Batch(texts))
        except Exception as error:  # An engine may not cover the vocabulary.
            return f"the engine does not encode it: {error}"
        theirs, their_offsets = own(Batch(texts))
        wrong = np.flatnonzero(np.diff(offsets) != np.diff(their_offsets))
        if not len(wrong):
            places = np.flatnonzero(ours != theirs)
            wrong = np.searchsorted(offsets, places[:1], side="right") - 1
        if len(wrong):
            return f"the engine gives other ids for {texts[wrong[0]][:40]!r}"
    return ""
