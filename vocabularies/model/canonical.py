r"""Writes the canonical form of a vocabulary, the bytes that its digest hashes.

Layout, all integers little-endian:

    b"warptok vocabulary 1\n"
    uint32 H, then H bytes of JSON: every field but tokens and merges, keys sorted, no spaces;
               motifs only where there are some, decoder only where it is not the inverse
    int32[V]   length of each token in bytes, -1 for a hole
    uint8[...] the tokens, joined
    int32[M, 2] merges, only for a BPE model

`formats.canonical_files` reads it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json

import numpy as np

from vocabularies.model.types import VocabularyFields

MAGIC = b"warptok vocabulary 1\n"


def digest_of(canonical: bytes) -> str:
    """Return the digest of the vocabulary with this canonical form."""
    return "sha256:" + hashlib.sha256(canonical).hexdigest()


def to_bytes(vocabulary: VocabularyFields) -> bytes:
    """Write the canonical form; it is the same exactly for vocabularies with equal fields."""
    model = {
        field.name: getattr(vocabulary.model, field.name)
        for field in dataclasses.fields(vocabulary.model)
        if field.name != "merges"
    }
    header = {
        "kind": vocabulary.kind,
        "model": model,
        "num_merges": len(vocabulary.merge_pairs),
        "num_tokens": len(vocabulary.tokens),
        "special_tokens": [dataclasses.asdict(token) for token in vocabulary.special_tokens],
        "normalizers": [dataclasses.asdict(step) for step in vocabulary.normalizers],
        "pretokenizer": vocabulary.pretokenizer,
        "prefix": vocabulary.prefix,
        "suffix": vocabulary.suffix,
        "roles": dict(vocabulary.roles),
        "padding_side": vocabulary.padding_side,
    }
    if vocabulary.motifs:
        header["motifs"] = vocabulary.motifs
    if vocabulary.decoder != "inverse":
        header["decoder"] = vocabulary.decoder
    encoded = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    lengths = [-1 if token is None else len(token) for token in vocabulary.tokens]
    return b"".join(
        (
            MAGIC,
            len(encoded).to_bytes(4, "little"),
            encoded,
            np.array(lengths, "<i4").tobytes(),
            *filter(None, vocabulary.tokens),
            vocabulary.merge_pairs.astype("<i4", copy=False).tobytes(),
        )
    )
