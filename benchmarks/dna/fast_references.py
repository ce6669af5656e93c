"""Encodes DNA by a few lines of Python or by Hugging Face tokenizers, to compare engines with.

These share no code with the engines, only the tokens of a vocabulary. Each is compared with the
reference first, which is too slow for a thousand million bases.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from vocabularies.batch.batch import EncodeOptions
from vocabularies.formats.huggingface.writer import tokenizer_json
from vocabularies.model.types import Bpe, Characters, Kmers
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference import tokenizer as reference

Rows = list[NDArray[np.int32]]
FastReference = Callable[[Sequence[str]], Rows]
OWN = EncodeOptions(add_special_tokens=False)


def find_fast_reference(
    vocabulary: Vocabulary, *, all_cores: bool = True
) -> tuple[str, FastReference]:
    """Find the fast reference of a vocabulary: its name, and a function from rows to their ids.

    Args:
        vocabulary: the vocabulary.
        all_cores: let a library use more than one core for the rows of a call.

    Returns:
        The name, and a function that returns the ids of rows without begin and end tokens.

    Raises:
        ValueError: there is no fast reference for the vocabulary.
    """
    model = vocabulary.model
    if isinstance(model, Bpe):
        return "tokenizers", _by_tokenizers(vocabulary, all_cores)
    if isinstance(model, Characters):
        return "a table of bytes", _by_bytes(vocabulary)
    if isinstance(model, Kmers) and model.frame == "run":
        return "a regular expression", _by_pattern(vocabulary, model)
    if isinstance(model, Kmers):
        return "a dictionary of words", _by_words(vocabulary, model)
    raise ValueError("no fast reference for this vocabulary")


def prove_fast_reference(
    vocabulary: Vocabulary, fast_reference: FastReference, texts: Sequence[str]
) -> int:
    """Compare a fast reference with the reference; return the bases compared.

    Raises:
        SystemExit: they differ.
    """
    for text, ids in zip(texts, fast_reference(texts), strict=True):
        if ids.tolist() != reference.encode(vocabulary, text, OWN).ids:
            raise SystemExit(f"the fast reference differs from the reference on {text[:60]!r}...")
    return sum(map(len, texts))


def _by_tokenizers(vocabulary: Vocabulary, all_cores: bool) -> FastReference:
    tokenizer = Tokenizer.from_str(tokenizer_json(vocabulary))
    os.environ["TOKENIZERS_PARALLELISM"] = str(all_cores).lower()

    def encode(texts: Sequence[str]) -> Rows:
        encodings = tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, np.int32) for encoding in encodings]

    return encode


def _by_bytes(vocabulary: Vocabulary) -> FastReference:
    """Return a function that looks up each byte in a table of ids; texts are ASCII."""
    ids = np.zeros(128, np.int32)
    for byte in range(128):
        found = reference.encode(vocabulary, chr(byte), OWN).ids
        ids[byte] = found[0] if found else -1

    def encode(texts: Sequence[str]) -> Rows:
        return [ids[np.frombuffer(text.encode(), np.uint8)] for text in texts]

    return encode


def _words(vocabulary: Vocabulary, size: int) -> dict[str, int]:
    tokens = enumerate(vocabulary.tokens)
    return {token.decode(): i for i, token in tokens if token and len(token) == size}


def _by_pattern(vocabulary: Vocabulary, model: Kmers) -> FastReference:
    """Return a function that splits texts by a pattern.

    Example: ACGTACGNNxy becomes ACGTAC, G, N, N and one unknown token.
    """
    known, letters = "".join(letter for letter, _ in model.letter_ids), model.letters
    pattern = re.compile(f"[{letters}]{{{model.k}}}|[{known}]|[^{known}]+")
    ids = _words(vocabulary, model.k) | dict(model.letter_ids)

    def encode(texts: Sequence[str]) -> Rows:
        found = [pattern.findall(text) for text in texts]
        return [np.array([ids.get(w, model.unknown_id) for w in row], np.int32) for row in found]

    return encode


def _by_words(vocabulary: Vocabulary, model: Kmers) -> FastReference:
    k, stride, unknown = model.k, model.stride, model.unknown_id
    ids = {w: i for w, i in _words(vocabulary, k).items() if set(w) <= set(model.letters)}

    def encode(texts: Sequence[str]) -> Rows:
        rows = []
        for text in texts:
            row = text.upper() if model.case == "upper" else text
            places = range(0, len(row) - k + 1, stride)
            rows.append(np.array([ids.get(row[i : i + k], unknown) for i in places], np.int32))
        return rows

    return encode
