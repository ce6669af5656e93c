"""Other people's tokenizers, and ours, under one face: texts in, ragged ids out.

Duck typing only: neither `tokenizers` nor `transformers` is imported. Ids are those without begin
and end tokens, padding and truncation, but of an `encode` that cannot be told so. Knows no tables
and no devices.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vocabularies.batch.batch import Batch, Encoded, EncodeOptions, RowError, RowRefused
from vocabularies.batch.ragged import offsets_from_lengths
from vocabularies.model.types import Upstream
from vocabularies.model.vocabulary import Vocabulary
from vocabularies.reference import tokenizer as reference

__all__ = [
    "EncodeBatch",
    "Engine",
    "Ragged",
    "SequenceRefused",
    "first_number",
    "special_tokens",
    "upstream_encoder",
]

Ragged = tuple[NDArray[np.int32], NDArray[np.int64]]
"""ids int32[T] of all rows, and offsets int64[B + 1]: where each row's begin."""

EncodeBatch = Callable[[Batch], Ragged]
CONTENT = EncodeOptions(add_special_tokens=False)
MOST_ID = (1 << 31) - 1


class SequenceRefused(ValueError):
    """A row cannot be encoded.

    Attributes:
        row: its number in the batch.
        problem: why, without the number.
    """

    def __init__(self, row: int, problem: str) -> None:
        self.row, self.problem = row, problem
        super().__init__(f"row {row}: {problem}")


class Engine(Protocol):
    """What encodes batches for one of our vocabularies, such as GpuEngine."""

    def encode(self, vocabulary: Vocabulary, batch: Batch) -> Encoded:
        """The ids of a batch."""


def upstream_encoder(tokenizer: Any, engine: Engine | None = None) -> EncodeBatch:
    """How a tokenizer is asked for the ids of a batch.

    Args:
        tokenizer: a Vocabulary; a `tokenizers.Tokenizer`; one in the manner of `transformers`,
            called with a list of texts; or any object with `encode(text)`, which gives a list of
            ids or an object with `ids`.
        engine: encodes for a Vocabulary instead of the reference.

    Raises:
        TypeError: it is nothing of this.

    The encoder raises SequenceRefused where a row is not UTF-8, is refused, has an error of the
    tokenizer's, or an id below 0 or of more than 31 bits.
    """
    if isinstance(tokenizer, Vocabulary):
        return _vocabulary_encoder(tokenizer, engine)
    if callable(getattr(tokenizer, "encode_batch", None)) and hasattr(tokenizer, "no_padding"):
        plain = _without_padding(tokenizer)
        return _texts_encoder(
            lambda texts: (e.ids for e in plain.encode_batch(texts, add_special_tokens=False))
        )
    if callable(tokenizer) and hasattr(tokenizer, "convert_tokens_to_ids"):
        return _texts_encoder(lambda texts: tokenizer(texts, add_special_tokens=False)["input_ids"])
    if callable(encode := getattr(tokenizer, "encode", None)):
        options = {"add_special_tokens": False} if _takes_special_tokens(encode) else {}
        return _texts_encoder(lambda texts: (_ids(encode(text, **options)) for text in texts))
    raise TypeError(f"a {type(tokenizer).__name__} has no encode, and is not called with texts")


def _vocabulary_encoder(vocabulary: Vocabulary, engine: Engine | None) -> EncodeBatch:
    if engine is not None:

        def encode(batch: Batch) -> Ragged:
            encoded = engine.encode(vocabulary, batch.select(range(len(batch)), CONTENT))
            _refuse_first(encoded.errors)
            return encoded.ids.astype(np.int32, copy=False), encoded.offsets

        return encode
    if isinstance(vocabulary.model, Upstream):
        raise TypeError(f"this vocabulary needs an engine: {vocabulary.model.reason}")
    return _texts_encoder(lambda texts: _reference_ids(vocabulary, texts))


def _refuse_first(errors: Mapping[int, RowError]) -> None:
    if errors:
        row = min(errors)
        where = f" ({errors[row].where})" if errors[row].where else ""
        raise SequenceRefused(row, errors[row].message + where)


def _reference_ids(vocabulary: Vocabulary, texts: Sequence[str]) -> Iterator[Sequence[int]]:
    for row, text in enumerate(texts):
        try:
            yield reference.encode(vocabulary, text, CONTENT).ids
        except RowRefused as refused:
            raise SequenceRefused(row, refused.error.message) from refused


def _texts_encoder(encode: Callable[[list[str]], Iterable[Sequence[int]]]) -> EncodeBatch:
    def encode_batch(batch: Batch) -> Ragged:
        texts, errors = batch.texts()
        _refuse_first(errors)
        rows = _asked(encode, list(texts)) if texts else []  # Some cannot take none.
        if len(rows) != len(texts):
            raise ValueError(f"the tokenizer gave {len(rows)} rows of ids for {len(texts)} texts")
        offsets = offsets_from_lengths(np.fromiter(map(len, rows), np.int64, len(rows)))
        ids = np.fromiter((i for row in rows for i in row), np.int64, int(offsets[-1]))
        wrong = np.flatnonzero((ids < 0) | (ids > MOST_ID))
        if len(wrong):
            row = int(np.searchsorted(offsets, wrong[0], side="right")) - 1
            raise SequenceRefused(row, f"the tokenizer gives the id {ids[wrong[0]]}")
        return ids.astype(np.int32), offsets

    return encode_batch


def _asked(
    encode: Callable[[list[str]], Iterable[Sequence[int]]], texts: list[str]
) -> list[Sequence[int]]:
    """The rows of ids.

    Raises:
        SequenceRefused: the tokenizer has an error for a row, the first of these.
        RuntimeError: the tokenizer's, as it may be the device that fails.
    """
    try:
        return list(encode(texts))
    except (SequenceRefused, RuntimeError, MemoryError):
        raise
    except Exception as error:  # Foreign code: KeyError, and a bare Exception by `tokenizers`.
        if len(texts) > 1:
            for row, text in enumerate(texts):
                try:
                    _asked(encode, [text])
                except SequenceRefused as refused:
                    raise SequenceRefused(row, refused.problem) from error
            raise
        problem = f"the tokenizer has an error: {type(error).__name__}: {error}"
        raise SequenceRefused(0, problem) from error


def _without_padding(tokenizer: Any) -> Any:
    """A copy without padding and truncation, whatever the caller asks of the tokenizer later.

    One with parts in Python cannot be copied, nor can one whose strings share ids, as T and U may;
    such a one is taken as it is.

    Raises:
        TypeError: it would have to be copied, for it pads or truncates, and cannot be.
    """
    try:
        plain = copy.deepcopy(tokenizer)
        if plain.get_vocab() != tokenizer.get_vocab():
            raise ValueError("of strings that share an id, a copy has one")
    except Exception as error:  # A bare Exception is what tokenizers raises.
        if tokenizer.padding is None and tokenizer.truncation is None:
            return tokenizer
        message = (
            f"the tokenizer pads or truncates, and a copy that does not cannot be made: {error}"
        )
        raise TypeError(message) from error
    plain.no_padding()
    plain.no_truncation()
    if hasattr(tokenizer, "encode_special_tokens"):  # The one setting that a copy loses.
        plain.encode_special_tokens = tokenizer.encode_special_tokens
    return plain


def _takes_special_tokens(encode: Callable[..., Any]) -> bool:
    try:
        return "add_special_tokens" in inspect.signature(encode).parameters
    except ValueError:  # A function of an extension that does not say its parameters.
        return False


def _ids(encoded: Any) -> Sequence[int]:
    ids: Sequence[int] = getattr(encoded, "ids", encoded)
    return ids


def special_tokens(tokenizer: Any) -> list[str] | None:
    """The texts that a tokenizer finds as a whole; None where it does not say."""
    if callable(added := getattr(tokenizer, "get_added_tokens_decoder", None)):
        return [str(token.content) for token in added().values()]
    for name in ("added_tokens_decoder", "all_special_tokens"):
        if (added := getattr(tokenizer, name, None)) is not None:
            return [str(token) for token in (added.values() if hasattr(added, "values") else added)]
    return None


def first_number(places: Iterable[tuple[Any, str]], least: int, most: int) -> int | None:
    """The first of some attributes that is a whole number in a range; names may have dots."""
    for thing, name in places:
        for part in name.split("."):
            thing = getattr(thing, part, None)
        if isinstance(thing, int) and not isinstance(thing, bool) and least <= thing <= most:
            return thing
    return None
