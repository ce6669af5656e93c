r"""The canonical form of a vocabulary: the bytes its digest is taken of, and how it is stored.

Layout, all integers little-endian:

    b"warptok vocabulary 1\n"
    uint32 H, then H bytes of JSON: every field but tokens and merges, keys sorted, no spaces;
               motifs only where there are some
    int32[V]   length of each token in bytes, -1 for a hole
    uint8[...] the tokens, joined
    int32[M, 2] merges, only for a BPE model

No part of it is code: reading it runs nothing but NumPy and the JSON parser.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from itertools import chain
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from vocabularies.errors import VocabularyError

if TYPE_CHECKING:
    from vocabularies.model.vocabulary import Model, Vocabulary

__all__ = ["MAGIC", "SEAL", "from_bytes", "of_type", "sealed", "to_bytes", "unsealed"]

MAGIC = b"warptok vocabulary 1\n"
SEAL = b"sha256:"


def to_bytes(vocabulary: Vocabulary) -> bytes:
    """Canonical form of a vocabulary; equal bytes exactly when all fields are equal."""
    merges = getattr(vocabulary.model, "merges", ())
    model = {
        field.name: getattr(vocabulary.model, field.name)
        for field in dataclasses.fields(vocabulary.model)
        if field.name != "merges"
    }
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
    if vocabulary.motifs:
        header["motifs"] = vocabulary.motifs
    encoded = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    lengths = [-1 if token is None else len(token) for token in vocabulary.tokens]
    return b"".join(
        (
            MAGIC,
            len(encoded).to_bytes(4, "little"),
            encoded,
            np.array(lengths, "<i4").tobytes(),
            *filter(None, vocabulary.tokens),
            np.fromiter(chain.from_iterable(merges), "<i4", 2 * len(merges)).tobytes(),
        )
    )


def from_bytes(data: bytes) -> Vocabulary:
    """The vocabulary of a canonical form.

    Raises:
        VocabularyError: the bytes are not a canonical form, or the vocabulary is wrong.
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
    return vocabulary


def sealed(content: bytes) -> bytes:
    """What is kept of a file for years: a line with its SHA-256, and the file.

    A letter that turned into another one makes another vocabulary, which nothing else would tell.
    """
    return b"%b%b\n%b" % (SEAL, hashlib.sha256(content).hexdigest().encode(), content)


def unsealed(data: bytes) -> bytes:
    """The file behind such a line, or the bytes themselves where they have none.

    Raises:
        VocabularyError: they are not what they were when they were sealed.
    """
    if not data.startswith(SEAL):
        return data
    line, _, content = data.partition(b"\n")
    if hashlib.sha256(content).hexdigest().encode() != line.removeprefix(SEAL):
        message = "damaged: its bytes are not those whose SHA-256 stands in the first line"
        raise VocabularyError.at("file", message)
    return content


def _parse(data: memoryview) -> Vocabulary:
    from vocabularies.model import vocabulary as v

    header_end = 4 + int.from_bytes(data[:4], "little")
    header: dict[str, Any] = json.loads(bytes(data[4:header_end]))
    num_tokens = of_type(int, header["num_tokens"])
    num_merges = of_type(int, header["num_merges"])
    tokens_begin = header_end + 4 * num_tokens
    lengths = np.frombuffer(data[header_end:tokens_begin], "<i4").astype(np.int64)
    ends = tokens_begin + np.cumsum(np.maximum(lengths, 0))
    merges_begin = int(ends[-1]) if num_tokens else tokens_begin
    if len(lengths) != num_tokens or merges_begin + 8 * num_merges != len(data):
        raise VocabularyError.at("header", "damaged canonical form: lengths do not add up")
    return v.Vocabulary(
        tokens=_tokens(bytes(data), lengths, ends),
        model=_model(header, data[merges_begin:]),
        special_tokens=of_type(tuple[v.SpecialToken, ...], header["special_tokens"]),
        normalizers=of_type(tuple[v.Normalizer, ...], header["normalizers"]),
        pretokenizer=of_type(str, header["pretokenizer"]),
        motifs=of_type(tuple[str, ...], header.get("motifs", ())),
        prefix=of_type(tuple[int, ...], header["prefix"]),
        suffix=of_type(tuple[int, ...], header["suffix"]),
        roles={of_type(str, role): of_type(int, i) for role, i in header["roles"].items()},
        padding_side=of_type(Literal["right", "left"], header["padding_side"]),
    )


def _tokens(
    data: bytes, lengths: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[bytes | None, ...]:
    """The tokens of so many bytes, -1 for an id without one, that end at these places."""
    begins = (ends - np.maximum(lengths, 0)).tolist()
    tokens: list[bytes | None] = [
        data[begin:end] for begin, end in zip(begins, ends.tolist(), strict=True)
    ]
    for token_id in np.flatnonzero(lengths < 0).tolist():
        tokens[token_id] = None
    return tuple(tokens)


def _model(header: dict[str, Any], merges: memoryview) -> Model:
    """The model that the header describes, with the merges behind the tokens."""
    from vocabularies.model import vocabulary as v

    models = {model.__name__.lower(): model for model in get_args(v.Model)}
    kind, fields = models[header["kind"]], dict(header["model"])
    if kind is v.Bpe:
        fields["merges"] = ()
    model: Model = of_type(kind, fields)
    if not isinstance(model, v.Bpe):
        return model
    ids = np.frombuffer(merges, "<i4").reshape(-1, 2)
    pairs = tuple(zip(ids[:, 0].tolist(), ids[:, 1].tolist(), strict=True))
    return dataclasses.replace(model, merges=pairs)


def of_type(hint: Any, value: Any) -> Any:
    """A JSON value as the annotated type of a field: lists become tuples, objects dataclasses.

    Raises:
        TypeError: it is of another type, or a field is missing or unknown.
        UnicodeEncodeError: half a surrogate pair.
    """
    if isinstance(hint, type) and dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return _record(hint, value)
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal and value in args:
        return value
    if origin is UnionType:
        return None if value is None else of_type(args[0], value)
    if origin is tuple and isinstance(value, list | tuple):
        kinds = [args[0]] * len(value) if args[-1] is ... else args
        if len(kinds) == len(value):
            return tuple(of_type(kind, item) for kind, item in zip(kinds, value, strict=True))
    if hint in (int, str, bool) and type(value) is hint:
        if hint is str:
            value.encode()
        return value
    raise TypeError(f"{value!r} is not {_in_words(hint)}")


def _record(kind: type, value: dict[str, Any]) -> Any:
    """An object of JSON as a dataclass."""
    hints = get_type_hints(kind)
    if unknown := [name for name in value if name not in hints]:
        raise TypeError(f"no field {unknown[0]!r}; there are {', '.join(hints)}")
    needed = (field.name for field in dataclasses.fields(kind) if _has_no_default(field))
    if missing := [name for name in needed if name not in value]:
        raise TypeError(f"the field {missing[0]!r} is missing")
    return kind(**{name: of_type(hints[name], item) for name, item in value.items()})


def _has_no_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is field.default_factory is dataclasses.MISSING


_WORDS = {int: "a whole number", str: "a text", bool: "true or false"}


def _in_words(hint: Any) -> str:
    """What a value should be, for people who write JSON."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return f"one of {', '.join(args)}"
    if origin is tuple:
        return "a list"
    return _WORDS.get(hint, "an object")
