"""The canonical form of a vocabulary: the bytes its digest is taken of, and how it is stored.

Layout, all integers little-endian:

    b"warptok vocabulary 1\\n"
    uint32 H, then H bytes of JSON: every field but tokens and merges, keys sorted, no spaces
    int32[V]   length of each token in bytes, -1 for a hole
    uint8[...] the tokens, joined
    int32[M, 2] merges, only for a BPE model

No part of it is code: reading it runs nothing but NumPy and the JSON parser.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from vocabularies.vocabulary import Vocabulary

__all__ = ["from_bytes", "to_bytes"]

MAGIC = b"warptok vocabulary 1\n"


def to_bytes(vocabulary: Vocabulary) -> bytes:
    """Canonical form of a vocabulary; equal bytes exactly when all fields are equal."""
    model = dataclasses.asdict(vocabulary.model)
    merges = model.pop("merges", ())
    header = {
        "kind": vocabulary.kind,
        "model": model,
        "num_merges": len(merges),
        "num_tokens": len(vocabulary.tokens),
        "special_tokens": [dataclasses.asdict(token) for token in vocabulary.special_tokens],
        "normalizers": [dataclasses.asdict(step) for step in vocabulary.normalizers],
        "pretokenizer": vocabulary.pretokenizer,
        "prefix": vocabulary.prefix,
        "suffix": vocabulary.suffix,
        "roles": dict(vocabulary.roles),
        "padding_side": vocabulary.padding_side,
    }
    encoded = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    lengths = [-1 if token is None else len(token) for token in vocabulary.tokens]
    return b"".join(
        (
            MAGIC,
            len(encoded).to_bytes(4, "little"),
            encoded,
            np.array(lengths, "<i4").tobytes(),
            *(token for token in vocabulary.tokens if token),
            np.array(merges, "<i4").tobytes(),
        )
    )


def from_bytes(data: bytes) -> Vocabulary:
    """The vocabulary of a canonical form.

    Raises:
        VocabularyError: the bytes are not a canonical form, or the vocabulary is wrong.
    """
    from vocabularies.vocabulary import VocabularyError

    if not data.startswith(MAGIC):
        raise VocabularyError.at("byte 0", "not the canonical form of a vocabulary")
    try:
        return _parse(memoryview(data)[len(MAGIC) :])
    except (KeyError, TypeError, IndexError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise VocabularyError.at("header", f"damaged canonical form: {error!r}") from error


def _parse(data: memoryview) -> Vocabulary:
    from vocabularies import vocabulary as v

    header_end = 4 + int.from_bytes(data[:4], "little")
    header: dict[str, Any] = json.loads(bytes(data[4:header_end]))
    num_tokens, num_merges = header["num_tokens"], header["num_merges"]
    tokens_begin = header_end + 4 * num_tokens
    lengths = np.frombuffer(data[header_end:tokens_begin], "<i4")
    ends = tokens_begin + np.cumsum(np.maximum(lengths, 0))
    merges_begin = int(ends[-1]) if num_tokens else tokens_begin
    if len(lengths) != num_tokens or merges_begin + 8 * num_merges != len(data):
        raise v.VocabularyError.at("header", "damaged canonical form: lengths do not add up")
    begins = ends - np.maximum(lengths, 0)
    tokens = tuple(
        None if length < 0 else bytes(data[begin:end])
        for length, begin, end in zip(lengths.tolist(), begins.tolist(), ends.tolist(), strict=True)
    )
    model_class = {"bpe": v.Bpe, "kmers": v.Kmers, "characters": v.Characters}.get(
        header["kind"], v.Upstream
    )
    model = {
        name: tuple(map(tuple, value)) if isinstance(value, list) else value
        for name, value in header["model"].items()
    }
    if model_class is v.Bpe:
        merges = np.frombuffer(data[merges_begin:], "<i4").reshape(-1, 2)
        model["merges"] = tuple(map(tuple, merges.tolist()))
    return v.Vocabulary(
        tokens=tokens,
        model=model_class(**model),
        special_tokens=tuple(v.SpecialToken(**token) for token in header["special_tokens"]),
        normalizers=tuple(v.Normalizer(**step) for step in header["normalizers"]),
        pretokenizer=header["pretokenizer"],
        prefix=tuple(header["prefix"]),
        suffix=tuple(header["suffix"]),
        roles=header["roles"],
        padding_side=header["padding_side"],
    )
