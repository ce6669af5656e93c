"""Reads the canonical form of a vocabulary, and adds and verifies the checksum of stored files.

`model.canonical` describes the form and writes it. The form contains no code: reading it runs only
NumPy and the JSON parser.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from vocabularies.errors import VocabularyError
from vocabularies.formats.typed_json import as_type
from vocabularies.model.canonical import MAGIC, digest_of, to_bytes
from vocabularies.model.types import Bpe, Decoder, Model, SpecialToken
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.preprocessing.normalizers import Normalizer

CHECKSUM_PREFIX = b"sha256:"


def read_canonical(data: bytes) -> Vocabulary:
    """Read the vocabulary of a canonical form.

    Raises:
        VocabularyError: the bytes are not a canonical form, or the vocabulary is invalid.
    """
    if not data.startswith(MAGIC):
        raise VocabularyError.at("byte 0", "not the canonical form of a vocabulary")
    try:
        vocabulary = _parse(memoryview(data)[len(MAGIC) :])
    except VocabularyError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise VocabularyError.at("header", f"damaged canonical form: {error!r}") from error
    if to_bytes(vocabulary) != data:
        message = "damaged canonical form: the same vocabulary has other canonical bytes"
        raise VocabularyError.at("header", message)
    # The property would compute the canonical form again.
    vocabulary.__dict__["digest"] = digest_of(data)
    return vocabulary


def add_checksum(content: bytes) -> bytes:
    """Put a line with the SHA-256 of a file before its content.

    A changed letter may make the file another valid vocabulary; only the checksum detects this.
    """
    return b"%b%b\n%b" % (CHECKSUM_PREFIX, hashlib.sha256(content).hexdigest().encode(), content)


def strip_checksum(data: bytes) -> bytes:
    """Verify and remove the line of `add_checksum`; bytes without it are returned unchanged.

    Raises:
        VocabularyError: the content does not have that checksum.
    """
    if not data.startswith(CHECKSUM_PREFIX):
        return data
    line, _, content = data.partition(b"\n")
    if hashlib.sha256(content).hexdigest().encode() != line.removeprefix(CHECKSUM_PREFIX):
        message = "damaged: the SHA-256 in the first line is not that of the file"
        raise VocabularyError.at("file", message)
    return content


def _parse(data: memoryview) -> Vocabulary:
    header_end = 4 + int.from_bytes(data[:4], "little")
    header: dict[str, Any] = json.loads(bytes(data[4:header_end]))
    num_tokens = as_type(int, header["num_tokens"])
    num_merges = as_type(int, header["num_merges"])
    tokens_begin = header_end + 4 * num_tokens
    lengths = np.frombuffer(data[header_end:tokens_begin], "<i4").astype(np.int64)
    ends = tokens_begin + np.cumsum(np.maximum(lengths, 0))
    merges_begin = int(ends[-1]) if num_tokens else tokens_begin
    if len(lengths) != num_tokens or merges_begin + 8 * num_merges != len(data):
        raise VocabularyError.at("header", "damaged canonical form: lengths do not add up")
    return Vocabulary(
        tokens=_tokens(bytes(data), lengths, ends),
        model=_model(header, data[merges_begin:]),
        special_tokens=as_type(tuple[SpecialToken, ...], header["special_tokens"]),
        normalizers=as_type(tuple[Normalizer, ...], header["normalizers"]),
        pretokenizer=as_type(str, header["pretokenizer"]),
        motifs=as_type(tuple[str, ...], header.get("motifs", ())),
        prefix=as_type(tuple[int, ...], header["prefix"]),
        suffix=as_type(tuple[int, ...], header["suffix"]),
        roles={as_type(str, role): as_type(int, i) for role, i in header["roles"].items()},
        padding_side=as_type(Literal["right", "left"], header["padding_side"]),
        decoder=as_type(Decoder, header.get("decoder", "inverse")),
    )


def _tokens(
    data: bytes, lengths: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[bytes | None, ...]:
    """Read the tokens from the data.

    Args:
        data: the canonical form without MAGIC.
        lengths: int64[V], the number of bytes of each token; -1 for an id without a token.
        ends: int64[V], where each token ends in the data.
    """
    begins = (ends - np.maximum(lengths, 0)).tolist()
    tokens: list[bytes | None] = [
        data[begin:end] for begin, end in zip(begins, ends.tolist(), strict=True)
    ]
    for token_id in np.flatnonzero(lengths < 0).tolist():
        tokens[token_id] = None
    return tuple(tokens)


def _model(header: dict[str, Any], merges: memoryview) -> Model:
    """Make the model that the header describes, with its merges."""
    models = {model.__name__.lower(): model for model in get_args(Model)}
    kind, fields = models[header["kind"]], dict(header["model"])
    if kind is Bpe:
        fields["merges"] = ()
    model: Model = as_type(kind, fields)
    if not isinstance(model, Bpe):
        return model
    ids = np.frombuffer(merges, "<i4").reshape(-1, 2)
    pairs = tuple(zip(ids[:, 0].tolist(), ids[:, 1].tolist(), strict=True))
    return dataclasses.replace(model, merges=pairs)
